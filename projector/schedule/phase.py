"""A schedule over a pipeline phase: its time, what every rank does, and a timeline to draw.

The one door for everybody who has model chunks with their times, whether projected or given.
"""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from projector.job import Schedule
from projector.parallelism.batch import groups_suit
from projector.projection import PipelinePhase, ScheduleResult, StageTime
from projector.schedule.events import Order
from projector.schedule.in_flight import InFlight, in_flight
from projector.schedule.order import ALL_AT_ONCE
from projector.schedule.steady import Kept
from projector.schedule.timeline import PipelineTime, Timeline, longest_path, pipeline_time, planned_by

_STEADY_GROUPS = 4
"""Groups of micro batches after which activations in flight no longer grow."""
MOST_EVENTS = 40_000
"""Forward and backward passes of a timeline that is drawn; more are drawn as a run with fewer micro batches."""


class Replay(NamedTuple):
    """One run through the pipeline, event by event."""

    order: Order
    """What every rank does in which order."""
    timeline: Timeline
    """When."""


def phase_time(schedule: Schedule, phase: PipelinePhase) -> PipelineTime:
    """Totals of a phase under a schedule; raises what `order` raises."""
    run = pipeline_time(
        schedule,
        phase.chunks_per_stage,
        phase.micro_batches,
        phase.chunks,
        phase.transfer_seconds,
        group=phase.group,
        pending=phase.pending,
        blocking=phase.blocking,
        hidden=phase.hidden_seconds,
    )
    return (run if phase.barrier else run.without_barrier()).repeated(phase.runs)


def scheduled(schedule: Schedule, phase: PipelinePhase, time: PipelineTime | None = None) -> ScheduleResult:
    """What every rank does under a schedule; `time` is that of `phase_time`, if it is known already."""
    time = time or phase_time(schedule, phase)
    kind, count = _kept(schedule, phase), _short(schedule, phase)
    peaks = _passes_in_flight(kind, count)
    kept = None if phase.activation_bytes is None else in_flight(kind.order(count), phase.activation_bytes)
    return ScheduleResult(
        name=schedule.value,
        stages=tuple(
            StageTime(
                stage=rank,
                busy_seconds=time.busy[rank],
                sending_seconds=time.sending[rank],
                bubble_seconds=max(0.0, time.seconds - time.busy[rank] - time.sending[rank]),
                peak_in_flight=peaks[rank].weight / phase.chunks_per_stage,
                peak_activation_bytes=None if kept is None else kept[rank].weight,
            )
            for rank in range(phase.stages)
        ),
        phase=phase,
    )


def grouped(phase: PipelinePhase) -> PipelinePhase:
    """A phase that states no group, with the smallest that interleaving can take its micro batches in.

    Frameworks that run interleaving refuse what does not divide; a larger group than one per rank is theirs to set.
    """
    sizes = range(phase.stages, phase.micro_batches)
    suiting = (size for size in sizes if groups_suit(phase.stages, phase.micro_batches, size))
    return replace(phase, group=phase.group or next(suiting, phase.micro_batches))


def short_order(schedule: Schedule, phase: PipelinePhase) -> Order:
    """The order of as many micro batches as show what is in flight; raises what `order` raises for all of them."""
    return _kept(schedule, phase).order(_short(schedule, phase))


def _short(schedule: Schedule, phase: PipelinePhase) -> int:
    """As many micro batches as show what is in flight."""
    group, run = phase.group or phase.stages, phase.micro_batches
    return run if schedule in ALL_AT_ONCE else min(run, _STEADY_GROUPS * group + run % group)


@lru_cache(maxsize=64)
def _passes_in_flight(kind: Kept, micro_batches: int) -> tuple[InFlight, ...]:
    return in_flight(kind.order(micro_batches))


def replay(schedule: Schedule, phase: PipelinePhase) -> Replay:
    """One run event by event, with fewer micro batches where it has more than `MOST_EVENTS`."""
    found = _kept(schedule, phase).order(replayed_micro_batches(phase))
    line = longest_path(
        found,
        phase.chunks,
        phase.transfer_seconds[: phase.stages],
        blocking=phase.blocking,
        hidden=phase.hidden_seconds,
    )
    return Replay(order=found, timeline=line)


def replayed_micro_batches(phase: PipelinePhase) -> int:
    """Micro batches of a replayed run: all, or as many as leave the same remainder behind whole groups."""
    group = phase.group or phase.stages
    most = max(2 * group, MOST_EVENTS // (2 * phase.stages * phase.chunks_per_stage))
    excess = phase.micro_batches - most
    return phase.micro_batches if excess <= 0 else phase.micro_batches - -(-excess // group) * group


def _kept(schedule: Schedule, phase: PipelinePhase) -> Kept:
    passes = planned_by(schedule, phase.chunks, phase.pending)
    combined = phase.hidden_seconds is not None
    return Kept(schedule, phase.stages, phase.chunks_per_stage, phase.group, passes, combined=combined)
