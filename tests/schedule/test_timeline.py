"""The longest path agrees with the closed forms of the papers that introduced the schedules."""

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projector.job import Schedule
from projector.schedule import ChunkDurations, Order, Passes, in_flight, longest_path, order, pipeline_time
from projector.schedule.split_backward import heuristic
from projector.schedule.timeline import planned_passes

SIZES = st.tuples(st.integers(2, 8), st.integers(1, 5))
SECONDS = st.floats(0.1, 5.0)


def uniform(pipeline: int, chunks: int, forward: float, back: float, weight: float) -> list[list[ChunkDurations]]:
    """The same durations everywhere, a stage's work divided over its chunks."""
    one = ChunkDurations(forward=forward / chunks, backward_input=back / chunks, backward_weight=weight / chunks)
    return [[one] * chunks] * pipeline


@given(SIZES, st.integers(1, 40), SECONDS, SECONDS)
def test_1f1b_takes_as_long_as_its_bubble_formula_says(
    sizes: tuple[int, int], micro_batches: int, forward: float, back: float
) -> None:
    """(m + p - 1)(F + B): Narayanan et al., arXiv 2104.04473, section 2.2."""
    pipeline = sizes[0]
    found = pipeline_time(
        Schedule.ONE_F_ONE_B, 1, micro_batches, uniform(pipeline, 1, forward, back, 0.0), [0.0] * pipeline
    )
    assert found.seconds == pytest.approx((micro_batches + pipeline - 1) * (forward + back))


@given(SIZES, st.integers(1, 4), SECONDS, SECONDS)
def test_interleaving_divides_the_bubble_by_the_chunks(
    sizes: tuple[int, int], groups: int, forward: float, back: float
) -> None:
    """The same paper: m (F + B) + (p - 1)(F + B) / v."""
    pipeline, chunks = sizes[0], sizes[1] + 1
    micro_batches = pipeline * groups
    found = pipeline_time(
        Schedule.INTERLEAVED, chunks, micro_batches, uniform(pipeline, chunks, forward, back, 0.0), [0.0] * pipeline
    )
    assert found.seconds == pytest.approx((micro_batches + (pipeline - 1) / chunks) * (forward + back))


@given(st.integers(2, 8), st.integers(2, 4), SECONDS)
def test_zero_bubble_h1_has_a_third_of_the_bubble_when_all_passes_are_equal(
    pipeline: int, groups: int, seconds: float
) -> None:
    """(p - 1)(F + B - W): Qi et al., arXiv 2401.10241, table 1."""
    micro_batches = pipeline * groups
    found = pipeline_time(
        Schedule.ZERO_BUBBLE, 1, micro_batches, uniform(pipeline, 1, seconds, seconds, seconds), [0.0] * pipeline
    )
    assert found.seconds == pytest.approx((3 * micro_batches + pipeline - 1) * seconds)


def bubbles(found: Order) -> float:
    """Passes for which the rank that waits longest waits between its first and its last, all passes of one length."""
    each = ChunkDurations(forward=1.0, backward_input=1.0, backward_weight=1.0)
    line = longest_path(found, [[each] * found.chunks] * found.pipeline, [0.0] * found.pipeline)
    spans = (ends[-1] - starts[0] for starts, ends in zip(line.starts, line.ends, strict=True))
    return max(spans) - 3 * found.chunks * found.micro_batches


@given(st.integers(2, 10), st.integers(0, 20))
def test_the_automatic_schedule_has_no_bubble_with_twice_the_memory_of_1f1b(pipeline: int, more: int) -> None:
    """ZB-2p: (p - 1)(F + B - 2W) of ZB-H2, which is nothing where all are equal (arXiv 2401.10241, table 1)."""
    assert bubbles(order(Schedule.ZERO_BUBBLE_HEURISTIC, pipeline, 1, 2 * pipeline + more)) == 0


@given(st.integers(2, 10), st.integers(0, 20))
def test_the_automatic_schedule_with_the_memory_of_1f1b_has_the_bubble_of_h1(pipeline: int, more: int) -> None:
    """ZB-1p: (p - 1)(F + B - W)."""
    ranks = heuristic(pipeline, pipeline + more, Passes(limit=pipeline))
    found = Order(ranks=ranks, chunks=1, micro_batches=pipeline + more, splits_backward=True)
    assert bubbles(found) == pipeline - 1
    assert [peak.weight for peak in in_flight(found)] == [pipeline] * pipeline


