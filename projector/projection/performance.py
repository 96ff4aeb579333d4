"""The time half of the answer."""

from dataclasses import dataclass
from typing import NamedTuple

from projector.projection.memory import Confidence
from projector.projection.pipeline import PipelinePhase
from projector.projection.scaling import ScalingTable
from projector.provenance import Assumption

TIME = "the time of an iteration"
"""What an answer with memory alone calls a time that nobody can tell on the device, under `unmodelled`."""


class WaterfallStep(NamedTuple):
    """One bar of the waterfall; the bars add up to the iteration time."""

    name: str
    """Such as `compute`, `pipeline bubble`, `exposed tensor-parallel communication`, `optimizer step`."""
    seconds: float
    """Its share of the iteration."""


class CommunicationTotal(NamedTuple):
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
    repeated_seconds: float = 0.0
    """What of that belongs to recomputation in backward."""
    purpose: str = ""
    """What the calls are for, such as `gradients`."""

    @property
    def hidden_seconds(self) -> float:
        """Time that work beside it hides."""
        return max(0.0, self.seconds - self.exposed_seconds)


class StageTime(NamedTuple):
    """What one pipeline stage does during an iteration's pipeline phase."""

    stage: int
    """Pipeline rank."""
    busy_seconds: float
    """Time in forward and backward."""
    bubble_seconds: float
    """Time waiting."""
    peak_in_flight: float
    """Most micro batches (of whole stages, chunks counted by their share) whose activations are alive at once."""
    sending_seconds: float = 0.0
    """Time in sends that occupy the stage."""
    peak_activation_bytes: float | None = None
    """Most bytes that these micro batches keep, where the phase says what one of them keeps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleResult:
    """A schedule, as it was projected."""

    name: str
    """Its name as in `--pipeline-schedule-algorithm`."""
    stages: tuple[StageTime, ...]
    """Per pipeline stage."""
    phase: PipelinePhase
    """What it was computed from."""

    @property
    def seconds(self) -> float:
        """Length of the pipeline phase, all runs together."""
        first = self.stages[0]
        return first.busy_seconds + first.sending_seconds + first.bubble_seconds

    @property
    def bubble_ratio(self) -> float:
        """Share of it spent waiting, on average over stages, 0-1."""
        return sum(stage.bubble_seconds for stage in self.stages) / (len(self.stages) * self.seconds)

    @property
    def peak_in_flight(self) -> float:
        """Most micro batches whose activations a stage keeps at once, over all stages."""
        return max(stage.peak_in_flight for stage in self.stages)


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedSchedule:
    """One line of a comparison of schedules."""

    result: ScheduleResult
    """The schedule, with what every stage does under it."""
    iteration_seconds: float
    """Iteration time under it."""
    peak_allocated_bytes: int
    """Peak allocated of the worst stage under it."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.result.name

    @property
    def bubble_ratio(self) -> float:
        """Share of the pipeline phase spent waiting, on average over stages, 0-1."""
        return self.result.bubble_ratio


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
class ChunkPart:
    """One micro batch through all layers of a kind in a model chunk, or through one of its ends."""

    name: str
    """Such as `embedding`, `dense layer`, `multi-token prediction`, `output and loss`, `host-bound launches`."""
    count: int
    """How many of them."""
    forward_seconds: float
    """Forward pass."""
    backward_input_seconds: float
    """Backward pass towards the input, recomputation included."""
    backward_weight_seconds: float
    """Backward pass towards the weights."""

    @property
    def seconds(self) -> float:
        """All passes."""
        return self.forward_seconds + self.backward_input_seconds + self.backward_weight_seconds


class ChunkTime(NamedTuple):
    """One micro batch through a model chunk."""

    stage: int
    """Pipeline rank."""
    chunk: int
    """Number of the model chunk on its rank, from 0."""
    layer_ids: tuple[int, ...]
    """Its decoder layers."""
    parts: tuple[ChunkPart, ...]
    """What its passes are made of; they add up to them."""

    @property
    def forward_seconds(self) -> float:
        """Forward pass."""
        return sum(part.forward_seconds for part in self.parts)

    @property
    def backward_input_seconds(self) -> float:
        """Backward pass towards the input, recomputation included."""
        return sum(part.backward_input_seconds for part in self.parts)

    @property
    def backward_weight_seconds(self) -> float:
        """Backward pass towards the weights."""
        return sum(part.backward_weight_seconds for part in self.parts)


class TimeUncertainty(NamedTuple):
    """One reason why an iteration may take less or more."""

    name: str
    """What is not known exactly."""
    below_seconds: float
    """How much less it may be."""
    above_seconds: float
    """How much more it may be."""


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
    chunks: tuple[ChunkTime, ...] = ()
    """By pipeline stage and model chunk."""
    measured: tuple[Assumption, ...] = ()
    """What a calibration decided: by kind of work, how many shapes it had."""
    scaling: tuple[ScalingTable, ...] = ()
    """The job on clusters of other sizes, where they were asked for."""
    uncertainties: tuple[TimeUncertainty, ...] = ()
    """What the interval is made of; they add up to its ends."""
    modes: tuple[str, ...] = ()
    """Modes of the job that decide which measured runs speak for it."""
    confidence: Confidence = Confidence.LOW
    """How far the figures can be trusted."""
    confidence_reasons: tuple[str, ...] = ()
    """Why."""
    warnings: tuple[str, ...] = ()
    """What a person should know before running the job so."""

    @property
    def bubble_ratio(self) -> float:
        """Share of the pipeline phase spent waiting, on average over stages, 0-1."""
        return self.schedule.bubble_ratio

    @property
    def iteration_seconds_lower(self) -> float:
        """Lower end of the interval; an iteration takes at least what nothing of the uncertain can spare."""
        return max(0.0, self.iteration_seconds - sum(each.below_seconds for each in self.uncertainties))

    @property
    def iteration_seconds_upper(self) -> float:
        """Upper end of the interval."""
        return self.iteration_seconds + sum(each.above_seconds for each in self.uncertainties)

    @property
    def reach_percent(self) -> tuple[float, float]:
        """How far the interval of iteration time reaches below and above what is expected, in percent of it."""
        expected = self.iteration_seconds
        below, above = expected - self.iteration_seconds_lower, self.iteration_seconds_upper - expected
        return 100 * below / expected, 100 * above / expected

    @property
    def half_width_percent(self) -> float:
        """Half the width of the interval of iteration time, as a share of what is expected."""
        return 50 * (self.iteration_seconds_upper - self.iteration_seconds_lower) / self.iteration_seconds

    def at_most(self, rate: float) -> float:
        """Upper end of a rate that is `rate` at the expected iteration time."""
        return rate * self.iteration_seconds / self.iteration_seconds_lower

    def at_least(self, rate: float) -> float:
        """Lower end of such a rate."""
        return rate * self.iteration_seconds / self.iteration_seconds_upper
