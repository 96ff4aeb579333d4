"""The answer: memory and speed of a job on a target, as values. `to_dict` gives the published JSON shape."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import accumulate
from typing import Any

from projector.job import Target
from projector.provenance import Assumption, ConfigValue, Unmodelled

SCHEMA_VERSION = 1
"""Version of the JSON shape; changes when a field changes its meaning or goes away."""


TIME = "the time of an iteration"
"""What an answer with memory alone calls a time that nobody can tell on the device, under `unmodelled`."""


class Verdict(StrEnum):
    """Whether the job fits in every device's memory."""

    FITS = "Fits"
    AT_RISK = "AtRisk"
    """The interval contains the capacity."""
    DOES_NOT_FIT = "DoesNotFit"
    UNKNOWN = "Unknown"
    """Something that decides was not understood."""


class Confidence(StrEnum):
    """How far the figures can be trusted."""

    HIGH = "High"
    MEDIUM = "Medium"
    LOW = "Low"


class MemoryLevel(StrEnum):
    """The four levels of device memory; each holds the ones before it."""

    PERSISTENT = "persistent"
    """Weights, gradients, optimizer state."""
    ALLOCATED = "allocated"
    """Adds saved activations and transients at the peak."""
    RESERVED = "reserved"
    """Adds what the caching allocator holds back."""
    DEVICE = "device"
    """Adds runtime context, communicators and dispatch buffers."""


SAVED = "saved activations: "
"""What the names of parts begin with that are activations kept for backward."""
_ORDER = {level: place for place, level in enumerate(MemoryLevel)}


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryComponent:
    """One part of a stage's memory. Parts add up: those up to a level sum to that level."""

    name: str
    """Such as `weights`, `gradients`, `optimizer state`, `saved activations: mlp`, `communicators`."""
    level: MemoryLevel
    """The level at which it is added."""
    size_bytes: int
    """Bytes per device."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Uncertainty:
    """One reason why memory may differ from what is expected."""

    name: str
    """Such as `routing`, `what is counted`, `allocator`, `outside the allocator`."""
    level: MemoryLevel
    """The level at which it enters; it holds for those above too."""
    below_bytes: int
    """By how much memory may be less."""
    above_bytes: int
    """By how much memory may be more."""


@dataclass(frozen=True, kw_only=True)
class StageMemory:
    """Memory of the devices of one pipeline stage."""

    # Without slots, so that the sums are made once.

    stage: int
    """Pipeline rank, from 0."""
    layers: tuple[int, ...]
    """Global indices of its decoder layers, all model chunks together."""
    parameters: int
    """Parameters per device before data-parallel sharding, padding included."""
    components: tuple[MemoryComponent, ...]
    """The parts, in order of level."""
    device_bytes_lower: int
    """Lower end of the interval of device memory."""
    device_bytes_upper: int
    """Upper end of the interval of device memory."""
    peak_cause: str
    """What is going on at the peak, in words."""
    first_iteration_allocated_bytes: int | None = None
    """Peak allocated of the first iteration, which runs without the optimizer state that its step makes; the figures at
    all levels are those from the second iteration on. None where nobody projected it."""
    first_iteration_reserved_bytes: int | None = None
    """What the caching allocator holds when the first iteration is over; None where its allocations were
    not replayed."""
    uncertainties: tuple[Uncertainty, ...] = ()
    """What makes up the interval, in order of level."""
    routing_imbalance: tuple[float, float, float] | None = None
    """Rows that the experts of the busiest device receive over the balanced share: least, expected and most; None where
    routing decides nothing."""
    passes_in_flight: tuple[int, ...] = ()
    """Passes of micro batches through each of its model chunks whose activations are alive at the peak, the running one
    included; none where the optimizer step is the peak."""
    layers_in_flight: int = 0
    """The same in decoder layers: passes x layers of the chunk, over all chunks."""

    def level_bytes(self, level: MemoryLevel) -> int:
        """Bytes at a level: the sum of the parts up to it."""
        return self._levels[level]

    @cached_property
    def _levels(self) -> Mapping[MemoryLevel, int]:
        added = dict.fromkeys(_ORDER, 0)
        for part in self.components:
            added[part.level] += part.size_bytes
        return dict(zip(_ORDER, accumulate(added.values()), strict=True))

    def interval_bytes(self, level: MemoryLevel) -> tuple[int, int]:
        """Lower and upper end at a level, from the uncertainties that have entered up to it."""
        if level is MemoryLevel.DEVICE:
            return self.device_bytes_lower, self.device_bytes_upper
        order = list(MemoryLevel)
        entered = [each for each in self.uncertainties if order.index(each.level) <= order.index(level)]
        expected = self.level_bytes(level)
        below, above = sum(each.below_bytes for each in entered), sum(each.above_bytes for each in entered)
        return max(0, expected - below), expected + above

    @property
    def device_bytes(self) -> int:
        """Expected bytes as the device sees them."""
        return self.level_bytes(MemoryLevel.DEVICE)

    @property
    def first_step_effect_bytes(self) -> int:
        """By how much the peak rises after the first iteration."""
        first = self.first_iteration_allocated_bytes
        return 0 if first is None else self.level_bytes(MemoryLevel.ALLOCATED) - first


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedActivations:
    """Activations of one component."""

    name: str
    """Component, such as `self_attention`; `recomputed layers` is the input from which a layer runs again."""
    size_bytes: int
    """Bytes kept on one device from forward until backward."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerActivations:
    """What one micro batch keeps for backward in one layer of a kind."""

    name: str
    """Kind: embedding, dense_layer, moe_layer, multi_token_prediction or output."""
    count: int
    """Layers of this kind in the whole model."""
    recompute: str
    """How they are recomputed (`RecomputeGranularity`)."""
    components: tuple[SavedActivations, ...]
    """The parts."""

    @property
    def size_bytes(self) -> int:
        """All of them."""
        return sum(part.size_bytes for part in self.components)


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryProjection:
    """The memory half of the answer."""

    verdict: Verdict
    """Against usable capacity, over all stages."""
    confidence: Confidence
    """How far the figures can be trusted."""
    device_capacity_bytes: int
    """What the runtime reports as total memory."""
    stages: tuple[StageMemory, ...]
    """One per pipeline stage, in order."""
    confidence_reasons: tuple[str, ...] = ()
    """Why the confidence is what it is."""
    activations: tuple[LayerActivations, ...] = ()
    """What one micro batch keeps, by kind of layer."""

    @property
    def worst(self) -> StageMemory:
        """The stage whose upper end is largest; the first of equals."""
        return max(self.stages, key=lambda stage: (stage.device_bytes_upper, -stage.stage))


