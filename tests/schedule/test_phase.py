"""A phase under a schedule: what every rank does, and the timeline that is drawn of it."""

import pytest

from projector.job import Schedule
from projector.projection import ChunkDurations, PipelinePhase
from projector.schedule import AVAILABLE, grouped, phase_time, replay, replayed_micro_batches, scheduled, suits
from projector.schedule.phase import MOST_EVENTS


def a_phase(stages: int, chunks: int, micro_batches: int, **more: object) -> PipelinePhase:
    one = ChunkDurations(forward=1.0, backward_input=1.2, backward_weight=0.7)
    phase = PipelinePhase(
        chunks=((one,) * chunks,) * stages,
        micro_batches=micro_batches,
        transfer_seconds=(0.1,) * stages,
        **more,  # type: ignore[arg-type]
    )
    return grouped(phase)


CASES = [(schedule, 2 if suits(schedule, 2) else 1) for schedule in AVAILABLE]


@pytest.mark.parametrize(("schedule", "chunks"), CASES)
@pytest.mark.parametrize("micro_batches", [1, 3, 5, 8, 13])
@pytest.mark.parametrize("blocking", [False, True])
def test_the_timeline_is_as_long_as_the_phase_for_any_number_of_micro_batches(
    schedule: Schedule, chunks: int, micro_batches: int, *, blocking: bool
) -> None:
    phase = a_phase(4, chunks, micro_batches, blocking=blocking)
    run, result = replay(schedule, phase), scheduled(schedule, phase)
    assert run.order.micro_batches == micro_batches
    assert run.timeline.seconds == pytest.approx(phase_time(schedule, phase).seconds)
    assert result.seconds == pytest.approx(run.timeline.seconds)
    for stage in result.stages:
        assert stage.busy_seconds == pytest.approx(2.9 * chunks * micro_batches)
        assert stage.busy_seconds + stage.sending_seconds + stage.bubble_seconds == pytest.approx(result.seconds)


@pytest.mark.parametrize(("chunks", "micro_batches"), [(1, 100_000), (1, 7_777), (2, 6_002), (2, 1_000_004)])
def test_a_long_run_is_drawn_with_fewer_micro_batches_of_the_same_remainder(chunks: int, micro_batches: int) -> None:
    phase = a_phase(4, chunks, micro_batches)
    drawn = replayed_micro_batches(phase)
    assert 2 * 4 * chunks * drawn <= MOST_EVENTS
    assert (micro_batches - drawn) % (phase.group or 4) == 0
    assert drawn < micro_batches


def test_several_runs_take_as_often_as_long() -> None:
    once, thrice = (scheduled(Schedule.ONE_F_ONE_B, a_phase(4, 1, 8, runs=runs)) for runs in (1, 3))
    assert thrice.seconds == pytest.approx(3 * once.seconds)
    assert thrice.bubble_ratio == pytest.approx(once.bubble_ratio)
    assert thrice.peak_in_flight == once.peak_in_flight == 4


def test_what_micro_batches_keep_is_told_where_the_phase_says_it() -> None:
    phase = a_phase(2, 1, 4, activation_bytes=((10.0,), (20.0,)))
    assert [stage.peak_activation_bytes for stage in scheduled(Schedule.ONE_F_ONE_B, phase).stages] == [20.0, 20.0]
