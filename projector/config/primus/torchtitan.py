"""A Primus module of the framework `torchtitan` -> job: its values are TorchTitan's and Primus's own."""

from projector.config.document import Document
from projector.config.primus.experiment import Module, nulls
from projector.config.torchtitan.job import Values
from projector.config.torchtitan.job import load as load_values
from projector.config.torchtitan.overriding import with_overrides
from projector.config.tree import flatten
from projector.provenance import LoadedConfiguration


def load(module: Module, document: Document) -> LoadedConfiguration:
    """Map a resolved module with the document's overrides on top; raises what a reader raises."""
    tree = nulls(with_overrides(module.tree, document.overrides))
    return load_values(Values(values=flatten(tree), file=document.name, others=module.others), format_="primus")