@given(st.integers(2, 12), st.integers(2, 4))
def test_v_half_has_half_the_bubbles_of_1f1b(pipeline: int, groups: int) -> None:
    """1F1B waits (p - 1)(F + B + W) of two chunks each: arXiv 2405.15362, section 4, where passes are equal."""
    of_1f1b = 2 * 3 * (pipeline - 1)
    assert bubbles(order(Schedule.ZBV_GREEDY_HALF, pipeline, 2, groups * pipeline)) <= of_1f1b / 2


@given(st.integers(2, 12), st.integers(2, 4))
def test_v_min_has_fewer_bubbles_than_1f1b(pipeline: int, groups: int) -> None:
    """Less than it saves on 1F1B's memory, where passes are equal (the same paper)."""
    of_1f1b = 2 * 3 * (pipeline - 1)
    found = bubbles(order(Schedule.ZBV_GREEDY_MIN, pipeline, 2, groups * pipeline))
    assert found <= of_1f1b * 3 / 4
    assert found >= bubbles(order(Schedule.ZBV_GREEDY_HALF, pipeline, 2, groups * pipeline))


@given(st.integers(2, 8), st.integers(2, 4), SECONDS)
def test_zbv_has_a_third_of_the_bubble_of_h1_when_all_passes_are_equal(
    pipeline: int, groups: int, seconds: float
) -> None:
    """No bubble but that of the first rank's neighbours filling: (p - 1) F of one of two chunks."""
    micro_batches = 2 * pipeline * groups
    found = pipeline_time(
        Schedule.ZBV_FORMATTED, 2, micro_batches, uniform(pipeline, 2, seconds, seconds, seconds), [0.0] * pipeline
    )
    assert found.seconds == pytest.approx((3 * micro_batches + (pipeline - 1) / 2) * seconds)


@pytest.mark.parametrize(
    ("schedule", "pipeline", "chunks", "micro_batches"),
    [
        (Schedule.ONE_F_ONE_B, 8, 1, 1024),
        (Schedule.ONE_F_ONE_B, 16, 1, 517),
        (Schedule.ZERO_BUBBLE, 8, 1, 1024),
        (Schedule.INTERLEAVED, 8, 3, 512),
        (Schedule.ZBV_FORMATTED, 8, 2, 515),
        (Schedule.ZERO_BUBBLE_HEURISTIC, 8, 1, 1024),
        (Schedule.SEAAILAB_ILP, 8, 1, 700),
        (Schedule.ZBV_GREEDY_HALF, 8, 2, 515),
        (Schedule.ZBV_GREEDY_HALF, 7, 2, 400),
        (Schedule.ZBV_GREEDY_MIN, 8, 2, 515),
        (Schedule.ZBV_GREEDY_MIN, 6, 2, 500),
        (Schedule.GPIPE, 8, 1, 1024),
        (Schedule.LOOPED_BFS, 8, 3, 509),
        (Schedule.INTERLEAVED_ZERO_BUBBLE, 8, 3, 512),
    ],
)
def test_continuing_a_long_schedule_equals_running_all_of_it(
    schedule: Schedule, pipeline: int, chunks: int, micro_batches: int
) -> None:
    """Also with uneven stages, where the slowest one sets the pace."""
    durations = [
        [ChunkDurations(forward=1.0 + 0.05 * (rank % 3), backward_input=1.2, backward_weight=0.7)] * chunks
        for rank in range(pipeline)
    ]
    hops = [0.01 * (1 + rank % 2) for rank in range(pipeline)]
    passes = planned_passes(durations, 2 * pipeline)
    whole = longest_path(order(schedule, pipeline, chunks, micro_batches, passes=passes), durations, hops)
    continued = pipeline_time(schedule, chunks, micro_batches, durations, hops)
    assert continued.seconds == pytest.approx(whole.seconds, rel=1e-11)
    assert continued.span == pytest.approx(whole.span, rel=1e-11)
    assert continued.busy == pytest.approx(whole.busy)


@pytest.mark.parametrize("micro_batches", [30, 64, 214])
def test_a_long_interleaved_run_in_larger_groups_is_continued_too(micro_batches: int) -> None:
    durations, hops = uniform(4, 3, 1.0, 1.2, 0.7), [0.01] * 4
    whole = longest_path(order(Schedule.INTERLEAVED, 4, 3, micro_batches, 5), durations, hops)
    continued = pipeline_time(Schedule.INTERLEAVED, 3, micro_batches, durations, hops, group=5)
    assert continued.seconds == pytest.approx(whole.seconds, rel=1e-11)


