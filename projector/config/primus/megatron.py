"""A Primus module of the framework `megatron` -> job: its values are Megatron-LM's arguments and Primus's own."""

from projector.config.document import Document
from projector.config.megatron.job import Arguments
from projector.config.megatron.job import load as load_arguments
from projector.config.overriding import overridden
from projector.config.primus.experiment import Module, nulls, refuse_diffusion
from projector.config.primus.facts import primus_facts
from projector.config.tree import flatten
from projector.provenance import LoadedConfiguration


def load(module: Module, document: Document) -> LoadedConfiguration:
    """Map a resolved module with the document's overrides on top; raises what a reader raises."""
    known = primus_facts().known
    values = flatten(nulls(overridden(module.tree, document.overrides, known=known)))
    if "model_type" in values and values["model_type"].value == "diffusion_model":
        refuse_diffusion(module.model, place=module.place)
    arguments = Arguments(
        values=values,
        file=document.name,
        model=module.model.removesuffix(".yaml") if module.model else "model",
        others=module.others,
        known=known,
    )
    return load_arguments(arguments, format_="primus")
