"""Weights and gradients that fully sharded data parallelism holds whole for a moment.

The root group (token table, output layer, final norm) stays whole from forward to the end of backward, and with it the
gradient of the output layer, which exists from the start of backward; the running layer and the one gathered ahead are
whole too, and every layer where weights are not sharded again after forward (FSDP2 of torch 2.6 as TorchTitan 9dec370
uses it; Megatron-FSDP of Megatron-LM d98e8a64). Layers' gradients are whole while they are reduced: FSDP2 under
TorchTitan has two reduce-scatter inputs alive, in fp32 unless told otherwise, Megatron one bf16 gradient.

Some frameworks sum gradients over ranks once an iteration, so that they stay whole between micro batches (`no_sync` of
PyTorch's FSDP, which accelerate and the Trainer of Hugging Face use; DeepSpeed runtime/bf16_optimizer.py).
"""

from collections.abc import Sequence

from projector.identity import remembered
from projector.job import ZERO_STAGES, Dialect, Sharding, TrainingJob
from projector.memory.parameters import trained_parameters
from projector.memory.stages import ChunkOperations, Run
from projector.operations import Operations
from projector.parallelism import Layout
from projector.projection import MemoryComponent, MemoryLevel

GATHERED, UNREDUCED = "gathered weights", "gradients before reduction"
"""Components of what is whole for a moment."""
UNSUMMED = "gradients that ranks have not summed"
"""Component of gradients that stay whole until the last micro batch of an iteration."""
GATHERED_LAYERS = 2
"""Layers whole at a time: the running one and the one gathered ahead."""
REDUCE_INPUTS = 2
"""Inputs of TorchTitan's reduce-scatter that are alive at a time."""


def gathered_components(
    chunks: Sequence[ChunkOperations], job: TrainingJob, layout: Layout
) -> tuple[MemoryComponent, ...]:
    """Whole weights and gradients at the peak; none of a moment unless weights are sharded."""
    local = local_gradients(chunks, job, layout)
    sizes = {UNSUMMED: local}
    if layout.sharding is Sharding.PARAMETERS:
        sizes |= _passing(chunks, job, summed=local == 0)
    return tuple(
        MemoryComponent(name=name, level=MemoryLevel.ALLOCATED, size_bytes=size) for name, size in sizes.items() if size
    )


def gradients_appear(job: TrainingJob, layout: Layout) -> bool:
    """Whether sharded gradients exist from backward to the optimizer step only."""
    return job.software.gradients_given_up and layout.sharding is Sharding.PARAMETERS


def local_gradients(chunks: Sequence[ChunkOperations], job: TrainingJob, layout: Layout) -> int:
    """Bytes of gradients that wait, whole, for the last micro batch of an iteration."""
    if not job.precision.local_gradient_bytes:
        return 0
    divided = ZERO_STAGES.index(layout.sharding) >= ZERO_STAGES.index(Sharding.GRADIENTS)
    waits = layout.micro_batches > 1 or not divided
    return job.precision.local_gradient_bytes * trained_parameters(chunks).total if waits else 0


def _passing(chunks: Sequence[ChunkOperations], job: TrainingJob, *, summed: bool) -> dict[str, int]:
    """Bytes of what is whole for a moment; without `summed` the output layer's gradient waits among all others."""
    root, layer = group_elements(chunks)
    layers = _layers(chunks)
    all_layers = sum(count * elements(part) for count, part in layers)
    whole = GATHERED_LAYERS * layer if job.parallelism.reshard_after_forward else all_layers
    head_gradient = sum(elements(chunk.output, trained=True) for chunk in chunks) if summed else 0
    layer_gradient = max((elements(part, trained=True) for _, part in layers), default=0)
    titan = job.software.dialect is Dialect.TORCHTITAN
    gathered = job.precision.gathered_bytes
    reduced = REDUCE_INPUTS * job.precision.reduced_bytes if titan else gathered
    return {
        GATHERED: gathered * (root + whole),
        UNREDUCED: gathered * head_gradient + reduced * layer_gradient,
    }


def group_elements(chunks: Sequence[ChunkOperations]) -> tuple[int, int]:
    """Elements of the root group's weights, and of those of the largest layer."""
    root = sum(elements(chunk.output) + elements(chunk.embedding) for chunk in chunks)
    return root, max((elements(part) for _, part in _layers(chunks)), default=0)


def _layers(chunks: Sequence[ChunkOperations]) -> list[Run]:
    return [
        run for chunk in chunks for run in (*chunk.layer_runs, *((1, prediction) for prediction in chunk.predictions))
    ]


@remembered
def elements(part: Operations, *, trained: bool = False) -> int:
    """Elements of the part's weights, or of those that are trained."""
    weights = [weight for operation in part for weight in operation.weights if not weight.shared]
    return sum(weight.elements for weight in weights if not (trained and weight.frozen))


@remembered
def shard_elements(part: Operations, *, ranks: int, expert_ranks: int) -> float:
    """Elements of the part's trained weights on a device, each divided over the ranks that share a copy."""
    weights = [weight for operation in part for weight in operation.weights if weight.trainable and not weight.shared]
    trained = [weight for weight in weights if not weight.frozen]
    return sum(weight.elements / (expert_ranks if weight.expert else ranks) for weight in trained)