@dataclass(frozen=True, kw_only=True, slots=True)
class WaterfallStep:
    """One bar of the waterfall; the bars add up to the iteration time."""

    name: str
    """Such as `compute`, `pipeline bubble`, `exposed tensor-parallel communication`, `optimizer step`."""
    seconds: float
    """Its share of the iteration."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommunicationTotal:
    """All calls of one collective over one group on the slowest stage's device, per iteration."""

    group: str
    """Process group."""
    collective: str
    """Kind of collective."""
    message_bytes: int
    """Bytes of all messages."""
    seconds: float
    """Time if nothing overlapped."""
    exposed_seconds: float
    """Time that lengthens the iteration."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageTime:
    """What one pipeline stage does during an iteration's pipeline phase."""

    stage: int
    """Pipeline rank."""
    busy_seconds: float
    """Time in forward and backward."""
    bubble_seconds: float
    """Time waiting."""
    peak_in_flight: float
    """Most micro batches (of whole stages, chunks counted by their share) whose activations are alive at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleResult:
    """A schedule, as it was projected."""

    name: str
    """Its name as in `--pipeline-schedule-algorithm`."""
    stages: tuple[StageTime, ...]
    """Per pipeline stage."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedSchedule:
    """One line of a comparison of schedules."""

    name: str
    """Schedule."""
    iteration_seconds: float
    """Iteration time under it."""
    bubble_ratio: float
    """Share of the pipeline phase spent waiting, on average over stages, 0-1."""
    peak_allocated_bytes: int
    """Peak allocated of the worst stage under it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerTime:
    """Forward and backward time of one kind of layer for one micro batch on one device."""

    name: str
    """Such as `embedding`, `dense layer`, `moe layer`, `output and loss`."""
    count: int
    """Layers of this kind in the whole model."""
    forward_seconds: float
    """Forward pass, exposed communication included."""
    backward_seconds: float
    """Backward pass, recomputation and exposed communication included."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PerformanceProjection:
    """The time half of the answer."""

    iteration_seconds: float
    """One optimizer step."""
    tokens_per_second_per_device: float
    """Global batch x sequence length over iteration time and devices."""
    tflops_per_device: float
    """Model FLOPs (recomputation not counted) per second and device, in 1e12."""
    mfu: float
    """`tflops_per_device` over `mfu_base_tflops`, 0-1."""
    mfu_base_tflops: float
    """Dense peak of the device in the job's GEMM precision, in 1e12 FLOP/s."""
    bubble_ratio: float
    """Share of the pipeline phase spent waiting, on average over stages, 0-1."""
    waterfall: tuple[WaterfallStep, ...]
    """Parts that add up to `iteration_seconds`."""
    communication: tuple[CommunicationTotal, ...]
    """By group and collective."""
    schedule: ScheduleResult
    """The schedule that was projected."""
    compared_schedules: tuple[ComparedSchedule, ...] = ()
    """Filled when schedules were compared."""
    layer_times: tuple[LayerTime, ...] = ()
    """By kind of layer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComponentParameters:
    """A row of the component tree."""

    name: str
    """Path with dots, such as `moe_layer.experts`."""
    parameters: int
    """Parameters of the whole model in it, without padding."""
    parameters_per_device_max: int
    """Parameters of it on the device that holds most of it, padding included."""
    activation_bytes: int
    """Activations kept for backward on one device for one micro batch, one layer (without recomputation)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageComponent:
    """Parameters of a component on one device of a stage."""

    name: str
    """Component, such as `self_attention`."""
    parameters: int
    """Before data-parallel sharding, padding included."""


