"""From a laid-out job to the time half of the answer."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import log2
from typing import NamedTuple

from projector.catalog import Device, HardwareOverrides, MeasuredRates
from projector.costs import CostModel
from projector.costs.figures import TERA, peak_rate
from projector.errors import InputError
from projector.job import Dialect, Schedule, Sharding, Target, TrainingJob
from projector.layers import shapes_of
from projector.operations import CollectiveKind, Group
from projector.parallelism import Layout, resolve
from projector.parallelism.stages import V_SHAPED
from projector.performance.blocks import BlockTime
from projector.performance.chunks import chunk_times, layer_times, purpose, sent, transfers
from projector.performance.clock import at_gain, settled_gain
from projector.performance.combined import EXCHANGES, hidden_seconds
from projector.performance.interval import with_evidence
from projector.performance.measured import Measurements
from projector.performance.modes import modes_of
from projector.performance.passes import BUBBLE, NOTHING, PARTS, PassTime, Traffic, exposed_part
from projector.performance.sampling import sampled
from projector.performance.stages import BlockTimes
from projector.performance.tail import STEP, stage_tail
from projector.projection import (
    CommunicationTotal,
    ComparedSchedule,
    PerformanceProjection,
    PipelinePhase,
    ScheduleResult,
    WaterfallStep,
)
from projector.schedule import (
    AVAILABLE,
    COMBINED,
    OF_MEGATRON,
    OF_PYTORCH,
    PipelineTime,
    framework_schedule,
    named_schedule,
    phase_time,
    planned_schedule,
    scheduled,
    short_order,
    suits,
    too_few_micro_batches,
)

TRANSFERS = exposed_part(Group.PIPELINE)
"""Waterfall part of sends between stages."""
STRAGGLERS = "stragglers"
"""Waterfall part of waiting for the slowest of many nodes."""
_STRAGGLER_SHARE = {False: 0.002, True: 0.0045}
"""Growth of a step with each doubling of the nodes, without and with a pipeline, whose stages wait for each other every
micro batch (prior, from NVIDIA/dgxc-benchmarking's ladders, 8 to 2,048 H100)."""
_INTERLEAVED_EXPOSURE = 0.7
"""Share of a send that interleaving leaves exposed: it overlaps sends with compute (prior, from
NVIDIA/dgxc-benchmarking's ladders)."""
_CLOCK_PASSES = 3
"""Most projections until the clock agrees with the step that it depends on: one to foresee it, one to reach it, and
one where that moves what hides behind what."""


class _Pipeline(NamedTuple):
    """Everything about the pipeline phase that does not depend on the schedule's name."""

    chunks: tuple[tuple[BlockTime, ...], ...]
    """By rank and chunk."""
    transfers: tuple[float, ...]
    """Seconds of a send between a rank and the next."""
    tail: PassTime
    """The slowest stage's end of the iteration."""
    carried_bytes: int
    """Message of a send."""
    post_validates: bool
    """Stages that have separated their weight gradients do not wait for each other at the end of an iteration."""
    overlaps_sends: bool
    """Interleaving sends beside computation."""
    combines: bool
    """Forwards run beside backwards, where the schedule allows it."""

    @property
    def forward_flops(self) -> float:
        """Of one micro batch through all stages."""
        return sum(chunk.forward_flops for rank in self.chunks for chunk in rank)

    def exposed_share(self, schedule: Schedule) -> float:
        """Share of a send that a schedule leaves exposed."""
        return _INTERLEAVED_EXPOSURE if self.overlaps_sends and schedule is Schedule.INTERLEAVED else 1.0

    def phase(self, schedule: Schedule, layout: Layout) -> PipelinePhase:
        """What a schedule needs: sends that interleaving hides are left out."""
        exposure = self.exposed_share(schedule)
        return PipelinePhase(
            chunks=tuple(tuple(chunk.durations for chunk in rank) for rank in self.chunks),
            micro_batches=layout.run_micro_batches,
            transfer_seconds=tuple(seconds * exposure for seconds in self.transfers),
            blocking=True,
            runs=layout.pipeline_runs,
            group=layout.micro_batch_group,
            pending=layout.pending_micro_batches,
            barrier=not (self.post_validates and schedule.splits_backward),
            hidden_seconds=self._hidden() if self.combines and schedule in COMBINED else None,
        )

    def _hidden(self) -> tuple[tuple[tuple[float, ...], ...], ...]:
        """Seconds by which a chunk's forward and another's backward take less together, by rank and chunks."""
        return tuple(tuple(tuple(_hidden_of(ahead, back) for back in rank) for ahead in rank) for rank in self.chunks)


def _hidden_of(ahead: BlockTime, back: BlockTime) -> float:
    """What a forward and a backward take less together, but no less than the host needs to start both."""
    started = ahead.forward_clocks.host_to_host + back.backward_clocks.host_to_host
    together = ahead.forward.seconds + back.backward.seconds
    return max(0.0, min(hidden_seconds(ahead.layers, back.layers), together - started))


def project_performance(  # noqa: PLR0913 - what decides the time of a job
    job: TrainingJob,
    target: Target,
    layout: Layout,
    device: Device,
    *,
    schedule: str = "auto",
    backend: str = "analytical",
    overrides: HardwareOverrides | None = None,
    peak_allocated_bytes: Callable[[Schedule], int] | None = None,
    rates: MeasuredRates | None = None,
) -> PerformanceProjection:
    """Project iteration time, throughput and their parts.

    `schedule` is `auto` (what the framework would run), `all` (the same, beside every other schedule that the layout
    allows) or a `Schedule` by name. `overrides` replace the catalog's links, and measured `rates` win over every other
    figure. `peak_allocated_bytes` tells the peak of a compared schedule; without it 0 stands there.

    Raises `NotAvailable` for GEMM backends and formats that are not offered or figures that nobody knows.
    """
    job = sampled(job)
    chosen = planned_schedule(_chosen(job, schedule), layout.pipeline, layout.run_micro_batches)
    layout = _placed(job, target, layout, chosen)
    measured = Measurements(rates, job, layout, device, backend=backend)
    device, gain = measured.device, 1.0
    for _ in range(_CLOCK_PASSES):
        costs = measured.costs(at_gain(device, gain), overrides)
        blocks = BlockTimes(job, layout, costs)
        pipeline = _pipeline(job, layout, costs, blocks)
        phase = pipeline.phase(chosen, layout)
        time = phase_time(chosen, phase)
        parts, traffic = _waterfall(pipeline, time, layout, device, chosen)
        before, gain = gain, settled_gain(device, parts, gain)
        if gain == before:
            break
    iteration = sum(parts.values())
    achieved = model_passes(job) * pipeline.forward_flops * layout.micro_batches / layout.pipeline / iteration / TERA
    peak = peak_rate(device, job.precision.low_precision) / TERA
    result = scheduled(chosen, phase, time)
    compared = _compared(job, target, layout, costs, peak_allocated_bytes) if schedule == "all" else []
    projection = PerformanceProjection(
        iteration_seconds=iteration,
        tokens_per_second_per_device=layout.global_batch * job.batch.sequence_length / iteration / target.devices,
        tflops_per_device=achieved,
        mfu=achieved / peak,
        mfu_base_tflops=peak,
        waterfall=tuple(WaterfallStep(name=name, seconds=seconds) for name, seconds in parts.items()),
        communication=_communication(traffic, layout.sharding),
        schedule=result,
        compared_schedules=tuple(compared),
        layer_times=layer_times(layout, blocks),
        chunks=chunk_times(layout, blocks, pipeline.chunks),
        warnings=tuple(_warnings(result, layout)),
        measured=measured.notes(overrides),
    )
    return with_evidence(projection, modes_of(job, device))


def _warnings(result: ScheduleResult, layout: Layout) -> Iterator[str]:
    """What a person should know before running the job so."""
    few = too_few_micro_batches(result)
    if few is not None:
        batch = few.enough and few.enough * layout.pipeline_runs * layout.micro_batch * layout.data
        yield few.told(f"a global batch of {batch:,} sequences on as many devices" if batch else "")


def model_passes(job: TrainingJob) -> int:
    """Model FLOPs over those of a forward pass: backward has as many towards the input, and towards trained weights.

    Frozen weights have no products of their own gradient; those of adapters are less than a hundredth.
    """
    return 3 if job.adapters is None else 2


def _chosen(job: TrainingJob, name: str) -> Schedule:
    """The schedule to project under: by name, else the framework's."""
    return named_schedule(name) or framework_schedule(job.parallelism.virtual_pipeline, job.schedule)


def _placed(job: TrainingJob, target: Target, layout: Layout, schedule: Schedule) -> Layout:
    """The layout with layers where a schedule wants them: along the ranks, or down and up again."""
    if (schedule in V_SHAPED) is (job.schedule in V_SHAPED):
        return layout
    return resolve(replace(job, schedule=schedule), target)


def _pipeline(job: TrainingJob, layout: Layout, costs: CostModel, blocks: BlockTimes) -> _Pipeline:
    chunks = tuple(tuple(blocks.chunk(chunk) for chunk in stage.chunks) for stage in layout.stages)
    distinct = {tuple(map(id, rank)): rank for rank in chunks}
    tails = [stage_tail(job, layout, costs, rank) for rank in distinct.values()]
    return _Pipeline(
        chunks=chunks,
        transfers=transfers(job, layout, costs),
        tail=max(tails, key=lambda tail: tail.seconds),
        carried_bytes=shapes_of(job, layout).carried_bytes,
        post_validates=job.software.optimizer_post_validation,
        overlaps_sends=job.software.overlap_pipeline_sends,
        combines=job.combines_passes,
    )


def _waterfall(
    pipeline: _Pipeline, time: PipelineTime, layout: Layout, device: Device, schedule: Schedule
) -> tuple[dict[str, float], dict[tuple[Group, CollectiveKind], Traffic]]:
    """Parts of the iteration on the busiest stage, and its communication; the parts add up to the iteration."""
    rank = max(range(layout.pipeline), key=lambda index: time.busy[index] + time.sending[index])
    passes = NOTHING.plus(
        *(
            one
            for chunk in pipeline.chunks[rank]
            for one in (chunk.forward, chunk.backward_input, chunk.backward_weight)
        )
    ).scaled(layout.micro_batches)
    parts = {name: passes.parts[name] for name in sorted(passes.parts, key=PARTS.index)}
    traffic = dict(passes.plus(pipeline.tail).traffic)
    if time.saved[rank]:
        parts[EXCHANGES] -= time.saved[rank]
        traffic = _less_exposed(traffic, Group.EXPERT, time.saved[rank])
    if layout.pipeline > 1:
        parts[TRANSFERS] = time.sending[rank]
        traffic[Group.PIPELINE, CollectiveKind.SEND_RECV] = sent(
            layout,
            rank,
            carried_bytes=pipeline.carried_bytes,
            exposed_seconds=time.sending[rank],
            exposure=pipeline.exposed_share(schedule),
        )
        parts[BUBBLE] = time.seconds - time.busy[rank] - time.sending[rank]
    for name, seconds in pipeline.tail.parts.items():
        parts[name] = parts.get(name, 0.0) + seconds
    if device.step_overhead_seconds:
        parts[STEP] = device.step_overhead_seconds
    nodes = layout.world / layout.devices_per_node
    if nodes > 1:
        parts[STRAGGLERS] = _STRAGGLER_SHARE[layout.pipeline > 1] * log2(nodes) * sum(parts.values())
    return parts, traffic


def _less_exposed(
    traffic: Mapping[tuple[Group, CollectiveKind], Traffic], group: Group, seconds: float
) -> dict[tuple[Group, CollectiveKind], Traffic]:
    """The traffic with so many seconds of a group hidden, by the shares of its collectives."""
    exposed = sum(calls.exposed_seconds for (each, _), calls in traffic.items() if each is group)
    left = max(0.0, 1.0 - seconds / exposed) if exposed else 1.0
    return {
        key: calls._replace(exposed_seconds=calls.exposed_seconds * left) if key[0] is group else calls
        for key, calls in traffic.items()
    }


def _communication(
    traffic: Mapping[tuple[Group, CollectiveKind], Traffic], sharding: Sharding
) -> tuple[CommunicationTotal, ...]:
    return tuple(
        CommunicationTotal(
            group=group.value,
            collective=kind.value,
            purpose=purpose(group, kind, sharding),
            message_bytes=round(calls.message_bytes),
            seconds=calls.seconds,
            exposed_seconds=calls.exposed_seconds,
            repeated_seconds=calls.repeated_seconds,
        )
        for (group, kind), calls in sorted(traffic.items())
    )


def _offered(job: TrainingJob, layout: Layout) -> list[Schedule]:
    """Schedules of the job's framework, and the one it states, for its chunks; none twice under another name."""
    framework = OF_PYTORCH if job.software.dialect is Dialect.TORCHTITAN else OF_MEGATRON
    known = framework | {framework_schedule(layout.virtual_pipeline, job.schedule)}
    return [
        schedule
        for schedule in AVAILABLE
        if schedule in known
        and job.starts_under(schedule)
        and suits(schedule, layout.virtual_pipeline)
        and planned_schedule(schedule, layout.pipeline, layout.run_micro_batches) is schedule
    ]


def _compared(
    job: TrainingJob,
    target: Target,
    layout: Layout,
    costs: CostModel,
    peak_allocated_bytes: Callable[[Schedule], int] | None,
) -> list[ComparedSchedule]:
    """Every schedule that the framework has and the layout allows, fastest first."""
    found = []
    for schedule in _offered(job, layout):
        try:
            placed = _placed(job, target, layout, schedule)
            pipeline = _pipeline(job, placed, costs, BlockTimes(job, placed, costs))
            phase = pipeline.phase(schedule, placed)
            short_order(schedule, phase)
        except InputError:
            continue
        time = phase_time(schedule, phase)
        found.append(
            ComparedSchedule(
                result=scheduled(schedule, phase, time),
                iteration_seconds=sum(_waterfall(pipeline, time, placed, costs.device, schedule)[0].values()),
                peak_allocated_bytes=peak_allocated_bytes(schedule) if peak_allocated_bytes else 0,
            )
        )
    return sorted(found, key=lambda one: one.iteration_seconds)
