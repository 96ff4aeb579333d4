"""Where module and model presets come from: a Primus tree on disk, or the project's own catalog."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from projector.config.files import Files, is_file
from projector.config.nearest import nearest
from projector.config.primus.catalog_model import preset_values
from projector.config.primus.extends import Extender
from projector.config.primus.facts import framework_facts, framework_file, primus_facts
from projector.config.tree import Tree, build
from projector.errors import ConfigurationError, PresetUnknown, shown
from projector.provenance import Source

_CONFIGS = Path("primus") / "configs"
_SUFFIXES = (".yaml", ".yml")


class Presets(Protocol):
    """Values that an experiment file refers to by name."""

    def module(self, framework: str, name: str, *, place: str) -> Tree:
        """The module preset called `name`; raises `PresetUnknown`."""

    def model(self, framework: str, name: str, *, place: str) -> Tree:
        """The model preset called `name`; raises `PresetUnknown`."""


def file_name(name: str) -> str:
    """The preset's file: `.yaml` is added to a name without a YAML suffix."""
    return name if name.endswith(_SUFFIXES) else f"{name}.yaml"


def _stem(name: str) -> str:
    """The preset's file without its suffix."""
    return file_name(name).rsplit(".", 1)[0]


@dataclass(frozen=True, slots=True)
class TreePresets:
    """Presets of a Primus checkout, below `primus/configs`."""

    root: Path
    """The checkout's folder."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Values for `${VAR}` in the presets."""

    def module(self, framework: str, name: str, *, place: str) -> Tree:
        """Read `primus/configs/modules/<framework>/<name>`."""
        return self._read("modules", framework, name, Source.MODULE_PRESET, place)

    def model(self, framework: str, name: str, *, place: str) -> Tree:
        """Read `primus/configs/models/<framework>/<name>`."""
        return self._read("models", framework, name, Source.MODEL_PRESET, place)

    def _read(self, kind: str, framework: str, name: str, source: Source, place: str) -> Tree:
        configs = self.root / _CONFIGS
        if not configs.is_dir():
            expected = "the folder of a Primus checkout"
            raise ConfigurationError(f"{self.root.name!r} has no {_CONFIGS}", place="primus root", expected=expected)
        files = Files(configs)
        path = files.inside(str(Path(kind, framework, file_name(name))), place=place)
        if not is_file(path):
            known = [preset.stem for preset in (configs / kind / framework).glob("*.yaml")]
            message = f"there is no {kind.removesuffix('s')} preset {shown(name)} for {framework} in the Primus tree"
            raise PresetUnknown(message, place=place, expected=nearest(name, known))
        return Extender(files=files, source=source, variables=self.variables).file(path)


@dataclass(frozen=True, slots=True)
class CatalogPresets:
    """What the project knows itself: the values of each preset that decide memory or time."""

    variables: Mapping[str, str] = field(default_factory=dict)
    """Values for `${VAR}` in the presets."""

    def module(self, framework: str, name: str, *, place: str) -> Tree:
        """Deciding defaults of a module preset."""
        known = primus_facts().modules if framework == "megatron" else framework_facts(framework).modules
        return self._preset("module", framework, name, known, place)

    def model(self, framework: str, name: str, *, place: str) -> Tree:
        """Deciding values of a model preset; those of Megatron-LM come from the model catalog."""
        if framework == "megatron":
            return self._tree(framework, preset_values(_stem(name), place=place))
        return self._preset("model", framework, name, framework_facts(framework).models, place)

    def _preset(
        self, kind: str, framework: str, name: str, known: Mapping[str, Mapping[str, object]], place: str
    ) -> Tree:
        stem = _stem(name)
        if stem not in known:
            message = f"the catalog has no {kind} preset {shown(name)} for {framework}"
            expected = f"{nearest(stem, known)}, or a Primus tree that has it (--primus-root)"
            raise PresetUnknown(message, place=place, expected=expected)
        return self._tree(framework, known[stem])

    def _tree(self, framework: str, values: Mapping[str, object]) -> Tree:
        file = f"catalog/{framework_file(framework).as_posix()}"
        return build(values, source=Source.CATALOG, file=file, variables=self.variables)
