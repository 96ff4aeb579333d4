"""Megatron-LM's arguments beside those that decide the job: which switch on what is not modelled, which do nothing.

The facts are data with sources, in `projector/catalog/frameworks/megatron.yaml`.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from projector import catalog
from projector.catalog.facts import read_mapping
from projector.config.switches import Switch, switch

FILE = Path("frameworks") / "megatron.yaml"
"""The data file, relative to the catalog's folder."""
VERSION_KEYS = ("megatron_core_version", "megatron_version")
"""Names by which a person may state the version; Megatron-LM itself has no such argument."""


class MegatronFacts(NamedTuple):
    """The data file, typed."""

    ignored: frozenset[str]
    """Keys without influence on memory or time, of the presets and of public recipes."""
    unmodelled: tuple[Switch, ...]
    """Keys with an influence that the engine does not model."""
    known: frozenset[str]
    """Every key that the file names."""


@cache
def megatron_facts() -> MegatronFacts:
    """Read the data file, once."""
    # The file ships with the package; the tests hold it to this shape.
    content: Mapping[str, Any] = read_mapping(Path(catalog.__file__).parent / FILE)
    # Long lists of keys are written as one text, which reads many times faster than as many scalars.
    arguments, ignored = content["arguments"].split(), [*content["ignored"].split(), *content["kept"].split()]
    switches = [item["key"] for item in content["unmodelled"]]
    return MegatronFacts(
        ignored=frozenset(ignored),
        unmodelled=tuple(switch(item) for item in content["unmodelled"]),
        known=frozenset({*arguments, *ignored, *switches}),
    )
