"""Megatron-LM's command-line flags: how many values each takes, of which type, under which name they are kept.

The table is data with sources, in `projector/catalog/frameworks/megatron-arguments.yaml`; it comes from Megatron-LM's
own parsers.
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from projector import catalog
from projector.catalog.facts import read_mapping

FILE = Path("frameworks") / "megatron-arguments.yaml"
"""The data file, relative to the catalog's folder."""


class Kind(StrEnum):
    """What a flag takes, by the words of the data file."""

    ON = "on"
    """Nothing; it sets true."""
    OFF = "off"
    """Nothing; it sets false."""
    INTEGER = "integer"
    """One integer."""
    NUMBER = "number"
    """One number, with a fraction or without."""
    TEXT = "text"
    """One word."""
    INTEGERS = "integers"
    """All integers up to the next flag."""
    NUMBERS = "numbers"
    """All numbers up to the next flag."""
    TEXTS = "texts"
    """All words up to the next flag."""

    @property
    def is_switch(self) -> bool:
        """Whether the flag takes no value."""
        return self in {Kind.ON, Kind.OFF}

    @property
    def is_list(self) -> bool:
        """Whether the flag takes all values up to the next flag."""
        return self in {Kind.INTEGERS, Kind.NUMBERS, Kind.TEXTS}


class Flag(NamedTuple):
    """One flag."""

    name: str
    """With dashes, without the leading two."""
    key: str
    """Name under which Megatron-LM keeps its value (argparse's dest)."""
    kind: Kind
    """What it takes."""


@cache
def flags() -> Mapping[str, Flag]:
    """Every known flag by its name with dashes."""
    # The file ships with the package; the tests hold it to this shape.
    content: Mapping[str, Any] = read_mapping(Path(catalog.__file__).parent / FILE)
    table: dict[str, Flag] = {}
    for group in (content["former"], content["current"]):
        for kind, names in group.items():
            for word in names.split():
                name, _, key = word.partition("=")
                table[name] = Flag(name=name, key=key or _default_key(name, kind), kind=Kind(kind))
    return table


def find_flag(name: str) -> Flag | None:
    """The flag called `name`, with or without leading dashes, dashes and underscores alike; None when unknown."""
    return flags().get(name.lstrip("-").replace("_", "-"))


@cache
def keys_of_flags() -> Mapping[str, Kind]:
    """What each key holds, by the names under which values are kept; a switch's key holds true or false."""
    return {flag.key: Kind.ON if flag.kind.is_switch else flag.kind for flag in flags().values()}


def _default_key(name: str, kind: str) -> str:
    if kind == Kind.OFF:
        name = name.removeprefix("no-") if name.startswith("no-") else name.removeprefix("disable-")
    return name.replace("-", "_")
