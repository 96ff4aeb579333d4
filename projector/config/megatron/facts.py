"""Megatron-LM's arguments beside those that decide the job: which switch on what is not modelled, which do nothing.

The facts are data with sources, in `projector/catalog/frameworks/megatron.yaml`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from projector import catalog
from projector.catalog.facts import read_mapping

FILE = Path("frameworks") / "megatron.yaml"
"""The data file, relative to the catalog's folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UnmodelledKey:
    """A key whose effect the engine does not know, unless it has one of the values that switch it off."""

    key: str
    """Dotted name."""
    neutral: tuple[object, ...]
    """Values without effect; absent counts as off."""
    what: str
    """What it switches on, for the report."""
    effect: str
    """What the answer lacks because of it."""
    decides: bool
    """Whether memory may be wrong by more than the stated interval."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MegatronFacts:
    """The data file, typed."""

    ignored: frozenset[str]
    """Keys without influence on memory or time, of the presets and of public recipes."""
    unmodelled: tuple[UnmodelledKey, ...]
    """Keys with an influence that the engine does not model."""
    known: frozenset[str]
    """Every key that the file names."""


@cache
def megatron_facts() -> MegatronFacts:
    """Read the data file, once."""
    # The file ships with the package; the tests hold it to this shape.
    content: Mapping[str, Any] = read_mapping(Path(catalog.__file__).parent / FILE)
    # Long lists of keys are written as one text, which reads many times faster than as many scalars.
    arguments, ignored = content["arguments"].split(), content["ignored"].split()
    switches = [item["key"] for item in content["unmodelled"]]
    return MegatronFacts(
        ignored=frozenset(ignored),
        unmodelled=tuple(_unmodelled(item) for item in content["unmodelled"]),
        known=frozenset({*arguments, *ignored, *switches}),
    )


def _unmodelled(item: Mapping[str, Any]) -> UnmodelledKey:
    return UnmodelledKey(**{**item, "neutral": tuple(item["neutral"])})
