"""A forward beside the backward that follows it: Megatron-LM's combined 1F1B."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projector.job import Schedule
from projector.schedule import ChunkDurations, Kind, in_flight, longest_path, order, pipeline_time

ONE = ChunkDurations(forward=1.0, backward_input=1.3, backward_weight=0.7)


def equal(seconds: float, pipeline: int, chunks: int) -> list[list[list[float]]]:
    return [[[seconds] * chunks] * chunks] * pipeline


@given(st.integers(1, 6), st.integers(2, 4), st.integers(2, 8))
def test_one_more_forward_keeps_an_interleaved_pipeline_as_full_as_before(
    pipeline: int, chunks: int, groups: int
) -> None:
    durations, hops, count = [[ONE] * chunks] * pipeline, [0.0] * pipeline, pipeline * groups
    apart = pipeline_time(Schedule.INTERLEAVED, chunks, count, durations, hops)
    paired = pipeline_time(Schedule.INTERLEAVED, chunks, count, durations, hops, hidden=equal(0.0, pipeline, chunks))
    assert paired.seconds == pytest.approx(apart.seconds)


def test_without_several_chunks_a_pipeline_waits_for_each_pair() -> None:
    """Which is why Megatron-LM refuses it."""
    durations = [[ONE]] * 4
    apart = pipeline_time(Schedule.ONE_F_ONE_B, 1, 16, durations, [0.0] * 4)
    paired = pipeline_time(Schedule.ONE_F_ONE_B, 1, 16, durations, [0.0] * 4, hidden=equal(0.0, 4, 1))
    assert paired.seconds > 1.3 * apart.seconds


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 12), st.floats(0.0, 1.0), st.booleans())
def test_continuing_equals_running_all_of_it_and_busy_time_is_less_by_what_is_hidden(
    pipeline: int,
    chunks: int,
    groups: int,
    hidden: float,
    blocking: bool,  # noqa: FBT001 - drawn
) -> None:
    schedule = Schedule.INTERLEAVED if chunks > 1 else Schedule.ONE_F_ONE_B
    count, durations, hops = pipeline * groups, [[ONE] * chunks] * pipeline, [0.1] * pipeline
    less = equal(hidden, pipeline, chunks)
    whole = longest_path(
        order(schedule, pipeline, chunks, count, combined=True), durations, hops, blocking=blocking, hidden=less
    )
    found = pipeline_time(schedule, chunks, count, durations, hops, blocking=blocking, hidden=less)
    assert found.seconds == pytest.approx(whole.seconds, rel=1e-11)
    assert found.busy == pytest.approx(whole.busy)
    assert [busy + saved for busy, saved in zip(found.busy, found.saved, strict=True)] == pytest.approx(
        [ONE.total * chunks * count] * pipeline
    )
    for busy, sending, bubble in zip(whole.busy, whole.sending, whole.bubble, strict=True):
        assert busy + sending + bubble == pytest.approx(whole.seconds)


@pytest.mark.parametrize(("pipeline", "chunks"), [(1, 1), (4, 2), (8, 4)])
def test_one_more_micro_batch_is_in_flight(pipeline: int, chunks: int) -> None:
    schedule = Schedule.INTERLEAVED if chunks > 1 else Schedule.ONE_F_ONE_B
    apart, paired = (
        in_flight(order(schedule, pipeline, chunks, 8 * pipeline, combined=each)) for each in (False, True)
    )
    assert [peak.weight + 1 for peak in apart] == [peak.weight for peak in paired]


def test_without_a_pipeline_the_first_forward_and_the_last_backward_run_alone() -> None:
    """`combined_1f1b_schedule_for_no_pipelining` of megatron/core/pipeline_parallel/combined_1f1b.py."""
    found = order(Schedule.ONE_F_ONE_B, 1, 1, 4, combined=True)
    assert "".join(event.kind for event in found.ranks[0]) == "FFBFBFBB"
    assert found.pairs == (1,)
    time = pipeline_time(Schedule.ONE_F_ONE_B, 1, 4, [[ONE]], [0.0], hidden=[[[0.5]]])
    assert time.seconds == pytest.approx(4 * ONE.total - 3 * 0.5)


def test_both_passes_of_a_pair_can_be_drawn() -> None:
    line = longest_path(
        order(Schedule.INTERLEAVED, 2, 2, 8, combined=True), [[ONE] * 2] * 2, [0.0] * 2, hidden=equal(0.5, 2, 2)
    )
    for starts, ends in zip(line.starts, line.ends, strict=True):
        assert all(start < end for start, end in zip(starts, ends, strict=True))
        assert list(starts) == sorted(starts)


def test_schedules_that_cannot_pair_passes_run_them_apart() -> None:
    assert order(Schedule.ZERO_BUBBLE, 4, 1, 8, combined=True).pairs is None
    assert Kind.W in {event.kind for event in order(Schedule.ZERO_BUBBLE, 4, 1, 8, combined=True).ranks[0]}
