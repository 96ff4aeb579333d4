"""Every schedule is a complete and consistent order, whatever the size of pipeline and batch."""

from collections.abc import Iterator
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projector.errors import BatchIndivisible, InputError, LayoutImpossible
from projector.job import Schedule
from projector.parallelism.stages import V_SHAPED
from projector.schedule import (
    AVAILABLE,
    ChunkDurations,
    Event,
    Kind,
    Order,
    Passes,
    framework_schedule,
    longest_path,
    order,
)

LOOPED = frozenset({Schedule.INTERLEAVED, Schedule.LOOPED_BFS, Schedule.INTERLEAVED_ZERO_BUBBLE})
"""Schedules over several chunks in a row."""


PASSES_AT_ONCE = 24
"""Passes of a program that is solved in a millisecond, so that a property may draw many."""
PROGRAMS = [
    (3, 4, Passes(lengths=(2, 3, 4), limit=6)),
    (2, 11, Passes(lengths=(1, 3, 4), waiting=8, limit=2)),
    (4, 4, Passes(lengths=(2, 3, 1), waiting=1, limit=1)),
    (3, 5, Passes(lengths=(4, 1, 1), waiting=15, limit=2)),
    (5, 3, Passes(lengths=(1, 2, 2), waiting=20, limit=4)),
]
"""Ranks, micro batches and passes of integer programs that take longer than a property has."""


@st.composite
def orders(draw: st.DrawFn) -> Order:
    """Any schedule that can be built; integer programs are small ones."""
    schedule = draw(st.sampled_from(AVAILABLE))
    pipeline = draw(st.integers(1, 7))
    if schedule in (Schedule.INTERLEAVED, Schedule.INTERLEAVED_ZERO_BUBBLE):
        if pipeline > 1 and draw(st.booleans()):  # one group, of fewer micro batches than stages
            fewer = draw(st.integers(1, pipeline - 1))
            return order(schedule, pipeline, draw(st.integers(2, 4)), fewer, fewer)
        group = pipeline + draw(st.integers(0, 3))
        last = draw(st.sampled_from([0, *range(pipeline, group)]))
        return order(schedule, pipeline, draw(st.integers(2, 4)), group * draw(st.integers(1, 4)) + last, group)
    chunks = 2 if schedule in V_SHAPED else draw(st.integers(2, 4)) if schedule is Schedule.LOOPED_BFS else 1
    passes = Passes(
        lengths=draw(st.tuples(*[st.integers(1, 4)] * 3)),
        waiting=draw(st.integers(1, 20)),
        limit=draw(st.integers(1, 20)),
    )
    most = PASSES_AT_ONCE // (3 * pipeline) if schedule is Schedule.SEAAILAB_ILP else 20
    return order(schedule, pipeline, chunks, draw(st.integers(1, most)), passes=passes)


def test_an_order_too_long_to_write_out_is_refused_with_the_limit() -> None:
    with pytest.raises(LayoutImpossible, match=r"1024 stages x 1 model chunks .* at most 500000 events"):
        order(Schedule.ONE_F_ONE_B, 1024, 1, 3072)


def events(order: Order) -> Iterator[tuple[int, int, Event]]:
    """Rank, index and event of everything."""
    for rank, sequence in enumerate(order.ranks):
        for index, event in enumerate(sequence):
            yield rank, index, event


def check_passes(order: Order) -> None:
    """Each rank runs each pass exactly once."""
    kinds = (Kind.F, Kind.B, Kind.W) if order.splits_backward else (Kind.F, Kind.B)
    wanted = {
        Event(kind, chunk, mb) for kind in kinds for chunk in range(order.chunks) for mb in range(order.micro_batches)
    }
    for sequence in order.ranks:
        assert len(sequence) == len(wanted)
        assert set(sequence) == wanted


def check_sequence(order: Order) -> None:
    """A rank runs forward before backward before weights."""
    for sequence in order.ranks:
        place = {event: index for index, event in enumerate(sequence)}
        for kind, chunk, mb in sequence:
            if kind is Kind.B:
                assert place[Event(Kind.F, chunk, mb)] < place[Event(kind, chunk, mb)]
            if kind is Kind.W:
                assert place[Event(Kind.B, chunk, mb)] < place[Event(kind, chunk, mb)]


@given(orders())
def test_each_rank_runs_each_pass_exactly_once(order: Order) -> None:
    check_passes(order)


@given(orders())
def test_a_rank_runs_forward_before_backward_before_weights(order: Order) -> None:
    check_sequence(order)


@given(
    order=orders(),
    one=st.builds(
        ChunkDurations,
        forward=st.floats(0.1, 3),
        backward_input=st.floats(0.1, 3),
        backward_weight=st.floats(0, 3),
    ),
    hop=st.floats(0, 1),
    blocking=st.booleans(),
)
def test_no_schedule_deadlocks_and_every_input_arrives_before_it_is_used(
    order: Order, one: ChunkDurations, hop: float, *, blocking: bool
) -> None:
    check_inputs(order, one, hop, blocking=blocking)


