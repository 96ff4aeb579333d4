"""From job, layout and device to memory per stage at four levels, with an interval and a verdict."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from projector.catalog import Calibration, Device
from projector.job import Dialect, Schedule, TrainingJob
from projector.layers.shapes import Shapes, shapes_of
from projector.memory import interval
from projector.memory.allocator import replays_of
from projector.memory.cause import cause
from projector.memory.content import StageContent, StageContents
from projector.memory.graphs import CAPTURE, GraphMemory, graph_memory
from projector.memory.modes import modes_of
from projector.memory.moments import given_up, pooled_gradients
from projector.memory.outside import Outside, outside_allocator
from projector.memory.replay import Peak, peak
from projector.memory.reserved import (
    Slack,
    first_reserved_bytes,
    fragmented,
    pooled_slacks,
    slack_bytes,
    slacks,
    with_slack,
)
from projector.memory.routing import routed_stages
from projector.memory.stages import ChunkOperations, described_stages, rerouted
from projector.memory.step import STEP, Moments
from projector.memory.stream_pools import has_stream_pools, stream_pools_bytes
from projector.memory.unmodelled import unknown_figures, unmodelled_layers
from projector.memory.verdict import confidence_of, device_capacity, verdict_of
from projector.parallelism import Layout
from projector.projection import MemoryComponent, MemoryLevel, MemoryProjection, StageMemory
from projector.schedule import framework_schedule

BOUNDARY_TENSORS = 2
"""Stage-boundary tensors per model chunk that interleaved schedules keep (Megatron-LM schedules.py)."""
SENT_GRADIENTS = 1
"""Without interleaving the loop still refers to the gradient it sent last while the next backward runs."""


def project_memory(  # noqa: PLR0913 - the job, where it runs, and how to judge
    job: TrainingJob,
    layout: Layout,
    device: Device,
    *,
    schedule: Schedule | None = None,
    safety_margin: float = 0.0,
    understood: bool = True,
    calibration: Calibration | None = None,
    replay: bool = True,
) -> MemoryProjection:
    """Memory of every pipeline stage.

    `schedule` replaces the one the framework would run; `safety_margin` widens the upper end by a share; `understood`
    False says that something that decides was not understood, so that no verdict may be given; a `calibration` holds
    what was measured of the machine. Without `replay` of the caching allocator, which takes a hundred times as long as
    all else, reserved memory follows from the ratio of published runs: for those who compare thousands of layouts.
    """
    # Without a pipeline no schedule of one runs.
    asked = (schedule or job.schedule) if layout.pipeline > 1 else None
    chosen = framework_schedule(layout.virtual_pipeline, asked)
    if chosen.splits_backward:
        # What computes weight gradients later gives autograd none (AMD-AGI/Primus, `LinearWithWeightGradientStore`).
        job = replace(job, software=replace(job.software, weight_gradient_placeholders=False))
    outside = outside_allocator(job, layout, device, calibration)
    balanced = _Case(
        job=job,
        layout=layout,
        device=device,
        schedule=chosen,
        outside=outside,
        shapes=shapes_of(job, layout),
        described=described_stages(job, layout),
        routing_factor=1.0,
    )
    routed = routed_stages(
        job, layout, balanced.shapes, lambda factor: replace(balanced, routing_factor=factor).stages()
    )
    allocated = [stage.level_bytes(MemoryLevel.ALLOCATED) for stage in routed.lowest]
    slacks = balanced.slacks(routed.lowest, replay=replay)
    stages = tuple(
        _with_interval(stage, low, high, slack=slack, case=balanced, safety_margin=safety_margin)
        for stage, low, high, slack in zip(routed.expected, allocated, routed.highest_bytes, slacks, strict=True)
    )
    known = understood and not unmodelled_layers(job)
    complete = not unknown_figures(job, layout, device, calibration)
    return _judged(stages, modes_of(job, layout, device), device, understood=known, complete=complete)


def _judged(
    stages: tuple[StageMemory, ...], modes: Sequence[str], device: Device, *, understood: bool, complete: bool
) -> MemoryProjection:
    """The stages with their verdict, and how far it can be trusted."""
    fullest = max(stages, key=lambda stage: stage.device_bytes_upper)
    confidence, reasons = confidence_of(modes, fullest, device, understood=understood, complete=complete)
    return MemoryProjection(
        verdict=verdict_of(stages, device, understood=understood, complete=complete),
        confidence=confidence,
        confidence_reasons=reasons,
        device_capacity_bytes=device_capacity(device),
        stages=stages,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Case:
    """What all stages of one projection share."""

    job: TrainingJob
    layout: Layout
    device: Device
    schedule: Schedule
    outside: Outside
    shapes: Shapes
    """Sizes under balanced routing."""
    described: tuple[tuple[ChunkOperations, ...], ...]
    """All stages under balanced routing."""
    routing_factor: float
    unrouted: dict[int, StageContent] = field(default_factory=dict)
    """Contents of stages whose weights are the same under every routing factor."""

    def slacks(self, stages: Sequence[StageMemory], *, replay: bool) -> tuple[Slack, ...]:
        """What the allocator reserves beyond the allocated memory of every stage."""
        shapes = self.shapes
        allocated = [stage.level_bytes(MemoryLevel.ALLOCATED) for stage in stages]
        # Graphs' pools are apart from what is replayed.
        replay = replay and not self.job.software.graphed_layers
        replays = replays_of(self.job, self.layout, shapes, self.device, self.schedule) if replay else None
        if replays is None and has_stream_pools(self.job, self.layout):
            pools = [
                stream_pools_bytes(chunks, self.job, self.layout, shapes) + pooled_gradients(stage.components)
                for chunks, stage in zip(self.described, stages, strict=True)
            ]
            return pooled_slacks(allocated, pools, self.device)
        pooled = [pooled_gradients(stage.components) for stage in stages]
        stated = self.job.software.routing_imbalance is not None
        found = slacks(allocated, replays, self.device, pooled, stated_routing=stated)
        return fragmented(found, self.layout, self.device)

    def stages(self) -> list[StageMemory]:
        """Memory of every stage, without its interval and without the allocator's slack."""
        others = rerouted(self.job, self.layout, self.shapes, self.routing_factor)
        contents = StageContents(self.job, self.layout, self.shapes, self.device, unrouted=self.unrouted, others=others)
        return [
            _stage(rank, contents.of(chunks, rank), self.shapes, self) for rank, chunks in enumerate(self.described)
        ]


