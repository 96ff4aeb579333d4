"""What the project itself knows of Primus: the defaults of its presets that decide the answer.

The facts are data with sources, in `projector/catalog/frameworks/primus-*.yaml`, one file a framework.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from projector import catalog
from projector.catalog.facts import read_mapping
from projector.config.megatron.facts import megatron_facts
from projector.config.switches import Switch
from projector.provenance import ConfigValue, Source

FILE = Path("frameworks") / "primus-megatron.yaml"
"""The data file, relative to the catalog's folder."""


class FrameworkFacts(NamedTuple):
    """The data file of a framework that is not Megatron-LM, typed."""

    modules: Mapping[str, Mapping[str, Any]]
    """Deciding values of each module preset, by file name without suffix."""
    models: Mapping[str, Mapping[str, Any]]
    """Deciding values of each model preset, by file name without suffix."""
    architectures: Mapping[str, str]
    """Model of the catalog for each of the framework's own names that the catalog does not know."""
    defaults: Mapping[str, Any]
    """Values that the framework itself sets where no file states them."""
    named: Mapping[str, Mapping[str, Any]]
    """Values that the framework sets for single models or recipe functions, by its own name for them."""
    precisions: Mapping[str, Mapping[str, Any]]
    """Megatron-LM's arguments for each of the framework's names for a set of element types."""
    unmodelled: tuple[Switch, ...]
    """Keys that change memory or time in a way that is not modelled."""
    known: frozenset[str]
    """Every key that the file names."""


class PrimusFacts(NamedTuple):
    """The data file of Megatron-LM, typed."""

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


def framework_file(framework: str) -> Path:
    """The data file of a framework, relative to the catalog's folder."""
    return Path("frameworks") / f"primus-{framework}.yaml"


@cache
def framework_facts(framework: str) -> FrameworkFacts:
    """Read the data file of a framework other than Megatron-LM, once."""
    content: Mapping[str, Any] = read_mapping(Path(catalog.__file__).parent / framework_file(framework))
    groups = [*content["modules"].values(), *content["models"].values(), content.get("defaults", {})]
    switches = tuple(_unmodelled(item) for item in content.get("unmodelled", ()))
    keys = f"{content.get('arguments', '')} {content.get('ignored', '')}".split()
    return FrameworkFacts(
        modules=content["modules"],
        models=content["models"],
        architectures=content.get("architectures", {}),
        defaults=content.get("defaults", {}),
        named=content.get("named", {}),
        precisions=content.get("precisions", {}),
        unmodelled=switches,
        known=frozenset(keys).union((switch.key for switch in switches), *groups),
    )


def _unmodelled(item: Mapping[str, Any]) -> Switch:
    effect = "memory and time are counted as if it were not there"
    return Switch(key=item["key"], neutral=tuple(item["neutral"]), what=item["what"], effect=effect, decides=True)


def framework_values(framework: str, values: Mapping[str, Any]) -> dict[str, ConfigValue]:
    """Values of the data file with their source."""
    file = f"catalog/{framework_file(framework).as_posix()}"
    return {key: ConfigValue(key=key, value=value, source=Source.CATALOG, file=file) for key, value in values.items()}