@given(st.integers(2, 8), st.integers(1, 30), st.sampled_from([Schedule.ONE_F_ONE_B, Schedule.ZERO_BUBBLE]))
def test_work_sends_and_waiting_add_up_to_the_phase(pipeline: int, micro_batches: int, schedule: Schedule) -> None:
    line = longest_path(
        order(schedule, pipeline, 1, micro_batches),
        uniform(pipeline, 1, 1.0, 1.3, 0.6),
        [0.1] * pipeline,
        blocking=True,
    )
    for busy, sending, bubble in zip(line.busy, line.sending, line.bubble, strict=True):
        assert busy + sending + bubble == pytest.approx(line.seconds)
        assert bubble >= -1e-9


def test_more_micro_batches_lower_the_share_of_the_bubble() -> None:
    shares = []
    for micro_batches in (1, 2, 4, 8, 64):
        time = pipeline_time(Schedule.ONE_F_ONE_B, 1, micro_batches, uniform(4, 1, 1.0, 2.0, 0.0), [0.05] * 4)
        shares.append(1 - sum(time.busy) / (4 * time.seconds))
    assert shares == sorted(shares, reverse=True)


def test_a_blocking_send_costs_more_than_one_that_overlaps() -> None:
    durations = uniform(4, 1, 1.0, 2.0, 0.0)
    free = pipeline_time(Schedule.ONE_F_ONE_B, 1, 16, durations, [0.1] * 4)
    blocked = pipeline_time(Schedule.ONE_F_ONE_B, 1, 16, durations, [0.1] * 4, blocking=True)
    assert blocked.seconds > free.seconds > 19 * 3.0


@given(SIZES, st.integers(1, 5))
def test_1f1b_keeps_as_many_micro_batches_as_ranks_follow(sizes: tuple[int, int], groups: int) -> None:
    """PipeDream-Flush: p - i, never more than there are."""
    pipeline, micro_batches = sizes[0], groups
    peaks = [peak.weight for peak in in_flight(order(Schedule.ONE_F_ONE_B, pipeline, 1, micro_batches))]
    assert peaks == [min(pipeline - rank, micro_batches) for rank in range(pipeline)]


@given(st.integers(2, 8), st.integers(2, 4), st.integers(2, 4))
def test_interleaving_keeps_two_more_per_following_rank(pipeline: int, chunks: int, groups: int) -> None:
    """2 (p - i - 1) + (v - 1) p + 1 chunks: Megatron-LM's warm-up."""
    peaks = [peak.weight for peak in in_flight(order(Schedule.INTERLEAVED, pipeline, chunks, pipeline * groups))]
    expected = [2 * (pipeline - rank - 1) + (chunks - 1) * pipeline + 1 for rank in range(pipeline)]
    assert peaks == [min(value, pipeline * groups * chunks) for value in expected]


@given(st.integers(2, 8), st.integers(2, 4))
def test_zero_bubble_h1_keeps_what_the_first_rank_of_1f1b_keeps(pipeline: int, groups: int) -> None:
    peaks = [peak.weight for peak in in_flight(order(Schedule.ZERO_BUBBLE, pipeline, 1, pipeline * groups))]
    assert peaks == [pipeline] * pipeline


@given(st.integers(2, 8), st.integers(2, 4))
def test_zbv_keeps_as_much_as_the_first_rank_of_1f1b_on_every_rank(pipeline: int, groups: int) -> None:
    peaks = [peak.weight for peak in in_flight(order(Schedule.ZBV_FORMATTED, pipeline, 2, 2 * pipeline * groups))]
    assert peaks == [2 * pipeline] * pipeline


def test_weights_decide_which_moment_is_the_peak() -> None:
    schedule = order(Schedule.INTERLEAVED, 2, 2, 4)
    first_chunk_heavy = in_flight(schedule, [[10.0, 1.0], [10.0, 1.0]])
    counted = in_flight(schedule)
    assert first_chunk_heavy[0].chunks[0] == counted[0].chunk_peaks[0]
    assert first_chunk_heavy[0].weight == 10 * first_chunk_heavy[0].chunks[0] + first_chunk_heavy[0].chunks[1]


@given(st.integers(2, 10), st.integers(0, 20))
def test_the_automatic_schedule_uses_twice_the_memory_of_1f1b_on_every_rank(pipeline: int, more: int) -> None:
    """ZB-2p: arXiv 2401.10241, table 4."""
    peaks = [peak.weight for peak in in_flight(order(Schedule.ZERO_BUBBLE_HEURISTIC, pipeline, 1, 2 * pipeline + more))]
    assert peaks == [2 * pipeline] * pipeline


