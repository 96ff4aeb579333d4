"""What the project itself knows of Primus with Megatron-LM: the defaults of its presets that decide the answer.

The facts are data with sources, in `projector/catalog/frameworks/primus-megatron.yaml`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from projector import catalog
from projector.catalog.facts import read_mapping
from projector.config.megatron.facts import megatron_facts

FILE = Path("frameworks") / "primus-megatron.yaml"
"""The data file, relative to the catalog's folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PrimusFacts:
    """The data file, typed."""

    modules: Mapping[str, Mapping[str, Any]]
    """Deciding defaults of each module preset, by file name without suffix."""
    model_defaults: Mapping[str, Any]
    """Deciding defaults that every model preset starts from."""
    presets: Mapping[str, Mapping[str, Any]]
    """What each model preset states beyond the architecture in the model catalog, by file name without suffix."""
    known: frozenset[str]
    """Every key that the presets state or that Megatron-LM knows, dotted ones in full."""


@cache
def primus_facts() -> PrimusFacts:
    """Read the data file, once."""
    # The file ships with the package; the tests hold it to this shape.
    content: Mapping[str, Any] = read_mapping(Path(catalog.__file__).parent / FILE)
    groups = [content["model_defaults"], *content["modules"].values(), *content["presets"].values()]
    return PrimusFacts(
        modules=content["modules"],
        model_defaults=content["model_defaults"],
        presets=content["presets"],
        known=megatron_facts().known.union(*groups),
    )