def _stage(rank: int, content: StageContent, shapes: Shapes, case: _Case) -> StageMemory:
    job, layout = case.job, case.layout
    weights = content.weights
    ends = rank == 0 or rank == len(layout.stages) - 1
    mask = _mask_bytes(job) if ends else 0
    tops = [
        (peak(moment.footprints, schedule=case.schedule, layout=layout, rank=rank, forward_extra=mask), moment.parts)
        for moment in content.moments
    ]
    top, beside = max(tops, key=lambda each: each[0].size_bytes + sum(part.size_bytes for part in each[1]))
    passes = [
        *_activations(top, rank, layout, shapes),
        *_deferred(weights.has_output, job, layout, shapes),
        *beside,
    ]
    graphs = GraphMemory(passes=tuple(passes))
    if job.software.graphed_layers:
        in_flight = content.layers_of(top.passes)
        graphs = graph_memory(graphs.passes, in_flight, job, shapes, case.device, late_bytes=content.late_bytes)
    moments = Moments(
        persistent=(*content.persistent, *graphs.persistent),
        passes=graphs.passes,
        step=content.step,
        late_bytes=0 if graphs.peaks_in_capture else content.late_bytes,
    )
    in_step = moments.peaks_in_step
    parts = [*moments.components, *graphs.pool]
    parts += given_up(content.gradients, parts)
    parts += case.outside.components
    return StageMemory(
        stage=rank,
        layers=layout.stages[rank].layer_ids,
        parameters=weights.held.total,
        components=tuple(parts),
        device_bytes_lower=0,
        device_bytes_upper=0,
        peak_cause=STEP if in_step else CAPTURE if graphs.peaks_in_capture else cause(top),
        passes_in_flight=() if in_step else top.passes,
        layers_in_flight=0 if in_step else content.layers_of(top.passes),
        first_iteration_allocated_bytes=moments.first_iteration_bytes,
    )