@given(st.integers(2, 16), st.integers(2, 4))
def test_v_half_keeps_half_of_1f1b_and_one_micro_batch(pipeline: int, groups: int) -> None:
    """P / 2 + 1 micro batches at most, counted in halves, of which each chunk of a rank is one (arXiv 2405.15362)."""
    peaks = [peak.weight for peak in in_flight(order(Schedule.ZBV_GREEDY_HALF, pipeline, 2, groups * pipeline))]
    assert max(peaks) <= pipeline + 2
    assert max(peaks) >= pipeline


@given(st.integers(2, 16), st.integers(2, 4))
def test_v_min_keeps_a_third_of_1f1b_and_one_micro_batch(pipeline: int, groups: int) -> None:
    """P / 3 + 1 micro batches, counted in halves and rounded up to whole ones (arXiv 2405.15362)."""
    peaks = [peak.weight for peak in in_flight(order(Schedule.ZBV_GREEDY_MIN, pipeline, 2, groups * pipeline))]
    assert max(peaks) <= 2 * (ceil(pipeline / 3) + 1)
    assert max(peaks) >= 2 * pipeline / 3


@pytest.mark.parametrize(
    "schedule", [Schedule.ZERO_BUBBLE_HEURISTIC, Schedule.ZBV_GREEDY_HALF, Schedule.ZBV_GREEDY_MIN]
)
@pytest.mark.parametrize("pipeline", [2, 3, 4, 8, 16])
def test_what_is_kept_no_longer_grows_after_three_fillings_of_the_pipeline(schedule: Schedule, pipeline: int) -> None:
    """Memory replays as many micro batches at most."""
    chunks = 1 if schedule is Schedule.ZERO_BUBBLE_HEURISTIC else 2
    some, many = (in_flight(order(schedule, pipeline, chunks, count * pipeline)) for count in (3, 9))
    assert [peak.chunk_peaks for peak in some] == [peak.chunk_peaks for peak in many]
    assert [peak.chunks for peak in some] == [peak.chunks for peak in many]


@given(st.integers(2, 8), st.integers(1, 3), st.integers(1, 9))
def test_schedules_without_turns_keep_all_micro_batches(pipeline: int, chunks: int, micro_batches: int) -> None:
    """GPipe and looped breadth first: every forward before any backward."""
    schedule = Schedule.GPIPE if chunks == 1 else Schedule.LOOPED_BFS
    peaks = [peak.weight for peak in in_flight(order(schedule, pipeline, chunks, micro_batches))]
    assert peaks == [chunks * micro_batches] * pipeline


@given(st.integers(2, 8), st.integers(3, 5), st.sampled_from([(1.0, 1.0, 1.0), (1.1, 0.95, 0.95)]))
def test_ranks_that_need_not_wait_for_each_other_leave_what_the_zero_bubble_paper_says(
    pipeline: int, fillings: int, passes: tuple[float, float, float]
) -> None:
    """(p - 1)(F + B - 2W) with memory for 2p micro batches: arXiv 2401.10241, table 1, ZB-H2."""
    forward, back, weight = passes
    count = pipeline * fillings
    found = pipeline_time(
        Schedule.ZERO_BUBBLE_HEURISTIC,
        1,
        count,
        uniform(pipeline, 1, forward, back, weight),
        [0.0] * pipeline,
        pending=2 * pipeline,
    )
    bubble = found.without_barrier().seconds - count * (forward + back + weight)
    assert bubble == pytest.approx((pipeline - 1) * (forward + back - 2 * weight), abs=0.01)
    assert found.seconds > found.span


def test_the_span_of_a_rank_holds_its_last_send() -> None:
    """Of two ranks the second ends with a gradient that it sends, which occupies it where sends block."""
    chunks = uniform(2, 1, 1.0, 1.0, 0.0)
    blocking, free = (
        pipeline_time(Schedule.ONE_F_ONE_B, 1, 1, chunks, [0.5, 0.5], blocking=each) for each in (True, False)
    )
    # Rank 0 waits for both directions; its own span decides and is the same as the phase.
    assert blocking.span == blocking.seconds == free.span == free.seconds == 5.0
    line = longest_path(order(Schedule.ONE_F_ONE_B, 2, 1, 1, 2), chunks, [0.5, 0.5], blocking=True)
    assert line.finished == (5.0, 4.0)
    assert line.ends[1][-1] == 3.5
