"""What the project itself knows of Primus with Megatron-LM: defaults that decide the answer, and what other keys mean.

The facts are data with sources, in `projector/catalog/frameworks/primus-megatron.yaml`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from projector import catalog
from projector.catalog.facts import read_mapping

FILE = Path("frameworks") / "primus-megatron.yaml"
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
class FrameworkFacts:
    """The data file, typed."""

    modules: Mapping[str, Mapping[str, Any]]
    """Deciding defaults of each module preset, by file name without suffix."""
    model_defaults: Mapping[str, Any]
    """Deciding defaults that every model preset starts from."""
    presets: Mapping[str, Mapping[str, Any]]
    """What each model preset states beyond the architecture in the model catalog, by file name without suffix."""
    ignored: frozenset[str]
    """Keys without influence on memory or time, of the presets and of public recipes."""
    unmodelled: tuple[UnmodelledKey, ...]
    """Keys with an influence that the engine does not model."""
    known: frozenset[str]
    """Every key that the presets or the project know, dotted ones in full."""


@cache
def framework_facts() -> FrameworkFacts:
    """Read the data file, once."""
    # The file ships with the package; the tests hold it to this shape.
    content: Mapping[str, Any] = read_mapping(Path(catalog.__file__).parent / FILE)
    groups = [content["model_defaults"], *content["modules"].values(), *content["presets"].values()]
    # Long lists of keys are written as one text, which reads many times faster than as many scalars.
    arguments, ignored = content["arguments"].split(), content["ignored"].split()
    switches = [item["key"] for item in content["unmodelled"]]
    stated = [key for values in groups for key in values]
    return FrameworkFacts(
        modules=content["modules"],
        model_defaults=content["model_defaults"],
        presets=content["presets"],
        ignored=frozenset(ignored),
        unmodelled=tuple(_unmodelled(item) for item in content["unmodelled"]),
        known=frozenset({*arguments, *ignored, *switches, *stated}),
    )


def _unmodelled(item: Mapping[str, Any]) -> UnmodelledKey:
    return UnmodelledKey(**{**item, "neutral": tuple(item["neutral"])})
