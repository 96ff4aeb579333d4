"""A Primus module of the framework `torchtitan` -> job: its values are TorchTitan's and Primus's own."""

from projector.config.document import Document
from projector.config.overriding import overridden
from projector.config.primus.experiment import Module, nulls
from projector.config.shared_names import in_own_words
from projector.config.torchtitan.facts import torchtitan_facts
from projector.config.torchtitan.job import Values
from projector.config.torchtitan.job import load as load_values
from projector.config.torchtitan.spelling import TitanKeys
from projector.config.tree import flatten
from projector.errors import ConfigurationError
from projector.provenance import LoadedConfiguration


def load(module: Module, document: Document) -> LoadedConfiguration:
    """Map a resolved module with the document's overrides on top; raises what a reader raises."""
    if any(override.key == "model" for override in document.overrides):
        message = "the model preset is read before overrides are applied"
        expected = "name it in the file, as modules.*.model, or override single values, such as model.flavor"
        raise ConfigurationError(message, place="override model", expected=expected)
    overrides = in_own_words(document.overrides, TitanKeys(flatten(module.tree)).spelling())
    tree = overridden(module.tree, overrides, known=torchtitan_facts().known)
    values = Values(values=flatten(nulls(tree)), file=document.name, others=module.others)
    return load_values(values, format_="primus")
