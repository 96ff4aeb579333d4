"""An order as one list of steps, each behind its input, so that a longest path is one pass over it.

Orders are lists of ranks; which of them can go on depends on the others. That is found out once per order, here, and
serves passes of any length.
"""

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from projector.projection import ChunkDurations
from projector.schedule.events import Kind, Order

KINDS = 3
"""Kinds of a stage's passes: forward, backward, weight gradient."""
Hidden: TypeAlias = Sequence[Sequence[Sequence[float]]]
"""Seconds by which a forward and a backward that run beside each other take less than one after the other: by rank,
chunk of the forward and chunk of the backward."""
_NO_INPUT = -1
"""Place, in a list of ends, of a zero that stands for inputs that are there from the beginning."""


Step: TypeAlias = tuple[int, int, int]
"""One event: its rank, the number of the step whose output it needs (or `_NO_INPUT`), and which pass of which stage it
is. A plain tuple, which is unpacked faster than a named one.

Passes are numbered by virtual stage x `KINDS` + kind. Where a forward and a backward run beside each other, the first
of the two steps only waits for the forward's input, and the second is both: their numbers follow behind those, see
`Pairs`."""


class Pairs(NamedTuple):
    """Numbers of passes that run beside each other."""

    stages: int
    """Virtual stages."""
    chunks: int
    """Model chunks per rank."""

    def waiting(self, forward: int) -> int:
        """Of the wait for the input of a virtual stage's forward."""
        return self.stages * KINDS + forward

    def both(self, forward: int, chunk: int) -> int:
        """Of a virtual stage's forward beside a backward of the same rank's chunk."""
        return self.stages * (KINDS + 1) + forward * self.chunks + chunk


class Program(NamedTuple):
    """An order, written as steps."""

    steps: tuple[Step, ...]
    """Every step behind its input and behind those of its rank that come before it."""
    ranks: tuple[tuple[int, ...], ...]
    """Steps of each rank, by number, in the rank's order."""


class Lengths(NamedTuple):
    """Seconds of each pass of each stage."""

    work: tuple[float, ...]
    """Of the pass."""
    sending: tuple[float, ...]
    """For which a send occupies the rank behind the pass."""
    hop: tuple[float, ...]
    """From the end of the pass whose output is needed until it has arrived; 0 where none is needed."""


def program(order: Order) -> Program:
    """The steps of an order; raises `RuntimeError` where ranks wait for each other."""
    stages = [[order.virtual_stage(rank, chunk) for chunk in range(order.chunks)] for rank in range(order.pipeline)]
    last = order.pipeline * order.chunks - 1
    steps: list[Step] = []
    numbers: dict[tuple[int, int], int] = {}
    sleepers: dict[tuple[int, int], int] = {}
    taken: list[list[int]] = [[] for _ in order.ranks]
    ready = deque(range(order.pipeline))
    paired = None if order.pairs is None else Pairs(stages=last + 1, chunks=order.chunks)
    while ready:
        rank = ready.popleft()
        events = order.ranks[rank]
        for position in range(len(taken[rank]), len(events)):
            kind, chunk, micro_batch = events[position]
            number, needed = _numbered(kind, stages[rank][chunk], last)
            source = numbers.get((needed, micro_batch))
            if source is None and needed != _NO_INPUT:
                sleepers[needed, micro_batch] = rank
                break
            done = [(number, micro_batch)]
            if paired is not None:
                number, done = _beside(order, paired, rank, position, done)
            taken[rank].append(len(steps))
            for output in done:
                numbers[output] = len(steps)
                if output in sleepers:
                    ready.append(sleepers.pop(output))
            steps.append((rank, _NO_INPUT if source is None else source, number))
    if sleepers:
        msg = f"the schedule's ranks {sorted(sleepers.values())} wait for each other"
        raise RuntimeError(msg)
    return Program(steps=tuple(steps), ranks=tuple(map(tuple, taken)))


