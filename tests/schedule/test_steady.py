"""Taking repetitions of a schedule at once gives what walking all of them gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projector.job import Schedule
from projector.schedule import ChunkDurations, longest_path, order, pipeline_time
from projector.schedule.steady import Kept, run
from projector.schedule.timeline import planned_by

SECONDS = st.one_of(st.just(1.0), st.just(0.0), st.floats(0.0, 3.0), st.floats(1.0, 1.0001))
ONE_CHUNK = (Schedule.ONE_F_ONE_B, Schedule.ZERO_BUBBLE, Schedule.ZERO_BUBBLE_HEURISTIC, Schedule.GPIPE)
FOLDED = (Schedule.ZBV_FORMATTED, Schedule.ZBV_GREEDY_HALF, Schedule.ZBV_GREEDY_MIN)
GROUPED = (Schedule.INTERLEAVED, Schedule.INTERLEAVED_ZERO_BUBBLE, Schedule.LOOPED_BFS)


@st.composite
def runs(draw: st.DrawFn) -> tuple[Schedule, list[list[ChunkDurations]], list[float], int]:
    """A schedule, times of uneven or even chunks, sends, and micro batches that suit."""
    schedule = draw(st.sampled_from((*ONE_CHUNK, *FOLDED, *GROUPED)))
    pipeline = draw(st.integers(2, 6))
    chunks = 1 if schedule in ONE_CHUNK else 2 if schedule in FOLDED else draw(st.integers(2, 4))
    times = st.builds(ChunkDurations, SECONDS, SECONDS, SECONDS)
    shapes = draw(st.lists(times, min_size=1, max_size=pipeline * chunks))
    durations = [[shapes[(rank * chunks + chunk) % len(shapes)] for chunk in range(chunks)] for rank in range(pipeline)]
    hops = [draw(SECONDS) for _ in range(pipeline)]
    micro_batches = draw(st.integers(1, 150)) if schedule not in GROUPED else pipeline * draw(st.integers(1, 20))
    return schedule, durations, hops, micro_batches


@given(runs(), st.booleans())
def test_repetitions_taken_at_once_equal_a_walk_through_all_events(
    given_run: tuple[Schedule, list[list[ChunkDurations]], list[float], int],
    blocking: bool,  # noqa: FBT001 - drawn
) -> None:
    schedule, durations, hops, micro_batches = given_run
    pipeline, chunks = len(durations), len(durations[0])
    passes = planned_by(schedule, durations, None)
    whole = longest_path(
        order(schedule, pipeline, chunks, micro_batches, passes=passes), durations, hops, blocking=blocking
    )
    found = pipeline_time(schedule, chunks, micro_batches, durations, hops, blocking=blocking)
    assert found.seconds == pytest.approx(whole.seconds, rel=1e-9, abs=1e-12)
    assert found.span == pytest.approx(whole.span, rel=1e-9, abs=1e-12)
    assert found.busy == pytest.approx(whole.busy)
    assert found.sending == pytest.approx(whole.sending)


@pytest.mark.parametrize("pipeline", [2, 3, 4, 7, 8, 16])
@pytest.mark.parametrize(
    ("schedule", "chunks"),
    [
        *((schedule, 1) for schedule in ONE_CHUNK if schedule is not Schedule.GPIPE),
        *((schedule, 2) for schedule in FOLDED),
        (Schedule.INTERLEAVED, 4),
        (Schedule.INTERLEAVED_ZERO_BUBBLE, 4),
    ],
)
def test_long_runs_are_short_ones_whose_repetitions_are_repeated(
    schedule: Schedule, chunks: int, pipeline: int
) -> None:
    """At most six fillings of the pipeline are written out, whatever the run's length."""
    count = 40 * pipeline
    found = run(Kept(schedule, pipeline, chunks, None, None), count)
    assert found.repetitions > 2
    assert found.order.micro_batches < 7 * pipeline


def test_stages_that_nearly_keep_pace_are_followed_until_one_overtakes() -> None:
    """The last of these stages is slower by a ten-thousandth, which shows after thousands of micro batches only."""
    durations = [[ChunkDurations(forward=1.0, backward_input=1.0, backward_weight=1.0)]] * 3
    durations = [*durations, [ChunkDurations(forward=1.0001, backward_input=1.0, backward_weight=1.0)]]
    found = pipeline_time(Schedule.ZERO_BUBBLE, 1, 4000, durations, [0.0] * 4)
    whole = longest_path(order(Schedule.ZERO_BUBBLE, 4, 1, 4000), durations, [0.0] * 4)
    assert found.seconds == pytest.approx(whole.seconds, rel=1e-12)


def test_a_run_of_a_million_micro_batches_takes_as_long_as_its_formula_says() -> None:
    durations = [[ChunkDurations(forward=1.0, backward_input=2.0, backward_weight=0.0)]] * 8
    found = pipeline_time(Schedule.ONE_F_ONE_B, 1, 1_000_000, durations, [0.0] * 8)
    assert found.seconds == pytest.approx((1_000_000 + 7) * 3.0, rel=1e-12)


def test_a_schedule_that_keeps_all_micro_batches_goes_on_at_the_pace_of_its_slowest_stages() -> None:
    durations = [
        [ChunkDurations(forward=1.0 + rank, backward_input=5.0 - rank, backward_weight=0.0)] for rank in (0, 1)
    ]
    found = pipeline_time(Schedule.GPIPE, 1, 1_000_000, durations, [0.0] * 2)
    assert found.seconds == pytest.approx(1_000_000 * (2.0 + 5.0) + 1.0 + 4.0, rel=1e-9)


@pytest.mark.parametrize(("pipeline", "chunks", "micro_batches"), [(64, 16, 150), (32, 8, 260)])
def test_looped_passes_over_many_stages_take_what_all_events_take(
    pipeline: int, chunks: int, micro_batches: int
) -> None:
    durations = [[ChunkDurations(forward=1.0, backward_input=1.0, backward_weight=1.0)] * chunks] * pipeline
    hops = [0.0] * pipeline
    whole = longest_path(order(Schedule.LOOPED_BFS, pipeline, chunks, micro_batches), durations, hops)
    found = pipeline_time(Schedule.LOOPED_BFS, chunks, micro_batches, durations, hops)
    assert found.seconds == pytest.approx(whole.seconds, rel=1e-9)
    assert found.seconds >= max(found.busy)
