"""What is known of TorchTitan: flavors, old spellings, keys without influence, parts that are not modelled.

The facts are data with sources, in `projector/catalog/frameworks/torchtitan.yaml`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from projector import catalog
from projector.catalog.facts import read_mapping
from projector.config.switches import Switch, sections_of, switch

FILE = Path("frameworks") / "torchtitan.yaml"
"""The data file, relative to the catalog's folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchTitanFacts:
    """The data file, typed."""

    flavors: Mapping[str, Mapping[str, str | Mapping[str, Any]]]
    """By model name and flavor: a model of the catalog, or an architecture in the form of a catalog file."""
    classic: Mapping[str, Mapping[str, Any]]
    """Multi-head attention that Primus puts in place of latent attention, by flavor of deepseek_v3."""
    model_aliases: Mapping[str, str]
    """Other names of models, such as those of experiments that train the same model."""
    renamed: Mapping[str, str]
    """The last name of keys that were renamed or moved."""
    registry: Mapping[str, Mapping[str, Any]]
    """Values of entries of the Python registry that took the place of TOML files, by name."""
    registry_source: str
    """Where these values are from."""
    arguments: frozenset[str]
    """Keys that are read."""
    ignored: frozenset[str]
    """Keys without influence on memory or time, and whole sections of such keys."""
    unmodelled: tuple[Switch, ...]
    """Keys with an influence that the engine does not model."""
    sections: frozenset[str]
    """Sections that hold keys which are read."""
    known: frozenset[str]
    """Every key that the file names, whatever its generation."""


@cache
def torchtitan_facts() -> TorchTitanFacts:
    """Read the data file, once."""
    # The file ships with the package; the tests hold it to this shape.
    content: Mapping[str, Any] = read_mapping(Path(catalog.__file__).parent / FILE)
    # Long lists of keys are written as one text, which reads many times faster than as many scalars.
    arguments, ignored = frozenset(content["arguments"].split()), frozenset(content["ignored"].split())
    switches = tuple(switch(item) for item in content["unmodelled"])
    renamed = dict(pair.split("=") for pair in content["renamed"].split())
    return TorchTitanFacts(
        flavors=content["flavors"],
        classic=content["classic"],
        model_aliases=content["model_aliases"],
        renamed=renamed,
        registry=content["registry"]["entries"],
        registry_source=content["registry"]["source"],
        arguments=arguments,
        ignored=ignored,
        unmodelled=switches,
        sections=frozenset(section for key in {*arguments, *renamed} for section in sections_of(key)),
        known=frozenset({*arguments, *ignored, *renamed, *(each.key for each in switches)}),
    )