def component_tree(stage: StageMemory, parameters: Sequence[StageComponent]) -> tuple[tuple[str, int, int], ...]:
    """Name, parameters and saved bytes at the peak of every component of a stage.

    The parameters add up to the stage's, the bytes to those of its parts called `saved activations`.
    """
    counts = {each.name: each.parameters for each in parameters}
    saved: dict[str, int] = {}
    for part in stage.components:
        if part.name.startswith(SAVED):
            name = part.name.removeprefix(SAVED)
            saved[name] = saved.get(name, 0) + part.size_bytes
    return tuple((name, counts.get(name, 0), saved.get(name, 0)) for name in (counts | saved))


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterCounts:
    """Parameters of the model, exactly."""

    total: int
    """As the published model counts them: no padding, no multi-token prediction."""
    vocabulary_padding: int
    """Added by padding the vocabulary."""
    multi_token_prediction: int
    """Added by multi-token-prediction layers."""
    active: int
    """Parameters a token passes (top-k experts; token table not counted, output layer counted)."""
    per_device_max: int
    """Of the stage with most parameters, per device before data-parallel sharding, padding included."""
    components: tuple[ComponentParameters, ...]
    """The component tree."""
    stages: tuple[tuple[StageComponent, ...], ...] = ()
    """The same for one device of each pipeline stage; they add up to the stage's parameters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedLayout:
    """The layout with every degree resolved, for the report."""

    tensor: int
    """Tensor parallel."""
    pipeline: int
    """Pipeline parallel."""
    virtual_pipeline: int
    """Model chunks per stage."""
    expert: int
    """Expert parallel."""
    expert_tensor: int
    """Tensor parallel inside experts."""
    context: int
    """Context parallel."""
    data: int
    """Data parallel: devices / (tensor x pipeline x context)."""
    sequence_parallel: bool
    """Norms divided along the sequence."""
    shard: str
    """What data parallelism divides (`Sharding`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Suggestion:
    """A change, projected."""

    change: str
    """What to change, in the dialect of the file."""
    memory_bytes: int
    """Device memory of the worst stage after it."""
    iteration_seconds: float | None
    """Iteration time after it."""
    verdict: Verdict
    """Verdict after it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Projection:
    """The whole answer."""

    model: str
    """Name of the model."""
    format: str
    """Dialect in which the configuration was read, such as `primus`."""
    target: Target
    """Where it would run."""
    layout: ResolvedLayout
    """The resolved layout."""
    micro_batch: int
    """Sequences per micro batch."""
    global_batch: int
    """Sequences per iteration, after scaling."""
    sequence_length: int
    """Tokens per sequence."""
    micro_batches: int
    """Micro batches per iteration and data-parallel rank."""
    parameters: ParameterCounts
    """Exact counts."""
    values: tuple[ConfigValue, ...]
    """Effective configuration, sorted by key."""
    ignored: tuple[str, ...]
    """Keys that do not influence the answer."""
    assumed: tuple[Assumption, ...]
    """What nothing stated."""
    unmodelled: tuple[Unmodelled, ...]
    """What was not understood."""
    memory: MemoryProjection | None
    """None when only performance was asked for."""
    performance: PerformanceProjection | None
    """None when only memory was asked for."""
    suggestions: tuple[Suggestion, ...] = ()
    """Changes that would fit."""

    def to_dict(self) -> dict[str, Any]:
        """The published JSON shape (`projector/projection.schema.json`): ratios 0-1, times ms, sizes bytes."""
        from projector.document import document  # noqa: PLC0415 - only those who want the document load it

        return document(self)
