"""The longest path through a schedule that repeats itself, without walking all of its repetitions.

Once a pipeline is full, every rank repeats the same passes for every further micro batch, or for every group of them.
A pass starts at the later of two times (when its rank is free, when its input arrives), so while the same of the two
decide, each step starts and ends later by a constant of its own per repetition. That holds until another sum overtakes,
which can be told ahead, so that many repetitions are taken at once and the result is that of walking all of them.
"""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import floor, inf
from operator import add, sub
from typing import NamedTuple

from projector.job import Schedule
from projector.projection import ChunkDurations
from projector.schedule.events import Event, Kind, Order, Passes, RankOrder
from projector.schedule.order import ALL_AT_ONCE, IN_GROUPS, order
from projector.schedule.steps import Lengths, Program, Step, advance, begun, lengths, program

_ROUNDING = 1e-12
"""Share of a time by which it may be off through rounding, and count as equal. Ends that differ by it stay as close,
because a longest path grows by no more than what its beginning does."""


_FILLINGS = (4, 6)
"""Times that a run fills the pipeline among which one is looked for in which every rank repeats itself."""
_LONGEST_CYCLE = 32
"""Repetitions after which ends may come back to the same distances: where sends decide the pace, they do so after as
many micro batches as are on the way around two ranks."""
_SEVERAL = (1, 2, 4)
"""Micro batches that may make up a repetition."""


class Walk(NamedTuple):
    """How a longest path ended."""

    finished: tuple[float, ...]
    """When each rank is through."""
    begun: tuple[float, ...]
    """When each rank began."""


class Repeating(NamedTuple):
    """A schedule with two repetitions behind each other, the second of which can be had any number of times."""

    steps: tuple[Step, ...]
    """Until the pipeline is full, two repetitions, and until it is empty."""
    firsts: tuple[int, ...]
    """Each rank's first step, by number."""
    begin: int
    """Number of the first repetition's first step."""
    size: int
    """Steps of a repetition."""
    lasts: tuple[int, ...]
    """Places, in a repetition, of each rank's last step."""
    before: tuple[int, ...]
    """For each step of the second repetition the number of the step that its rank takes before it."""

    def walked(self, known: Lengths, repetitions: int) -> Walk:
        """The longest path with so many repetitions, two or more."""
        begin, middle, end = self.begin, self.begin + self.size, self.begin + 2 * self.size
        ends = [0.0] * (len(self.steps) + 1)
        clock = [0.0] * len(self.firsts)
        advance(self.steps[:end], 0, known, ends, clock)
        second = self.steps[middle:end]
        past = [ends[begin:middle], ends[middle:end]]
        left = repetitions - 2
        while left:
            taken, growth = self._jump(known, ends, past, left)
            if taken:
                left -= taken
                past = [list(map(add, part, growth)) for part in past[-2:]]
                ends[begin:end] = [*past[0], *past[1]]
                clock = [free + growth[last] for free, last in zip(clock, self.lasts, strict=True)]
            if left:
                left -= 1
                ends[begin:middle] = ends[middle:end]
                advance(second, middle, known, ends, clock)
                past = [*past[-_LONGEST_CYCLE:], ends[middle:end]]
        advance(self.steps[end:], end, known, ends, clock)
        return Walk(
            finished=tuple(clock), begun=tuple(begun(self.steps, known, ends, [first])[0] for first in self.firsts)
        )

    def _jump(
        self, known: Lengths, ends: Sequence[float], past: Sequence[Sequence[float]], left: int
    ) -> tuple[int, list[float]]:
        """Repetitions, of those `left`, that can be taken at once, and by how much each step then ends later.

        `past` are the ends in all repetitions so far, or in the last of them. Each repetition follows from the one
        before alone, so that ends which come back, all later by the same, do so for ever.
        """
        tolerance = _ROUNDING * max(past[-1])
        for cycle in range(1, min(left, len(past) - 1) + 1):
            growth = _evenly(past[-1], past[-1 - cycle], tolerance)
            if growth is not None:
                taken = left // cycle
                return taken * cycle, [taken * growth] * self.size
        own = list(map(sub, past[-1], past[-2]))
        taken = self._linear(known, ends, own, tolerance, left)
        return taken, [taken * grown for grown in own]

    def _linear(
        self, known: Lengths, ends: Sequence[float], growth: Sequence[float], tolerance: float, most: int
    ) -> int:
        """Repetitions, at most so many, for which every step goes on growing by its `growth`."""
        begin, middle = self.begin, self.begin + self.size
        for (_, source, number), before, grown in zip(
            self.steps[middle : middle + self.size], self.before, growth, strict=True
        ):
            own = ends[before] + known.sending[self.steps[before][2]]
            own_grown = growth[(before - begin) % self.size]
            if source < 0:
                decisive, lead, gain = own_grown, inf, 0.0
            else:
                lead = own - ends[source] - known.hop[number]
                gain = growth[(source - begin) % self.size] - own_grown
                decisive = own_grown
                if lead < 0 or (lead <= tolerance and gain > 0):
                    decisive, lead, gain = own_grown + gain, -lead, -gain
            if abs(decisive - grown) > tolerance:
                return 0
            if gain > tolerance:
                most = min(most, max(0, floor(lead / gain)))
        return most


