"""Layers that the engine does not model, as entries of the answer."""

from projector.job import TrainingJob
from projector.layers import unmodelled_blocks
from projector.provenance import Unmodelled


def unmodelled_layers(job: TrainingJob) -> tuple[Unmodelled, ...]:
    """One entry per kind of block without operations; each decides, because its weights and activations are missing."""
    return tuple(
        Unmodelled(
            what=name,
            where=f"{len(layers)} decoder layers, the first is {layers[0]}",
            effect="its parameters, activations and time are missing from the answer",
            decides=True,
        )
        for name, layers in unmodelled_blocks(job).items()
    )
