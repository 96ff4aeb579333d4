"""A rank's order of passes in short: patterns that repeat.

While a pattern repeats, what is alive changes by the same amount each time, so that only its first and its last
repetition can be the peak. The steady phase of a schedule is one or a few patterns, however long it lasts.

What is alive then is known without knowing how large it is, so that the few situations that may be the peak are found
once for all jobs of a schedule.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from projector.job import Schedule
from projector.schedule import Kind, Passes, order

Step = tuple[Kind, int]
"""A pass through a model chunk of the rank: what is done, and the chunk."""

PERIODS = (1, 2, 3, 6)
"""Lengths of repeating patterns: warm-up; one forward, one backward; with the weight gradient apart; the same over two
chunks."""


class Segment(NamedTuple):
    """A pattern of passes and how often it repeats."""

    pattern: tuple[Step, ...]
    """Passes of one repetition, in order."""
    repetitions: int
    """How often they run one after the other."""
    turns: tuple[tuple[int, bool], ...]
    """The repetitions in turns: how many at once, and whether one of them can be the peak."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SegmentedOrder:
    """A schedule's order of passes, per rank."""

    ranks: tuple[tuple[Segment, ...], ...]
    """Segments of every rank, in the order in which it runs them."""
    splits_backward: bool
    """Weight gradients are passes of their own."""


class Situation(NamedTuple):
    """A pass is about to run while others are alive."""

    forward: bool
    """Forward or backward."""
    chunk: int
    """Model chunk that it runs through."""
    alive: tuple[int, ...]
    """Passes whose backward has not begun, per chunk."""
    delayed: tuple[int, ...]
    """Passes of which only the weight gradient is missing, per chunk."""


class Situations(NamedTuple):
    """What may be the peak of a rank."""

    found: tuple[Situation, ...]
    """Distinct ones, in order of time."""
    splits_backward: bool
    """Weight gradients are passes of their own."""


@lru_cache(maxsize=4096)
def situations(  # noqa: PLR0913 - what decides an order, and for whom
    schedule: Schedule, pipeline: int, chunks: int, micro_batches: int, group: int, *, rank: int, passes: Passes | None
) -> Situations:
    """Situations that may be a rank's peak, whatever its chunks hold."""
    whole = segmented(schedule, pipeline, chunks, micro_batches, group, passes=passes)
    found = _replayed(whole.ranks[rank], chunks, splits_backward=whole.splits_backward)
    return Situations(found=tuple(dict.fromkeys(found)), splits_backward=whole.splits_backward)


def _replayed(segments: Sequence[Segment], chunks: int, *, splits_backward: bool) -> Iterator[Situation]:
    """Every situation that can be the peak, in order of time."""
    alive, delayed = [0] * chunks, [0] * chunks
    for segment in segments:
        for times, looks in segment.turns:
            for kind, chunk in segment.pattern:
                if looks and kind is not Kind.W:
                    yield Situation(kind is Kind.F, chunk, tuple(alive), tuple(delayed))
                if kind is Kind.F:
                    alive[chunk] += times
                elif kind is Kind.B:
                    alive[chunk] -= times
                    delayed[chunk] += times * splits_backward
                else:
                    delayed[chunk] -= times


@lru_cache(maxsize=256)
def segmented(  # noqa: PLR0913 - what decides an order
    schedule: Schedule, pipeline: int, chunks: int, micro_batches: int, group: int, *, passes: Passes | None = None
) -> SegmentedOrder:
    """The order of a schedule, shortened; raises what `projector.schedule.order` raises."""
    events = order(schedule, pipeline, chunks, micro_batches, group, passes=passes)
    return SegmentedOrder(
        ranks=tuple(_shortened([(event.kind, event.chunk) for event in rank]) for rank in events.ranks),
        splits_backward=events.splits_backward,
    )


def _shortened(steps: Sequence[Step]) -> tuple[Segment, ...]:
    """The steps as patterns that repeat as often as they do, from the first step on."""
    segments = []
    at = 0
    while at < len(steps):
        counts = {period: _repetitions(steps, at, period) for period in PERIODS}
        period = max(PERIODS, key=lambda each: (counts[each] - 1) * each)
        pattern, count = tuple(steps[at : at + period]), counts[period]
        segments.append(Segment(pattern=pattern, repetitions=count, turns=_turns(pattern, count)))
        at += period * counts[period]
    return tuple(segments)


def _turns(pattern: tuple[Step, ...], count: int) -> tuple[tuple[int, bool], ...]:
    """What rises is highest at its last repetition, what falls at its first, and what does both at one of the two."""
    kinds = {kind for kind, _ in pattern}
    first = () if kinds == {Kind.F} else ((1, True),)
    last = () if Kind.F not in kinds else ((1, True),)
    between = count - len(first) - len(last)
    if between < 0:
        return ((1, True),)
    return (*first, (between, False), *last) if between else (*first, *last)


def _repetitions(steps: Sequence[Step], at: int, period: int) -> int:
    """How often the `period` steps from `at` on follow one another."""
    end = at + period
    while end < len(steps) and steps[end] == steps[end - period]:
        end += 1
    return max(1, (end - at) // period)