def _evenly(later: Sequence[float], earlier: Sequence[float], tolerance: float) -> float | None:
    """What all are later by; None where they differ in that."""
    grown = later[0] - earlier[0]
    if abs(later[-1] - earlier[-1] - grown) > tolerance:
        return None
    growth = list(map(sub, later, earlier))
    return grown if max(growth) - min(growth) <= tolerance else None


class Kept(NamedTuple):
    """What decides an order beside the number of micro batches."""

    schedule: Schedule
    """The schedule."""
    pipeline: int
    """Pipeline ranks."""
    chunks: int
    """Model chunks per rank."""
    group: int | None
    """Micro batches that a chunk takes at a time; None for one per rank."""
    passes: Passes | None
    """The passes, for schedules that are planned by them."""
    combined: bool = False
    """Forwards run beside the backwards that follow them."""

    def order(self, micro_batches: int) -> Order:
        """The order of so many micro batches."""
        schedule, pipeline, chunks, group, passes, combined = self
        return order(schedule, pipeline, chunks, micro_batches, group, passes=passes, combined=combined)


class Run(NamedTuple):
    """An order of any length."""

    order: Order
    """The order, with fewer repetitions where it is long."""
    repeating: Repeating
    """Its steps."""
    repetitions: int
    """How often it repeats itself; 2 where it is not repeated."""

    def counts(self) -> Counter[int]:
        """How often each pass of each stage runs."""
        begin, size, steps = self.repeating.begin, self.repeating.size, self.repeating.steps
        found = Counter(number for _, _, number in steps)
        for _, _, number in steps[begin : begin + size]:
            found[number] += self.repetitions - 2
        return found


