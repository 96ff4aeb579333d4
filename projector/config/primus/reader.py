"""The door to Primus experiment files: text in, `LoadedConfiguration` out."""

from collections.abc import Callable
from importlib import import_module

from projector.config.document import Document
from projector.config.primus.experiment import Module, resolve
from projector.config.primus.extends import Extender
from projector.config.primus.presets import CatalogPresets, Presets, TreePresets
from projector.provenance import LoadedConfiguration, Source


def read(document: Document) -> LoadedConfiguration:
    """Read an experiment file; raises `ConfigurationError` and its children, `LayoutImpossible`, `NotAvailable`."""
    variables = document.variables
    extender = Extender(files=document.files, source=Source.EXPERIMENT, variables=variables)
    path, root = document.path, document.primus_root
    tree = extender.text(document.text, name=document.name) if path is None else extender.file(path)
    presets: Presets = CatalogPresets(variables) if root is None else TreePresets(root, variables)
    module = resolve(tree, name=document.name, presets=presets)
    # The module of a framework is imported when one of its files comes.
    load: Callable[[Module, Document], LoadedConfiguration]
    load = import_module(f"projector.config.primus.{module.framework}").load
    return load(module, document)
