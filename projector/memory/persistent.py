"""What stays on a device between iterations: weights, gradients, optimizer state, and what the framework caches.

Megatron's distributed optimizer keeps weights and main gradients whole and divides the rest over the ranks that hold
the same weights (Megatron-LM distrib_optimizer.py): 2 + 4 + 12 / D bytes a parameter with the defaults of `Precision`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from projector.catalog import Device
from projector.identity import remembered
from projector.job import Dialect, ExpertBackend, LowPrecision, PositionKind, Precision, Sharding, TrainingJob
from projector.layers import ADAPTERS
from projector.layers.dispatch import gather_buffer_bytes
from projector.layers.shapes import Shapes
from projector.memory.gathered import gradients_appear
from projector.memory.optimizer_state import State, divided
from projector.memory.parameters import stage_parameters, trained_parameters
from projector.memory.stages import ChunkOperations, distinct_parts
from projector.operations import Held, Operations
from projector.parallelism import Layout
from projector.projection import MemoryComponent, MemoryLevel

WEIGHTS, GRADIENTS, STATE = "weights", "gradients", "optimizer state"
"""Components that grow with the parameters."""
PLACEHOLDERS = "weight-gradient placeholders"
"""Component of what stands in for weight gradients."""
ANY_ORDER_FP8 = ("sm100", "sm103")
"""GPUs whose GEMMs take fp8 operands in any order, so that one copy of a tensor-wise scaled weight serves all passes
(TransformerEngine pytorch/utils.py, `is_non_tn_fp8_gemm_supported`)."""
GROUPED_WORKSPACES = 4
"""More workspaces of the same size that Transformer Engine's grouped linear layers open, one per stream."""
BLAS_THREADS = 2
"""torch keeps a BLAS workspace for the forward thread and one for the autograd thread."""
REPEATABLE_BLAS_BYTES = 8 * 4096 * 1024
"""The largest workspace with which cuBLAS repeats bit by bit, CUBLAS_WORKSPACE_CONFIG=:4096:8, which torch asks for in
deterministic mode (NVIDIA cuBLAS documentation, "Results reproducibility"; Megatron-LM d98e8a64's tests set it)."""
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
    trained_shapes: tuple[tuple[int, ...], ...]
    """Distinct shapes of linear layers' trained weights, in order."""
    has_output: bool
    """The output layer sits on it."""


def stage_weights(stage: Sequence[ChunkOperations]) -> StageWeights:
    """Count the weights of a stage."""
    low = 0
    shapes: dict[tuple[int, ...], None] = {}
    for count, part in distinct_parts(stage):
        here, trained_shapes = _linear_weights(part)
        low += count * here
        shapes.update(trained_shapes)
    return StageWeights(
        held=stage_parameters(stage),
        trained=trained_parameters(stage),
        low_precision_elements=low,
        trained_shapes=tuple(shapes),
        has_output=any(chunk.output for chunk in stage),
    )


@remembered
def _linear_weights(part: Operations) -> tuple[int, dict[tuple[int, ...], None]]:
    """Elements of a part's linear layers that may run in low precision, and the shapes of those that are trained."""
    low = 0
    shapes: dict[tuple[int, ...], None] = {}
    for operation in part:
        if operation.component in ("embedding", "router", ADAPTERS):
            continue
        for weight in operation.weights:
            if weight.trainable and len(weight.shape) > 1 and not weight.shared:
                if not weight.frozen:
                    shapes[weight.shape] = None
                low += weight.elements if operation.component != "output_layer" else 0
    return low, shapes


