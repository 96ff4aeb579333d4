"""What stays on a device between iterations: weights, gradients, optimizer state, and what the framework caches.

Megatron's distributed optimizer keeps weights and main gradients whole and divides the rest over the ranks that hold
the same weights (Megatron-LM distrib_optimizer.py): 2 + 4 + 12 / D bytes a parameter with the defaults of `Precision`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from projector.catalog import Device
from projector.job import Dialect, PositionKind, Precision, Sharding, TrainingJob
from projector.layers import ADAPTERS
from projector.layers.shapes import Shapes
from projector.memory.parameters import stage_parameters, trained_parameters
from projector.memory.stages import ChunkOperations
from projector.operations import Held, Weight
from projector.parallelism import Layout
from projector.projection import MemoryComponent, MemoryLevel

LOW_PRECISION_COPIES = 2
"""Row-wise and column-wise copy that Transformer Engine keeps of every weight of a low-precision linear layer."""
GROUPED_WORKSPACES = 4
"""More workspaces of the same size that Transformer Engine's grouped linear layers open, one per stream."""
BLAS_THREADS = 2
"""torch keeps a BLAS workspace for the forward thread and one for the autograd thread."""
ROTARY_TABLE_BYTES = 4
"""Megatron's rotary table is fp32, sequence x rotary width."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageWeights:
    """Weights of a device's stage, counted."""

    held: Held
    """Parameters inside and outside experts."""
    trained: Held
    """Of them, those with gradient and optimizer state."""
    low_precision_elements: int
    """Of them, in linear layers that run in low precision."""
    dummy_elements: int
    """Elements of one tensor per distinct shape of a linear layer's trained weight."""
    has_output: bool
    """The output layer sits on it."""


def stage_weights(stage: Sequence[ChunkOperations]) -> StageWeights:
    """Count the weights of a stage."""
    low = 0
    shapes: set[tuple[int, ...]] = set()
    for weight, component in _owned(stage):
        if weight.trainable and len(weight.shape) > 1 and component not in ("embedding", "router", ADAPTERS):
            if not weight.frozen:
                shapes.add(weight.shape)
            low += weight.elements if component != "output_layer" else 0
    return StageWeights(
        held=stage_parameters(stage),
        trained=trained_parameters(stage),
        low_precision_elements=low,
        dummy_elements=sum(shape[0] * shape[1] for shape in shapes),
        has_output=any(chunk.output for chunk in stage),
    )


def _owned(stage: Sequence[ChunkOperations]) -> Iterable[tuple[Weight, str]]:
    for chunk in stage:
        for part in chunk.parts:
            for operation in part:
                for weight in operation.weights:
                    if not weight.shared:
                        yield weight, operation.component


def persistent_components(
    stage: StageWeights, job: TrainingJob, layout: Layout, shapes: Shapes, device: Device
) -> tuple[MemoryComponent, ...]:
    """Everything that a device of a stage holds all the time."""
    precision = job.precision
    resident = precision.optimizer_bytes * (1 - job.optimizer.offload_fraction)
    here = not (job.optimizer.offload_shards and layout.sharding is Sharding.PARAMETERS)
    parts = {
        "weights": here * _sharded(stage.held, layout, _weight_bytes(precision), Sharding.PARAMETERS),
        "low-precision weight copies": _low_precision_copies(stage, layout, precision),
        "gradients": here * _sharded(stage.trained, layout, precision.gradient_bytes, Sharding.GRADIENTS),
        "optimizer state": _sharded(stage.trained, layout, resident, Sharding.OPTIMIZER),
        "weight-gradient placeholders": _placeholders(stage, job, device),
        "workspaces": _workspaces(stage, job, device),
        "gather buffer": _gather_buffer(stage, shapes),
        "reduction buckets": job.software.reduction_bucket_bytes,
        "rotary table": _rotary_table(job),
    }
    return tuple(
        MemoryComponent(name=name, level=MemoryLevel.PERSISTENT, size_bytes=round(size))
        for name, size in parts.items()
        if size
    )


def _weight_bytes(precision: Precision) -> float:
    """Bytes of the weight itself; primary low-precision weights replace it by their copies."""
    return 0 if precision.low_precision_weights else precision.weight_bytes


def _sharded(held: Held, layout: Layout, each: float, stage_of: Sharding) -> float:
    """Bytes of something of `each` bytes a parameter that is divided from ZeRO stage `stage_of` on."""
    order = list(Sharding)
    if order.index(layout.sharding) < order.index(stage_of):
        return each * held.total
    return each * (held.dense / layout.shard + held.expert / layout.expert_shard)


def _low_precision_copies(stage: StageWeights, layout: Layout, precision: Precision) -> float:
    """Quantised copies of weights, row- and column-wise; as primary weights they come beside 16-bit ones of others."""
    if precision.low_precision is None:
        return 0
    if layout.sharding is Sharding.PARAMETERS:
        return 0
    copies = LOW_PRECISION_COPIES * precision.low_precision.element_bytes * stage.low_precision_elements
    if not precision.low_precision_weights:
        return copies
    return copies + precision.weight_bytes * (stage.held.total - stage.low_precision_elements)


def _gather_buffer(stage: StageWeights, shapes: Shapes) -> int:
    """Megatron's output layer gathers its input into a buffer that it keeps, unless its weight is frozen.

    Megatron-LM tensor_parallel/layers.py: `linear_with_frozen_weight` gathers into a tensor of its own.
    """
    gathers = shapes.sequence_parallel and stage.has_output and shapes.adapters is None
    return shapes.gathered_bytes if gathers else 0


def _placeholders(stage: StageWeights, job: TrainingJob, device: Device) -> int:
    """Transformer Engine (2.3 on) returns one cached bf16 tensor per weight shape as the gradient that autograd sees.

    The real gradient has already been added to the main gradient by the fused weight-gradient GEMM.
    """
    fused = job.software.gradient_accumulation_fusion and job.software.dialect in (
        Dialect.MEGATRON_TE,
        Dialect.PRIMUS_TURBO,
    )
    return job.precision.weight_bytes * stage.dummy_elements if fused and device.vendor == "NVIDIA" else 0


def _workspaces(stage: StageWeights, job: TrainingJob, device: Device) -> int:
    """BLAS workspaces of Transformer Engine, and of torch on ranks that call its matmul (the output layer)."""
    size = 0
    if job.software.dialect in (Dialect.MEGATRON_TE, Dialect.PRIMUS_TURBO):
        grouped = GROUPED_WORKSPACES if stage.held.expert and device.vendor == "NVIDIA" else 0
        size += (device.framework_workspace_bytes or 0) * (1 + grouped)
    if stage.has_output or job.software.dialect is not Dialect.MEGATRON_TE:
        size += (device.blas_workspace_bytes or 0) * BLAS_THREADS
    return size


def _rotary_table(job: TrainingJob) -> int:
    mixers = [layer.mixer for layer in job.model.layers[:1]]
    width = max((getattr(mixer, "head_dim", getattr(mixer, "query_key_rope_dim", 0)) for mixer in mixers), default=0)
    if job.model.position is not PositionKind.ROTARY:
        return 0
    return ROTARY_TABLE_BYTES * job.batch.sequence_length * width
