"""The warning about too few micro batches comes where it is due, and the number that it names is enough."""

from dataclasses import replace

import pytest

from projector.job import Schedule
from projector.projection import ChunkDurations, PipelinePhase
from projector.schedule import TooFew, grouped, scheduled, too_few_micro_batches


def a_phase(stages: int, micro_batches: int, *, chunks: int = 1, last: float = 1.0, send: float = 0.0) -> PipelinePhase:
    """Passes of 1, 1 and 1 second; those of the last stage `last` times as long."""
    one = ChunkDurations(forward=1.0, backward_input=1.0, backward_weight=1.0)
    long = ChunkDurations(forward=last, backward_input=last, backward_weight=last)
    return PipelinePhase(
        chunks=((one,) * chunks,) * (stages - 1) + ((long,) * chunks,),
        micro_batches=micro_batches,
        transfer_seconds=(send,) * stages,
        blocking=True,
    )


def found(schedule: Schedule, phase: PipelinePhase) -> TooFew | None:
    return too_few_micro_batches(scheduled(schedule, phase))


@pytest.mark.parametrize("stages", [2, 4, 8, 16])
def test_1f1b_needs_nine_micro_batches_for_each_further_stage(stages: int) -> None:
    """(p - 1) / (m + p - 1) is a tenth: Narayanan et al., arXiv 2104.04473, section 2.2.1."""
    few = found(Schedule.ONE_F_ONE_B, a_phase(stages, stages))
    assert few is not None
    assert few.bubble_ratio == pytest.approx((stages - 1) / (2 * stages - 1))
    assert few.enough == 9 * (stages - 1)


@pytest.mark.parametrize(
    ("schedule", "chunks"),
    [
        (Schedule.ONE_F_ONE_B, 1),
        (Schedule.INTERLEAVED, 2),
        (Schedule.ZERO_BUBBLE, 1),
        (Schedule.ZERO_BUBBLE_HEURISTIC, 1),
        (Schedule.ZBV_FORMATTED, 2),
        (Schedule.ZBV_GREEDY_HALF, 2),
        (Schedule.GPIPE, 1),
    ],
)
@pytest.mark.parametrize(("last", "send"), [(1.0, 0.0), (1.05, 0.0), (1.03, 0.05)])
def test_the_number_that_is_named_is_enough(schedule: Schedule, chunks: int, last: float, send: float) -> None:
    """But for a hundredth of waiting: it is told as about so many."""
    phase = a_phase(8, 8, chunks=chunks, last=last, send=send)
    few = found(schedule, phase)
    assert few is not None
    assert few.enough is not None
    more = scheduled(schedule, replace(phase, micro_batches=few.enough))
    assert more.bubble_ratio <= 0.11


@pytest.mark.parametrize(
    ("phase", "why"),
    [
        (a_phase(4, 16), "four for each stage"),
        (a_phase(1, 1), "no pipeline"),
        (replace(a_phase(2, 7, chunks=8), group=7), "little waiting"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_enough_micro_batches_are_not_warned_about(phase: PipelinePhase, why: str) -> None:
    schedule = Schedule.ONE_F_ONE_B if phase.chunks_per_stage == 1 else Schedule.INTERLEAVED
    assert found(schedule, phase) is None, why


def test_uneven_stages_are_told_where_no_number_is_enough() -> None:
    few = found(Schedule.ONE_F_ONE_B, a_phase(4, 4, last=1.5))
    assert few is not None
    assert few.enough is None
    assert few.told().endswith("is waiting; more would help, but uneven stages keep it above 10 %")


def test_the_warning_says_what_results_and_what_would_do() -> None:
    few = found(Schedule.ONE_F_ONE_B, a_phase(4, 1))
    assert few is not None
    assert few.told("a global batch of 27 sequences") == (
        "1 micro batch for 4 pipeline stages: 75.0 % of the pipeline phase is waiting;"
        " about 27 micro batches (a global batch of 27 sequences) would bring it to 10 %"
    )


@pytest.mark.parametrize(("micro_batches", "group"), [(8, 4), (10, 5), (6, 6), (3, 3), (7, 7), (12, 4), (13, 7)])
def test_interleaving_gets_the_smallest_group_that_fills_the_pipeline(micro_batches: int, group: int) -> None:
    phase = grouped(a_phase(4, micro_batches, chunks=2))
    assert phase.group == group
    assert scheduled(Schedule.INTERLEAVED, phase).seconds >= 6 * micro_batches


def test_a_stated_group_stays() -> None:
    assert grouped(replace(a_phase(4, 10, chunks=2), group=10)).group == 10