def persistent_components(  # noqa: PLR0913 - what is held, by whom, and on what
    stage: StageWeights, job: TrainingJob, layout: Layout, shapes: Shapes, device: Device, *, state: State
) -> tuple[MemoryComponent, ...]:
    """Everything that a device of a stage holds all the time."""
    precision = job.precision
    offload, sharding = job.optimizer, layout.sharding
    here = not (offload.offload_shards and sharding is Sharding.PARAMETERS)
    # What appears in backward is not there between iterations.
    lasting = not gradients_appear(job, layout)
    gradients_here = (
        lasting and here and not (offload.offload_gradients and sharding in (Sharding.GRADIENTS, Sharding.PARAMETERS))
    )
    parts = {
        WEIGHTS: here * _weight_bytes(precision) * divided(stage.held, layout, Sharding.PARAMETERS),
        "low-precision weight copies": _low_precision_copies(stage, layout, precision, device),
        GRADIENTS: gradients_here * precision.gradient_bytes * divided(stage.trained, layout, Sharding.GRADIENTS),
        STATE: state.size_bytes,
        PLACEHOLDERS: sum(placeholders(stage, job)),
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


def _low_precision_copies(stage: StageWeights, layout: Layout, precision: Precision, device: Device) -> float:
    """Quantised copies of weights, row- and column-wise; as primary weights they come beside 16-bit ones of others."""
    if precision.low_precision is None:
        return 0
    if layout.sharding is Sharding.PARAMETERS:
        return _low_precision_shards(stage, layout, precision)
    any_order = precision.low_precision is LowPrecision.FP8 and device.architecture in ANY_ORDER_FP8
    orders = 2 if precision.weight_transposes and not any_order else 1
    copies = orders * precision.low_precision.element_bytes * stage.low_precision_elements
    if not precision.low_precision_weights:
        return copies
    return copies + precision.weight_bytes * (stage.held.total - stage.low_precision_elements)


def _low_precision_shards(stage: StageWeights, layout: Layout, precision: Precision) -> float:
    """Shards of primary low-precision weights, and the 16-bit ones of other weights; copies are made of whole weights.

    Megatron-LM d98e8a64 megatron/core/distributed/fsdp: `fp8_param_gather` shards fp8 weights, of which each rank makes
    the other order when it has gathered them.
    """
    if not precision.low_precision_weights or precision.low_precision is None:
        return 0
    low = stage.low_precision_elements / max(1, stage.held.total)
    each = precision.low_precision.element_bytes * low + precision.weight_bytes * (1 - low)
    return each * divided(stage.held, layout, Sharding.PARAMETERS)


def _gather_buffer(stage: StageWeights, shapes: Shapes) -> int:
    """Megatron's output layer gathers its input into a buffer that it keeps, unless its weight is frozen.

    The all-gather dispatcher of experts fills the same buffer.

    Megatron-LM tensor_parallel/layers.py: `linear_with_frozen_weight` gathers into a tensor of its own.
    """
    megatron = shapes.software.dialect is not Dialect.TORCHTITAN
    gathers = megatron and shapes.sequence_parallel and stage.has_output and shapes.adapters is None
    head = shapes.gathered_bytes if gathers else 0
    return max(head, gather_buffer_bytes(shapes) if stage.held.expert else 0)


def placeholders(stage: StageWeights, job: TrainingJob) -> tuple[int, ...]:
    """Bytes of each placeholder of a weight gradient, in the order of the weights.

    Transformer Engine (2.3 on) returns one cached bf16 tensor per weight shape as the gradient that autograd sees. The
    real gradient has already been added to the main gradient by the fused weight-gradient GEMM. Where that is asked for
    it is so on AMD too (AMD-AGI/Primus, raw log of 8 DeepSeek-V4 layers: 1.3 GiB beside weights and states).
    """
    software = job.software
    fused = software.gradient_accumulation_fusion and software.weight_gradient_placeholders
    fused = fused and software.dialect in (Dialect.MEGATRON_TE, Dialect.PRIMUS_TURBO)
    if not fused:
        return ()
    return tuple(job.precision.weight_bytes * shape[0] * shape[1] for shape in stage.trained_shapes)


def _workspaces(stage: StageWeights, job: TrainingJob, device: Device) -> int:
    """BLAS workspaces of Transformer Engine, and of torch on ranks that call its matmul (the output layer)."""
    size = 0
    if job.software.dialect in (Dialect.MEGATRON_TE, Dialect.PRIMUS_TURBO):
        together = stage.held.expert and job.software.expert_backend is not ExpertBackend.SEQUENTIAL
        grouped = GROUPED_WORKSPACES if together and device.vendor == "NVIDIA" else 0
        size += (device.framework_workspace_bytes or 0) * (1 + grouped)
    if stage.has_output or job.software.dialect is not Dialect.MEGATRON_TE:
        size += torch_blas_bytes(job, device) * BLAS_THREADS
    return size


def torch_blas_bytes(job: TrainingJob, device: Device) -> int:
    """The workspace that torch's matmul opens on a stream."""
    repeats = job.software.deterministic and device.vendor == "NVIDIA"
    return REPEATABLE_BLAS_BYTES if repeats else device.blas_workspace_bytes or 0


def _rotary_table(job: TrainingJob) -> int:
    mixers = [layer.mixer for layer in job.model.layers[:1]]
    width = max((getattr(mixer, "head_dim", getattr(mixer, "query_key_rope_dim", 0)) for mixer in mixers), default=0)
    if job.model.position is not PositionKind.ROTARY:
        return 0
    return round(ROTARY_TABLE_BYTES * job.batch.sequence_length * width * job.model.rotary_share)
