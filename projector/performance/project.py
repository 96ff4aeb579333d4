"""From a laid-out job to the time half of the answer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import log2
from typing import NamedTuple

from projector.catalog import Device, HardwareOverrides, MeasuredRates
from projector.costs import CostModel
from projector.costs.figures import TERA, peak_rate
from projector.errors import InputError
from projector.job import Dialect, Schedule, Target, TrainingJob
from projector.layers import shapes_of
from projector.operations import CollectiveKind, Group
from projector.parallelism import Layout, resolve
from projector.parallelism.stages import V_SHAPED
from projector.performance.blocks import BlockTime
from projector.performance.clock import at_gain, settled_gain
from projector.performance.measured import Measurements
from projector.performance.passes import NOTHING, PARTS, PassTime, Traffic
from projector.performance.stages import BlockTimes
from projector.performance.tail import STEP, stage_tail
from projector.projection import (
    CommunicationTotal,
    ComparedSchedule,
    LayerTime,
    PerformanceProjection,
    PipelinePhase,
    ScheduleResult,
    WaterfallStep,
)
from projector.schedule import (
    AVAILABLE,
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

BUBBLE = "pipeline bubble"
"""Waterfall part of waiting for other stages."""
TRANSFERS = "exposed pipeline-parallel communication"
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
    post_validates: bool
    """Stages that have separated their weight gradients do not wait for each other at the end of an iteration."""

    @property
    def forward_flops(self) -> float:
        """Of one micro batch through all stages."""
        return sum(chunk.forward_flops for rank in self.chunks for chunk in rank)

    def phase(self, schedule: Schedule, layout: Layout) -> PipelinePhase:
        """What a schedule needs: sends that interleaving hides are left out."""
        exposure = _INTERLEAVED_EXPOSURE if schedule is Schedule.INTERLEAVED else 1.0
        return PipelinePhase(
            chunks=tuple(tuple(chunk.durations for chunk in rank) for rank in self.chunks),
            micro_batches=layout.run_micro_batches,
            transfer_seconds=tuple(seconds * exposure for seconds in self.transfers),
            blocking=True,
            runs=layout.pipeline_runs,
            group=layout.micro_batch_group,
            pending=layout.pending_micro_batches,
            barrier=not (self.post_validates and schedule.splits_backward),
        )


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
        parts, traffic = _waterfall(pipeline, time, layout, device)
        before, gain = gain, settled_gain(device, parts, gain)
        if gain == before:
            break
    iteration = sum(parts.values())
    achieved = model_passes(job) * pipeline.forward_flops * layout.micro_batches / layout.pipeline / iteration / TERA
    peak = peak_rate(device, job.precision.low_precision) / TERA
    result = scheduled(chosen, phase, time)
    compared = _compared(job, target, layout, costs, peak_allocated_bytes) if schedule == "all" else []
    return PerformanceProjection(
        iteration_seconds=iteration,
        tokens_per_second_per_device=layout.global_batch * job.batch.sequence_length / iteration / target.devices,
        tflops_per_device=achieved,
        mfu=achieved / peak,
        mfu_base_tflops=peak,
        waterfall=tuple(WaterfallStep(name=name, seconds=seconds) for name, seconds in parts.items()),
        communication=_communication(traffic),
        schedule=result,
        compared_schedules=tuple(compared),
        layer_times=_layer_times(layout, blocks),
        warnings=tuple(_warnings(result, layout)),
        measured=measured.notes(overrides),
    )


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
        transfers=_transfers(job, layout, costs),
        tail=max(tails, key=lambda tail: tail.seconds),
        post_validates=job.software.optimizer_post_validation,
    )


def _transfers(job: TrainingJob, layout: Layout, costs: CostModel) -> tuple[float, ...]:
    """Seconds of sending the residual streams from each rank to the next, the last to the first."""
    if layout.pipeline == 1:
        return (0.0,)
    message = shapes_of(job, layout).carried_bytes
    ranks = range(layout.pipeline)
    return tuple(costs.network.shift_seconds(message, layout.following(rank)) for rank in ranks)


def _waterfall(
    pipeline: _Pipeline, time: PipelineTime, layout: Layout, device: Device
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
    if layout.pipeline > 1:
        parts[TRANSFERS] = time.sending[rank]
        parts[BUBBLE] = time.seconds - time.busy[rank] - time.sending[rank]
    for name, seconds in pipeline.tail.parts.items():
        parts[name] = parts.get(name, 0.0) + seconds
    if device.step_overhead_seconds:
        parts[STEP] = device.step_overhead_seconds
    nodes = layout.world / layout.devices_per_node
    if nodes > 1:
        parts[STRAGGLERS] = _STRAGGLER_SHARE[layout.pipeline > 1] * log2(nodes) * sum(parts.values())
    return parts, traffic


def _communication(traffic: Mapping[tuple[Group, CollectiveKind], Traffic]) -> tuple[CommunicationTotal, ...]:
    return tuple(
        CommunicationTotal(
            group=group.value,
            collective=kind.value,
            message_bytes=round(calls.message_bytes),
            seconds=calls.seconds,
            exposed_seconds=calls.exposed_seconds,
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
                iteration_seconds=sum(_waterfall(pipeline, time, placed, costs.device)[0].values()),
                peak_allocated_bytes=peak_allocated_bytes(schedule) if peak_allocated_bytes else 0,
            )
        )
    return sorted(found, key=lambda one: one.iteration_seconds)


def _layer_times(layout: Layout, blocks: BlockTimes) -> tuple[LayerTime, ...]:
    """By kind of layer; the average where some layers of a kind are recomputed and others are not."""
    kinds: dict[str, list[tuple[int, BlockTime]]] = {}
    for stage in layout.stages:
        for chunk in stage.chunks:
            for count, block in blocks.runs(chunk):
                kinds.setdefault(block.name, []).append((count, block))
    return tuple(_average(name, runs) for name, runs in kinds.items())


def _average(name: str, runs: Sequence[tuple[int, BlockTime]]) -> LayerTime:
    count = sum(number for number, _ in runs)
    return LayerTime(
        name=name,
        count=count,
        forward_seconds=sum(number * block.forward.seconds for number, block in runs) / count,
        backward_seconds=sum(number * block.backward.seconds for number, block in runs) / count,
    )