def _mask_bytes(job: TrainingJob) -> int:
    """The boolean attention mask that lives during a forward pass of the first and the last stage.

    Stages between them read no data (Megatron-LM pretrain_gpt.py `get_batch`).
    """
    return job.batch.micro * job.batch.sequence_length**2 if job.software.attention_mask_tensor else 0


def _activations(top: Peak, rank: int, layout: Layout, shapes: Shapes) -> list[MemoryComponent]:
    receives = shapes.software.dialect is Dialect.TORCHTITAN
    count = _receive_buffers(rank, layout, top.passes) if receives else _boundary_tensors(rank, layout)
    boundary = count * shapes.carried_bytes
    parts = [(f"saved activations: {name}", size) for name, size in top.kept.items()]
    parts += [("transients", top.transient_bytes), ("stage-boundary tensors", boundary)]
    return [MemoryComponent(name=name, level=MemoryLevel.ALLOCATED, size_bytes=size) for name, size in parts if size]


def _deferred(has_output: bool, job: TrainingJob, layout: Layout, shapes: Shapes) -> list[MemoryComponent]:  # noqa: FBT001
    """What a weight gradient of the output layer waits with: the layer's input and the gradient of its logits.

    Megatron-LM tensor_parallel/layers.py keeps `embedding_activation_buffer` and `grad_output_buffer` up to the limit;
    at the peak the running micro batch is not among them.
    """
    waiting = min(job.software.deferred_output_gradients, layout.micro_batches - 1)
    columns = shapes.padded_vocabulary // shapes.tensor
    size = waiting * (shapes.residual_bytes + shapes.element * shapes.tokens * columns)
    if not has_output or not size:
        return []
    return [MemoryComponent(name="deferred output gradients", level=MemoryLevel.ALLOCATED, size_bytes=size)]


def _boundary_tensors(rank: int, layout: Layout) -> int:
    """Tensors of the residual stream's size that pipeline communication keeps alive."""
    if layout.virtual_pipeline > 1:
        return BOUNDARY_TENSORS * layout.virtual_pipeline
    return SENT_GRADIENTS if rank > 0 and layout.micro_batches > 1 else 0


def _receive_buffers(rank: int, layout: Layout, passes: Sequence[int]) -> int:
    """Buffers in which PyTorch's pipeline stages receive inputs and gradients of all micro batches of a run.

    Inputs of the passes in flight are counted as activations. Source: torch/distributed/pipelining/stage.py
    (`args_recv_info`, `grad_recv_info`).
    """
    last = len(layout.stages) - 1, layout.virtual_pipeline - 1
    count = 0
    for chunk, in_flight in enumerate(passes):
        inputs = max(0, layout.run_micro_batches - in_flight) if (rank, chunk) != (0, 0) else 0
        count += inputs + (layout.run_micro_batches if (rank, chunk) != last else 0)
    return count


def _with_interval(  # noqa: PLR0913 - the stage, its bounds, and how to judge
    stage: StageMemory, low_bytes: int, high_bytes: int, *, slack: Slack, case: _Case, safety_margin: float
) -> StageMemory:
    """Add the allocator's slack and the interval."""
    held_back = slack_bytes(stage, slack)
    uncertainties = (
        *interval.counted(stage, case.job),
        interval.routed(stage, low_bytes, high_bytes),
        interval.reserved(stage, held_back, 1 + slack.lower, 1 + slack.upper),
        interval.outside(stage, case.outside.uncertainty_bytes),
    )
    if safety_margin:
        uncertainties += (interval.margin(stage.device_bytes + held_back, uncertainties, safety_margin),)
    entered = tuple([each for each in uncertainties if each.below_bytes or each.above_bytes])
    lower, upper = interval.ends(stage.device_bytes + held_back, entered)
    return replace(
        stage,
        components=with_slack(stage, held_back),
        first_iteration_reserved_bytes=first_reserved_bytes(stage, slack, held_back),
        uncertainties=entered,
        device_bytes_lower=lower,
        device_bytes_upper=upper,
    )
