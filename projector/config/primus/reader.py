"""The door to Primus experiment files: text in, `LoadedConfiguration` out."""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module

from projector.config.document import Document
from projector.config.primus.experiment import Module, resolve
from projector.config.primus.extends import Extender
from projector.config.primus.presets import CatalogPresets, Presets, TreePresets
from projector.errors import ConfigurationError
from projector.provenance import Assumption, LoadedConfiguration, Source

_NOT_VALUES = {"platform", "bases"}
"""Keys beside `modules` that are no values of a training."""


def read(document: Document) -> LoadedConfiguration:
    """Read an experiment file; raises `ConfigurationError` and its children, `LayoutImpossible`, `NotAvailable`."""
    for override in document.overrides:
        if override.key == "model":
            message = "the model preset is read before overrides are applied"
            expected = "name it in the file, as modules.*.model, or override single values"
            raise ConfigurationError(message, place="override model", expected=expected)
    variables = document.variables
    extender = Extender(files=document.files, source=Source.EXPERIMENT, variables=variables)
    path, root = document.path, document.primus_root
    tree = extender.text(document.text, name=document.name) if path is None else extender.file(path)
    presets: Presets = CatalogPresets(variables) if root is None else TreePresets(root, variables)
    module = resolve(tree, name=document.name, presets=presets)
    # The module of a framework is imported when one of its files comes.
    load: Callable[[Module, Document], LoadedConfiguration]
    load = import_module(f"projector.config.primus.{module.framework}").load
    return _with_note_on_values_outside(load(module, document), module)


def _with_note_on_values_outside(loaded: LoadedConfiguration, module: Module) -> LoadedConfiguration:
    """Say so when values stand at the top of the file, where whoever wrote them may take them to count."""
    outside = [key for key in module.others if key not in _NOT_VALUES and not key.startswith("modules.")]
    if not outside:
        return loaded
    what = f"{', '.join(outside)} at the top of the file: no effect"
    why = f"Primus reads values under modules.{module.name}.overrides alone"
    return replace(loaded, assumed=(*loaded.assumed, Assumption(what=what, why=why)))