@lru_cache(maxsize=64)
def run(kind: Kept, micro_batches: int) -> Run:
    """The order of a schedule, raises what `order` raises; what repeats itself is found once for many lengths."""
    filling = kind.group or kind.pipeline
    step = filling if kind.schedule in IN_GROUPS else 1
    for fillings in _FILLINGS if kind.schedule not in ALL_AT_ONCE else ():
        for several in _SEVERAL if step == 1 else (1,):
            size = step * several
            count = fillings * filling
            count += (micro_batches - count) % size
            if count + size <= micro_batches:
                found = _repeating(kind, count, size)
                if found is not None:
                    return Run(kind.order(count), found, 2 + (micro_batches - count) // size)
    whole = kind.order(micro_batches)
    return Run(whole, _whole(program(whole)), 2)


@lru_cache(maxsize=64)
def _repeating(kind: Kept, micro_batches: int, step: int) -> Repeating | None:
    return repeating(kind.order(micro_batches), kind.order(micro_batches + step), step)


def _whole(known: Program) -> Repeating:
    """Nothing repeated."""
    count = len(known.steps)
    return Repeating(
        steps=known.steps, firsts=tuple(rank[0] for rank in known.ranks), begin=count, size=0, lasts=(), before=()
    )


def repeating(shorter: Order, longer: Order, step: int) -> Repeating | None:
    """An order in which ranks do the same twice, `step` micro batches on; None where there is no such place.

    `longer` is the order for `step` micro batches more: it must do the same once more, and nothing else.
    """
    known = program(shorter)
    ends = _ends(known, shorter)
    length = step * shorter.chunks * (3 if shorter.splits_backward else 2)
    for first in range(step, shorter.micro_batches - step, step):
        moment = ends[known.ranks[0][shorter.ranks[0].index(Event(Kind.F, 0, first))]]
        cuts = [sum(ends[number] < moment for number in numbers) for numbers in known.ranks]
        ranks = zip(shorter.ranks, longer.ranks, cuts, strict=True)
        if all(_repeats(rank, more, cut, length, step) for rank, more, cut in ranks):
            found = _rewritten(known, cuts, length)
            if found is not None:
                return found
    return None


def _ends(known: Program, order: Order) -> list[float]:
    """When steps end if passes take equally long, a whole backward twice as long."""
    uniform = ChunkDurations(forward=1.0, backward_input=1.0, backward_weight=1.0)
    passes = lengths(order, [[uniform] * order.chunks] * order.pipeline, [0.0] * order.pipeline, blocking=False)
    ends, clock = [0.0] * (len(known.steps) + 1), [0.0] * order.pipeline
    advance(known.steps, 0, passes, ends, clock)
    return ends


def _repeats(rank: RankOrder, longer: RankOrder, cut: int, length: int, step: int) -> bool:
    """Whether a rank does the same in `length` events from `cut` on and in as many behind, and `longer` once more."""
    end = cut + 2 * length
    same = _later(rank[cut : cut + length], step) == rank[cut + length : end]
    return same and longer == rank[:end] + _later(rank[cut + length :], step)


def _later(events: RankOrder, step: int) -> RankOrder:
    """The same of micro batches that come `step` later."""
    return tuple(Event(kind, chunk, micro_batch + step) for kind, chunk, micro_batch in events)


def _rewritten(known: Program, cuts: Sequence[int], length: int) -> Repeating | None:
    """A program's steps with two repetitions of each rank's `length` events from `cuts` on behind each other.

    None where a repetition needs what ended before the one that it follows.
    """
    filling: list[int] = []
    first: list[int] = []
    emptying: list[int] = []
    following: dict[int, int] = {}
    for numbers, cut in zip(known.ranks, cuts, strict=True):
        following |= zip(numbers[cut : cut + length], numbers[cut + length : cut + 2 * length], strict=True)
        filling += numbers[:cut]
        first += numbers[cut : cut + length]
        emptying += numbers[cut + 2 * length :]
    for part in (filling, first, emptying):
        part.sort()
    placed = [*filling, *first, *map(following.__getitem__, first), *emptying]
    renamed = {number: place for place, number in enumerate(placed)} | {-1: -1}
    steps = tuple((rank, renamed[source], number) for rank, source, number in map(known.steps.__getitem__, placed))
    before = {renamed[later]: renamed[earlier] for rank in known.ranks for earlier, later in pairwise(rank)}
    begin, size = len(filling), len(first)
    if any(0 <= source < begin for _, source, _ in steps[begin + size :]):
        return None
    return Repeating(
        steps=steps,
        firsts=tuple(renamed[rank[0]] for rank in known.ranks),
        begin=begin,
        size=size,
        lasts=tuple(renamed[numbers[cut + length - 1]] - begin for numbers, cut in zip(known.ranks, cuts, strict=True)),
        before=tuple(before[at] for at in range(begin + size, begin + 2 * size)),
    )
