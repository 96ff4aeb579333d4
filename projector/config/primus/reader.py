"""The door to Primus experiment files: text in, `LoadedConfiguration` out."""

from projector.config.document import Document
from projector.config.megatron.job import Arguments, load
from projector.config.primus.experiment import resolve
from projector.config.primus.extends import Extender
from projector.config.primus.facts import primus_facts
from projector.config.primus.presets import CatalogPresets, Presets, TreePresets
from projector.provenance import LoadedConfiguration, Source


def read(document: Document) -> LoadedConfiguration:
    """Read an experiment file; raises `ConfigurationError` and its children, `LayoutImpossible`, `NotAvailable`."""
    variables = document.variables
    extender = Extender(files=document.files, source=Source.EXPERIMENT, variables=variables)
    path, root = document.path, document.primus_root
    tree = extender.text(document.text, name=document.name) if path is None else extender.file(path)
    presets: Presets = CatalogPresets(variables) if root is None else TreePresets(root, variables)
    module = resolve(tree, name=document.name, presets=presets, overrides=document.overrides)
    return load(
        Arguments(
            values=module.values,
            file=document.name,
            model=module.model.removesuffix(".yaml") if module.model else "model",
            others=module.others,
            known=primus_facts().known,
        )
    )
