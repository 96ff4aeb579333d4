"""The integer program never ends later than the heuristic, and ends sooner where that is possible."""

import pytest

from projector.job import Schedule
from projector.schedule import ChunkDurations, Order, Passes, in_flight, longest_path, order, planned_schedule
from projector.schedule import integer_program as program
from projector.schedule.split_backward import heuristic

SIZES = [(3, 4, (2, 3, 4), 6), (2, 6, (3, 2, 2), 4), (3, 4, (1, 1, 1), 3), (3, 6, (4, 4, 1), 6)]
"""Ranks, micro batches, lengths of the passes, micro batches in memory."""


def seconds(ranks: tuple[tuple[object, ...], ...], micro_batches: int, lengths: tuple[int, int, int]) -> float:
    """When the last pass of an order ends."""
    found = Order(ranks=ranks, chunks=1, micro_batches=micro_batches, splits_backward=True)  # type: ignore[arg-type]
    one = ChunkDurations(
        **dict(zip(("forward", "backward_input", "backward_weight"), map(float, lengths), strict=True))
    )
    return longest_path(found, [[one]] * len(ranks), [0.0] * len(ranks)).seconds


@pytest.mark.parametrize(("pipeline", "micro_batches", "lengths", "limit"), SIZES)
def test_the_shortest_order_is_complete_keeps_to_memory_and_is_no_longer(
    pipeline: int, micro_batches: int, lengths: tuple[int, int, int], limit: int
) -> None:
    pytest.importorskip("scipy", reason="the optional extra `ilp` is not installed")
    passes = Passes(lengths=lengths, limit=limit)
    found = program.shortest(pipeline, micro_batches, passes)
    known = heuristic(pipeline, micro_batches, passes)
    assert [sorted(rank) for rank in found] == [sorted(rank) for rank in known]
    assert seconds(found, micro_batches, lengths) <= seconds(known, micro_batches, lengths)
    kept = Order(ranks=found, chunks=1, micro_batches=micro_batches, splits_backward=True)
    assert max(peak.weight for peak in in_flight(kept)) <= limit


def test_a_shorter_order_is_found_where_there_is_one() -> None:
    pytest.importorskip("scipy", reason="the optional extra `ilp` is not installed")
    passes = Passes(lengths=(2, 3, 4), limit=6)
    orders = program.shortest(3, 4, passes), heuristic(3, 4, passes)
    assert [seconds(ranks, 4, passes.lengths) for ranks in orders] == [40, 41]


def test_an_order_that_cannot_end_sooner_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """With twice the memory of 1F1B and equal passes the heuristic reaches the bound."""
    monkeypatch.delattr(program._Rows, "minimised")  # noqa: SLF001 - nothing may be solved
    passes = Passes(limit=8)
    assert program.shortest(4, 12, passes) == heuristic(4, 12, passes)


@pytest.mark.parametrize(
    ("pipeline", "micro_batches", "passes"),
    [(2, 11, Passes(lengths=(1, 3, 4), waiting=8, limit=2)), (4, 4, Passes(lengths=(2, 3, 1), waiting=1, limit=1))],
    ids=["too many starts", "one at a time"],
)
def test_an_order_that_little_room_makes_long_is_not_searched(
    monkeypatch: pytest.MonkeyPatch, pipeline: int, micro_batches: int, passes: Passes
) -> None:
    """The first search would take a minute, the second finds nothing sooner."""
    monkeypatch.delattr(program._Rows, "minimised")  # noqa: SLF001 - nothing may be solved
    program.shortest.cache_clear()
    assert program.shortest(pipeline, micro_batches, passes) == heuristic(pipeline, micro_batches, passes)


@pytest.mark.parametrize(("installed", "pipeline", "micro_batches"), [(False, 2, 4), (True, 8, 24)])
def test_without_a_solver_and_for_large_programs_the_heuristic_runs_and_is_named(
    monkeypatch: pytest.MonkeyPatch,
    installed: bool,  # noqa: FBT001 - a case
    pipeline: int,
    micro_batches: int,
) -> None:
    monkeypatch.setattr(program, "solver_installed", lambda: installed)
    order.cache_clear()
    found = planned_schedule(Schedule.SEAAILAB_ILP, pipeline, micro_batches)
    assert found is Schedule.ZERO_BUBBLE_HEURISTIC
    assert order(Schedule.SEAAILAB_ILP, pipeline, 1, micro_batches) == order(found, pipeline, 1, micro_batches)


def test_a_small_program_with_a_solver_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "solver_installed", lambda: True)
    assert planned_schedule(Schedule.SEAAILAB_ILP, 2, 4) is Schedule.SEAAILAB_ILP