@pytest.mark.parametrize(("pipeline", "micro_batches", "passes"), PROGRAMS)
def test_orders_of_integer_programs_keep_the_same_promises(pipeline: int, micro_batches: int, passes: Passes) -> None:
    found = order(Schedule.SEAAILAB_ILP, pipeline, 1, micro_batches, passes=passes)
    check_passes(found)
    check_sequence(found)
    forward, back, weight = map(float, passes.lengths)
    one = ChunkDurations(forward=forward, backward_input=back, backward_weight=weight)
    for blocking in (True, False):
        check_inputs(found, one, 0.5, blocking=blocking)


def check_inputs(order: Order, one: ChunkDurations, hop: float, *, blocking: bool) -> None:
    """The order does not deadlock, and every input arrives before it is used."""
    line = longest_path(order, [[one] * order.chunks] * order.pipeline, [hop] * order.pipeline, blocking=blocking)
    stages = order.pipeline * order.chunks
    start = {(e.kind, order.virtual_stage(r, e.chunk), e.micro_batch): line.starts[r][i] for r, i, e in events(order)}
    end = {(e.kind, order.virtual_stage(r, e.chunk), e.micro_batch): line.ends[r][i] for r, i, e in events(order)}
    assert len(end) == sum(map(len, order.ranks))

    def sent(stage: int, other: int) -> float:
        return 0.0 if order.rank_of(stage) == order.rank_of(other) else hop

    for (kind, stage, mb), begun in start.items():
        if kind is Kind.F and stage:
            assert begun >= end[Kind.F, stage - 1, mb] + sent(stage, stage - 1)
        if kind is Kind.B:
            assert begun >= end[Kind.F, stage, mb]
            if stage < stages - 1:
                assert begun >= end[Kind.B, stage + 1, mb] + sent(stage, stage + 1)
    for rank, sequence in enumerate(order.ranks):
        assert list(line.starts[rank]) == sorted(line.starts[rank]), f"rank {rank} goes back in time"
        assert len(sequence) == len(line.ends[rank])


def test_every_schedule_is_offered() -> None:
    assert set(AVAILABLE) == set(Schedule)


def test_a_long_order_is_written_down_quickly() -> None:
    """0.2 seconds of processor time; the bound leaves room for a slow one."""
    for schedule in AVAILABLE:
        chunks = 2 if schedule in V_SHAPED | LOOPED else 1
        begun = process_time()
        found = order(schedule, 16, chunks, 1008)
        assert process_time() - begun < 3, schedule
        assert len(found.ranks[0]) == (3 if found.splits_backward else 2) * chunks * 1008


def test_interleaving_names_the_nearest_batches_when_micro_batches_do_not_divide() -> None:
    with pytest.raises(BatchIndivisible, match=r"10 micro batches over 4 pipeline stages.*8 or 12"):
        order(Schedule.INTERLEAVED, 4, 2, 10)


@pytest.mark.parametrize(("micro_batches", "group"), [(5, 4), (6, 3), (10, 3), (10, 11), (11, 8)])
def test_a_group_that_leaves_the_pipeline_partly_empty_is_refused(micro_batches: int, group: int) -> None:
    with pytest.raises(BatchIndivisible):
        order(Schedule.INTERLEAVED, 4, 2, micro_batches, group)


@pytest.mark.parametrize(
    ("schedule", "chunks", "needed"),
    [
        (Schedule.ONE_F_ONE_B, 2, "1"),
        (Schedule.ZERO_BUBBLE, 2, "1"),
        (Schedule.INTERLEAVED, 1, "2 or more"),
        (Schedule.ZBV_FORMATTED, 3, "2"),
        (Schedule.ZBV_GREEDY_HALF, 1, "2"),
        (Schedule.ZBV_GREEDY_MIN, 3, "2"),
        (Schedule.ZERO_BUBBLE_HEURISTIC, 2, "1"),
        (Schedule.GPIPE, 2, "1"),
        (Schedule.LOOPED_BFS, 1, "2 or more"),
        (Schedule.INTERLEAVED_ZERO_BUBBLE, 1, "2 or more"),
    ],
)
def test_schedules_refuse_a_number_of_chunks_they_are_not_made_for(
    schedule: Schedule, chunks: int, needed: str
) -> None:
    with pytest.raises(LayoutImpossible, match=f"with {chunks} model chunks.*needs {needed}$"):
        order(schedule, 4, chunks, 8)


def test_a_folded_schedule_gives_rank_0_the_first_and_the_last_chunk() -> None:
    folded = order(Schedule.ZBV_FORMATTED, 4, 2, 8)
    assert [folded.virtual_stage(0, chunk) for chunk in range(2)] == [0, 7]
    assert [folded.rank_of(stage) for stage in range(8)] == [0, 1, 2, 3, 3, 2, 1, 0]


def test_nothing_to_schedule_is_an_input_error() -> None:
    with pytest.raises(InputError, match="0 micro batches"):
        order(Schedule.ONE_F_ONE_B, 4, 1, 0)


@pytest.mark.parametrize(
    ("chunks", "stated", "runs"),
    [
        (1, None, Schedule.ONE_F_ONE_B),
        (2, None, Schedule.INTERLEAVED),
        (1, Schedule.ZERO_BUBBLE, Schedule.ZERO_BUBBLE),
    ],
)
def test_the_framework_runs_what_is_stated_else_what_the_chunks_imply(
    chunks: int, stated: Schedule | None, runs: Schedule
) -> None:
    assert framework_schedule(chunks, stated) is runs