def _beside(
    order: Order, paired: Pairs, rank: int, position: int, done: list[tuple[int, int]]
) -> tuple[int, list[tuple[int, int]]]:
    """Number of a rank's step, and the outputs that it has when it ends, where passes run beside each other."""
    events, first = order.ranks[rank], order.pairs[rank] if order.pairs else 0
    kind, chunk, _ = events[position]
    if kind is Kind.F and position >= first:
        return paired.waiting(order.virtual_stage(rank, chunk)), []
    if kind is Kind.B and position > first and events[position - 1].kind is Kind.F:
        forward = order.virtual_stage(rank, events[position - 1].chunk)
        return paired.both(forward, chunk), [*done, (forward * KINDS, events[position - 1].micro_batch)]
    return done[0][0], done


def _numbered(kind: Kind, place: int, last: int) -> tuple[int, int]:
    """Number of a stage's pass, and of the pass of another stage whose output it needs, or `_NO_INPUT`."""
    if kind is Kind.F:
        return place * KINDS, _NO_INPUT if place == 0 else (place - 1) * KINDS
    if kind is Kind.B:
        return place * KINDS + 1, _NO_INPUT if place == last else (place + 1) * KINDS + 1
    return place * KINDS + 2, _NO_INPUT


def lengths(
    order: Order,
    durations: Sequence[Sequence[ChunkDurations]],
    transfer: Sequence[float],
    *,
    blocking: bool,
    hidden: Hidden | None = None,
) -> Lengths:
    """Seconds of the passes of an order; the meaning of the other arguments is that of `longest_path`."""
    ranks = [order.rank_of(stage) for stage in range(order.pipeline * order.chunks)]
    hops = [
        0.0 if one == other else transfer[min(one, other) if abs(one - other) == 1 else max(one, other)]
        for one, other in pairwise(ranks)
    ]
    work: list[float] = []
    sends: list[float] = []
    for stage, (before, after) in enumerate(zip((0.0, *hops), (*hops, 0.0), strict=True)):
        one = durations[ranks[stage]][stage // order.pipeline]
        back = one.backward_input + (0.0 if order.splits_backward else one.backward_weight)
        work += (one.forward, back, one.backward_weight)
        sends += (after, before, 0.0)
    arriving = [0.0] * len(work)
    for stage, hop in enumerate(hops):
        arriving[(stage + 1) * KINDS] = arriving[stage * KINDS + 1] = hop
    if order.pairs is not None:
        _add_pairs(order, hidden, work, sends, arriving)
    return Lengths(work=tuple(work), sending=tuple(sends) if blocking else (0.0,) * len(work), hop=tuple(arriving))


def _add_pairs(
    order: Order, hidden: Hidden | None, work: list[float], sends: list[float], arriving: list[float]
) -> None:
    """Lengthen the lists by what `Pairs` numbers."""
    stages = range(order.pipeline * order.chunks)
    work += [0.0] * len(stages)
    sends += [0.0] * len(stages)
    arriving += [arriving[stage * KINDS] for stage in stages]
    for stage in stages:
        rank = order.rank_of(stage)
        for chunk in range(order.chunks):
            ahead, back = stage * KINDS, order.virtual_stage(rank, chunk) * KINDS + 1
            less = hidden[rank][stage // order.pipeline][chunk] if hidden else 0.0
            work.append(work[ahead] + work[back] - less)
            sends.append(sends[ahead] + sends[back])
            arriving.append(arriving[back])


def advance(steps: Sequence[Step], first: int, known: Lengths, ends: list[float], clock: list[float]) -> None:
    """Run `steps`, which are numbered from `first`, as soon as their ranks and inputs are ready.

    `ends` gets when each has done its work, and must end with a 0; `clock` holds when each rank is free.
    """
    work, sending, hop = known
    at = first
    for rank, source, number in steps:
        arrived = ends[source] + hop[number]
        end = clock[rank]
        if arrived > end:  # noqa: PLR1730 - `max` would take as long as all the rest
            end = arrived
        end += work[number]
        ends[at] = end
        clock[rank] = end + sending[number]
        at += 1


def begun(steps: Sequence[Step], known: Lengths, ends: Sequence[float], numbers: Sequence[int]) -> tuple[float, ...]:
    """When a rank began each of its steps, `numbers` from its first on, whose `ends` are known."""
    free, starts = 0.0, []
    for at in numbers:
        _, source, number = steps[at]
        starts.append(max(free, ends[source] + known.hop[number]))
        free = ends[at] + known.sending[number]
    return tuple(starts)
