"""The shortest schedule over ranks in a row, found by integer programming (arXiv 2401.10241, appendix G).

`scipy` solves it (HiGHS); it is an optional extra and is imported when it is first needed. A pass is one binary
variable per time at which it may start, so that memory, order and dependencies are linear in them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.util import find_spec
from typing import NamedTuple

from projector.schedule.events import WHOLE, Event, Passes, RankOrder
from projector.schedule.split_backward import BACKWARD, FORWARD, KINDS, WEIGHTS, heuristic

MAXIMUM_PASSES = 72
"""Forwards, backwards and weight gradients of all ranks up to which a program is solved, in a second or two."""
MAXIMUM_STARTS = 1_500
"""Times at which passes may start, over all passes, up to which a program is solved: little room in memory makes the
order long, and a program of thousands takes a minute, whatever its number of passes."""
SEARCHED_NODES = 2_000
"""Nodes of the search tree after which the best schedule so far is taken. No time limit, so that answers agree."""


def solver_installed() -> bool:
    """Whether `scipy` can be imported."""
    return find_spec("scipy") is not None


def solvable(pipeline: int, micro_batches: int) -> bool:
    """Whether a program of this size is solved here: the solver is installed, and the program is small enough."""
    return 3 * pipeline * micro_batches <= MAXIMUM_PASSES and solver_installed()


@lru_cache(maxsize=64)
def shortest(pipeline: int, micro_batches: int, passes: Passes) -> tuple[RankOrder, ...]:
    """The order that ends soonest with what memory may hold; the heuristic's if none is shorter."""
    known = heuristic(pipeline, micro_batches, passes)
    program = _Program(pipeline=pipeline, micro_batches=micro_batches, known=passes)
    end = program.end(known)
    if end <= program.soonest_end:
        return known
    return program.solved(end - 1) or known


class _Pass(NamedTuple):
    """A pass on a rank."""

    rank: int
    """Pipeline rank."""
    kind: int
    """Forward, backward or weight gradient, by number."""
    micro_batch: int
    """Micro batch, from 0."""


