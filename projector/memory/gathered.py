"""Weights and gradients that fully sharded data parallelism holds whole for a moment.

The root group (token table, output layer, final norm) stays whole from forward to the end of backward, and with it the
gradient of the output layer, which exists from the start of backward; the running layer and the one gathered ahead are
whole too, and every layer where weights are not sharded again after forward (FSDP2 of torch 2.6 as TorchTitan 9dec370
uses it; Megatron-FSDP of Megatron-LM d98e8a64). Layers' gradients are whole while they are reduced: FSDP2 under
TorchTitan has two fp32 reduce-scatter inputs alive, Megatron one bf16 gradient.
"""

from collections.abc import Sequence

from projector.job import Dialect, Sharding, TrainingJob
from projector.memory.stages import ChunkOperations
from projector.operations import Operation
from projector.parallelism import Layout
from projector.projection import MemoryComponent, MemoryLevel

GATHERED_LAYERS = 2
"""Layers whole at a time: the running one and the one gathered ahead."""
REDUCE_BYTES = 4
"""Bytes of a gradient in the fp32 input of TorchTitan's reduce-scatter."""
REDUCE_INPUTS = 2
"""Such inputs alive at a time."""


def gathered_components(
    chunks: Sequence[ChunkOperations], job: TrainingJob, layout: Layout
) -> tuple[MemoryComponent, ...]:
    """Whole weights and gradients at the peak; none unless weights are sharded."""
    if layout.sharding is not Sharding.PARAMETERS:
        return ()
    head = sum(_elements(chunk.output) for chunk in chunks)
    root = head + sum(_elements(chunk.embedding) for chunk in chunks)
    layers = [_elements(part) for chunk in chunks for part in (*chunk.layers, *chunk.predictions)]
    layer = max(layers, default=0)
    whole = GATHERED_LAYERS * layer if job.parallelism.reshard_after_forward else sum(layers)
    head_gradient = sum(_elements(chunk.output, trained=True) for chunk in chunks)
    layer_gradient = max(
        (_elements(part, trained=True) for chunk in chunks for part in (*chunk.layers, *chunk.predictions)), default=0
    )
    titan = job.software.dialect is Dialect.TORCHTITAN
    gathered = job.precision.gathered_bytes
    reduced = REDUCE_BYTES * REDUCE_INPUTS if titan else gathered
    sizes = {
        "gathered weights": gathered * (root + whole),
        "gradients before reduction": gathered * head_gradient + reduced * layer_gradient,
    }
    return tuple(
        MemoryComponent(name=name, level=MemoryLevel.ALLOCATED, size_bytes=size) for name, size in sizes.items() if size
    )


def _elements(part: Sequence[Operation], *, trained: bool = False) -> int:
    """Elements of the part's weights, or of those that are trained."""
    weights = [weight for operation in part for weight in operation.weights if not weight.shared]
    return sum(weight.elements for weight in weights if not (trained and weight.frozen))