@dataclass(frozen=True, kw_only=True)
class _Program:
    """The integer program of one size."""

    pipeline: int
    """Pipeline ranks."""
    micro_batches: int
    """Micro batches."""
    known: Passes
    """Lengths of the passes, and what memory may hold of them."""

    @cached_property
    def passes(self) -> tuple[_Pass, ...]:
        """All passes."""
        return tuple(
            _Pass(rank, kind, index)
            for rank in range(self.pipeline)
            for kind in range(len(KINDS))
            for index in range(self.micro_batches)
        )

    @property
    def soonest_end(self) -> int:
        """No schedule ends before.

        Every rank has all its work behind its first input, or behind its first gradient. The first rank keeps a micro
        batch while it visits all ranks and comes back, so that no more than memory may hold are on their way at a time;
        where that is one alone, nothing of the one before may wait beside it.
        """
        forward, back, weight = self.known.lengths
        work = self.micro_batches * (forward + back + weight)
        turn = self.pipeline * forward + (self.pipeline - 1) * back
        rounds = -(-self.micro_batches // self.known.limit)
        waits = rounds if self.known.limit == 1 and self.known.waiting else 1
        visits = rounds * self.pipeline * (forward + back) + waits * weight
        return max((self.pipeline - 1) * forward + work, turn + self.micro_batches * (back + weight), visits)

    def end(self, ranks: tuple[RankOrder, ...]) -> int:
        """When the last pass of an order ends if each starts as soon as it can."""
        ends: dict[_Pass, int] = {}
        clocks, places = [0] * self.pipeline, [0] * self.pipeline
        while len(ends) < len(self.passes):
            for rank, events in enumerate(ranks):
                while places[rank] < len(events):
                    kind, _, index = events[places[rank]]
                    one = _Pass(rank, KINDS.index(kind), index)
                    inputs = tuple(self.inputs(one))
                    if not all(each in ends for each in inputs):
                        break
                    start = max([clocks[rank], *(ends[each] for each in inputs)])
                    clocks[rank] = ends[one] = start + self.known.lengths[one.kind]
                    places[rank] += 1
        return max(clocks)

    def inputs(self, one: _Pass) -> Iterator[_Pass]:
        """The passes that must have ended: what hands over the data, and the same pass of the micro batch before."""
        rank, kind, index = one
        if kind == FORWARD and rank:
            yield _Pass(rank - 1, FORWARD, index)
        elif kind == BACKWARD:
            yield _Pass(rank + 1, BACKWARD, index) if rank + 1 < self.pipeline else _Pass(rank, FORWARD, index)
        elif kind == WEIGHTS:
            yield _Pass(rank, BACKWARD, index)
        if index:
            yield _Pass(rank, kind, index - 1)

    def windows(self, end: int) -> dict[_Pass, range]:
        """Times at which each pass may start so that everything ends by `end`; empty ranges where that cannot be."""
        earliest = dict.fromkeys(self.passes, 0)
        latest = {one: end - self.known.lengths[one.kind] for one in self.passes}
        ordered = sorted(self.passes, key=lambda one: (one.kind, one.micro_batch, self._depth(one)))
        for one in ordered:
            for other in self.inputs(one):
                earliest[one] = max(earliest[one], earliest[other] + self.known.lengths[other.kind])
        for one in reversed(ordered):
            for other in self.inputs(one):
                latest[other] = min(latest[other], latest[one] - self.known.lengths[other.kind])
        return {one: range(earliest[one], latest[one] + 1) for one in self.passes}

    def _depth(self, one: _Pass) -> int:
        """Place of a pass's rank on the micro batch's way."""
        return -one.rank if one.kind == BACKWARD else one.rank

    def solved(self, end: int) -> tuple[RankOrder, ...] | None:
        """The order that ends soonest, by `end` at the latest; None where none was found, or too many are to try."""
        windows = self.windows(end)
        if not all(windows.values()) or sum(map(len, windows.values())) > MAXIMUM_STARTS:
            return None
        rows = _Rows({(one, start): index for index, (one, start) in enumerate(_starts(windows))}, windows)
        for one in self.passes:
            rows.add(rows.begun(one, end), at_least=1, at_most=1)
            for other in self.inputs(one):
                for time in windows[one]:
                    late = rows.begun(other, time - self.known.lengths[other.kind])
                    rows.add(rows.begun(one, time) | dict.fromkeys(late, -1), at_most=0)
        for rank in range(self.pipeline):
            here = [one for one in self.passes if one.rank == rank]
            for time in range(end):
                rows.add(self._running(rows, here, time), at_most=1)
                rows.add(self._alive(rows, here, time), at_most=self.known.limit * WHOLE)
        found = rows.minimised(
            {rows.columns[one, start]: start for one, start in _starts(windows) if one.kind == WEIGHTS}
        )
        if found is None:
            return None
        chosen = sorted((start, one) for (one, start), column in rows.columns.items() if found[column] > 1 / 2)
        return tuple(
            tuple(Event(KINDS[one.kind], 0, one.micro_batch) for _, one in chosen if one.rank == rank)
            for rank in range(self.pipeline)
        )

    def _running(self, rows: "_Rows", here: list[_Pass], time: int) -> dict[int, int]:
        """What keeps a rank busy at a time."""
        return {
            rows.columns[one, start]: 1
            for one in here
            for start in range(time - self.known.lengths[one.kind] + 1, time + 1)
            if (one, start) in rows.columns
        }

    def _alive(self, rows: "_Rows", here: list[_Pass], time: int) -> dict[int, int]:
        """What a rank keeps in memory at a time, in parts of a micro batch."""
        ends = {BACKWARD: self.known.waiting - WHOLE, WEIGHTS: -self.known.waiting}
        alive: dict[int, int] = {}
        for one in here:
            if one.kind == FORWARD:
                alive |= dict.fromkeys(rows.begun(one, time), WHOLE)
            else:
                ended = rows.begun(one, time - self.known.lengths[one.kind])
                alive |= dict.fromkeys(ended, ends[one.kind])
        return alive


def _starts(windows: dict[_Pass, range]) -> Iterator[tuple[_Pass, int]]:
    return ((one, start) for one, window in windows.items() for start in window)


class _Rows:
    """Linear constraints over binary variables, each a pass and the time at which it starts."""

    def __init__(self, columns: dict[tuple[_Pass, int], int], windows: dict[_Pass, range]) -> None:
        self.columns = columns
        self._windows = windows
        self._entries: list[tuple[int, int, int]] = []
        self._bounds: list[tuple[float, float]] = []

    def begun(self, one: _Pass, time: int) -> dict[int, int]:
        """The variables of which one is 1 where the pass has begun at a time."""
        return {self.columns[one, start]: 1 for start in self._windows[one] if start <= time}

    def add(self, row: dict[int, int], *, at_most: float, at_least: float = float("-inf")) -> None:
        """Bound a sum of variables with their factors."""
        self._entries += [(factor, len(self._bounds), column) for column, factor in row.items()]
        self._bounds.append((at_least, at_most))

    def minimised(self, costs: dict[int, int]) -> list[float] | None:
        """Values of the variables that obey all rows at the least cost; None where nothing was found."""
        from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - an optional extra
        from scipy.sparse import csr_array  # noqa: PLC0415 - an optional extra

        factors, rows, columns = zip(*self._entries, strict=True)
        matrix = csr_array((factors, (rows, columns)), shape=(len(self._bounds), len(self.columns)))
        lower, upper = zip(*self._bounds, strict=True)
        result = milp(
            [costs.get(column, 0) for column in range(len(self.columns))],
            integrality=[1] * len(self.columns),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(matrix, lower, upper),
            options={"node_limit": SEARCHED_NODES},
        )
        return None if result.x is None else list(result.x)
