"""Schedules over two chunks a rank whose second runs back up the ranks: ZB-V, V-Half, V-Min.

Qi et al., Pipeline Parallelism with Controllable Memory (arXiv 2405.15362): a schedule repeats a building block, the
passes of one micro batch at fixed distances; how long the block keeps activations decides the memory.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf

from projector.schedule.events import Event, Kind, RankOrder

PASSES = 6
"""Passes of a micro batch on a rank: forward, backward and weight gradient of two chunks; the distance of blocks."""

Block = tuple[tuple[int, Kind, int], ...]
"""Start, kind and chunk of a micro batch's forwards and backwards on a rank, in passes of equal length."""


def zero_bubble_v(rank: int, pipeline: int, chunks: int, micro_batches: int) -> RankOrder:
    """ZB-V (arXiv 2401.10241, section 6; arXiv 2405.15362): as much memory as 1F1B's first rank, on every rank.

    Each `W` comes right behind its `B` except where the pipeline drains. The pattern is that of at least
    2 x `pipeline` - 1 micro batches; with fewer, the events of missing ones drop out.
    """
    total = max(2 * pipeline - 1, micro_batches)
    count = dict.fromkeys(((kind, chunk) for kind in "FBW" for chunk in range(chunks)), 0)
    events: list[Event] = []
    for chunk, kinds in _zero_bubble_v_pattern(rank, pipeline, total):
        for kind in kinds:
            index = count[kind, chunk]
            count[kind, chunk] += 1
            if index < micro_batches:
                events.append(Event(Kind(kind), chunk, index))
    return tuple(events)


def _zero_bubble_v_pattern(rank: int, pipeline: int, total: int) -> Iterator[tuple[int, str]]:
    """Chunk and kinds of event in order; each kind of a chunk goes on to its next micro batch."""
    following = pipeline - rank
    steady = total - (2 * pipeline - rank - 1)
    yield from [(0, "F")] * (2 * following - 1)
    yield from [(1, "F"), (0, "F")] * rank
    yield from [(1, "FBW")] * following
    yield from [(0, "FBW"), (1, "FBW")] * steady
    yield from [(0, "BW"), (1, "FBW")] * (following - 1)
    yield from [(0, "B"), (1, "B")] * rank
    yield from [(0, "BW")] * following
    yield from [(1, "W")] * rank
    yield from [(0, "W")] * rank


def v_half(pipeline: int, micro_batches: int) -> tuple[RankOrder, ...]:
    """V-Half: activations of about half of what 1F1B's first rank keeps, on every rank."""
    return _repeated(partial(_half_block, pipeline), pipeline, micro_batches)


def v_min(pipeline: int, micro_batches: int) -> tuple[RankOrder, ...]:
    """V-Min: activations of about a third of what 1F1B's first rank keeps, on every rank, for more bubbles."""
    return _repeated(partial(_min_block, pipeline), pipeline, micro_batches)


def _half_block(pipeline: int, rank: int) -> Block:
    """Down in steps of two passes, up in steps of one, forward and backward alike (arXiv 2405.15362, figure 4).

    With an even pipeline the backward half starts three passes later, so that no two passes fall together.
    """
    gap = 3 if pipeline % 2 == 0 else 0
    return (
        (2 * rank, Kind.F, 0),
        (3 * pipeline - rank - 2, Kind.F, 1),
        (3 * pipeline + gap + 2 * rank - 1, Kind.B, 1),
        (6 * pipeline + gap - rank - 2, Kind.B, 0),
    )


def _min_block(pipeline: int, rank: int) -> Block:
    """Down and up in steps of one pass; two more in between where the pipeline is a multiple of three, as above."""
    gap = 2 if pipeline % 3 == 0 else 0
    return (
        (rank, Kind.F, 0),
        (2 * pipeline - rank - 1, Kind.F, 1),
        (2 * pipeline + gap + rank, Kind.B, 1),
        (4 * pipeline + gap - rank - 1, Kind.B, 0),
    )


def _repeated(block: Callable[[int], Block], pipeline: int, micro_batches: int) -> tuple[RankOrder, ...]:
    """A block for every micro batch, whose passes then move into earlier free places, as Primus has it.

    Its search (AMD-AGI/Primus primus/core/pipeline_parallel/scheduler/algorithms/zbv_greedy.py) gives each pass one
    place in time. Weight gradients take free places in turn. Then passes move forward, one after the other by their
    place, as far as their inputs and the highest memory of any rank so far allow. Those behind a rank's last forward
    move once more whatever memory they take, and its weight gradients into what is left.
    """
    ranks = [_Rank(block(rank), micro_batches) for rank in range(pipeline)]
    search = _Search(ranks, most=max(rank.most for rank in ranks))
    search.move_forward()
    search.empty()
    return tuple(rank.order() for rank in ranks)


_FORWARD, _BACKWARD, _WEIGHTS = range(3)
_KINDS = (Kind.F, Kind.B, Kind.W)
_KEPT = (1, 0, -1)
"""What a forward, a backward and a weight gradient add to the passes whose activations are kept."""


class _Rank:
    """One rank's passes, each at a place in time; passes are numbers, since hashing events takes most of a search."""

    def __init__(self, block: Block, micro_batches: int) -> None:
        """Repeat the block, with weight gradients in free places."""
        self.count = micro_batches
        self.kinds = [kind for kind in range(len(_KINDS)) for _ in range(2 * micro_batches)]
        """Whether a pass is a forward, a backward or a weight gradient."""
        self.place = [0] * (PASSES * micro_batches)
        """Of every pass."""
        self.passes: dict[int, int] = {}
        """The same the other way round."""
        self._next: dict[int, int] = {}
        """Where to look on behind a place that is taken for good."""
        self.most = 0
        """Most passes whose activations are kept, before any moves."""
        self.emptying: set[int] = set()
        """Passes behind its last forward, with few micro batches until the first is through."""
        for start, kind, chunk in block:
            for index in range(micro_batches):
                self.put(self.number(_KINDS.index(kind), chunk, index), start + PASSES * index)
        self._add_weight_gradients()

    def number(self, kind: int, chunk: int, index: int) -> int:
        """The number of a pass of a micro batch."""
        return (kind * 2 + chunk) * self.count + index

    def _add_weight_gradients(self) -> None:
        waiting: deque[int] = deque()
        last = max(self.passes)
        last_forward = self.place[self.number(_FORWARD, 1, self.count - 1)]
        first_backward = self.place[self.number(_BACKWARD, 0, 0)]
        until = first_backward if last_forward < first_backward else inf
        at = kept = 0
        while at <= last or waiting:
            number = self.passes.get(at)
            if number is None and waiting:
                number = waiting.popleft() + 2 * self.count
                self.put(number, at)
            elif number is not None and self.kinds[number] == _BACKWARD:
                waiting.append(number)
            if number is not None:
                kept += _KEPT[self.kinds[number]]
                if last_forward < at <= until:
                    self.emptying.add(number)
            self.most = max(self.most, kept)
            at += 1

    def put(self, number: int, place: int) -> None:
        """Give a pass a place."""
        self.place[number] = place
        self.passes[place] = number

    def first_free(self, place: int) -> int:
        """The first free place from `place` on."""
        while place in self.passes:
            place += 1
        return place

    def free_before(self, place: int, until: int) -> int:
        """The first free place from `place` on, or `until`; what lies in between moves no more."""
        passed = []
        while place < until and place in self.passes:
            passed.append(place)
            place = self._next.get(place, place + 1)
        self._next.update(dict.fromkeys(passed, place))
        return place

    def order(self) -> RankOrder:
        """The passes by their place."""
        found = []
        for place in sorted(self.passes):
            row, index = divmod(self.passes[place], self.count)
            found.append(Event(_KINDS[row // 2], row % 2, index))
        return tuple(found)


class _Search:
    """Moves passes of all ranks to earlier places."""

    def __init__(self, ranks: Sequence[_Rank], *, most: int) -> None:
        self._ranks = ranks
        self._most = most

    def move_forward(self) -> None:
        """Move passes as far as inputs and memory allow."""
        kept, last = [0] * len(self._ranks), [-1] * len(self._ranks)
        for rank, number in self._by_place(emptying=False):
            own = self._ranks[rank]
            until, place = own.place[number], self._earliest(rank, number)
            if own.kinds[number] == _FORWARD:
                place = self._with_room(own, place, last=last[rank], until=until, kept=kept[rank])
            place = own.free_before(place, until)
            if place < until:
                del own.passes[until]
                own.put(number, place)
            kept[rank] += _KEPT[own.kinds[number]]
            last[rank] = max(last[rank], min(place, until))

    def _with_room(self, own: _Rank, place: int, *, last: int, until: int, kept: int) -> int:
        """The first place from `place` on behind which one more can be kept until `until`.

        So far the rank's passes reach to `last`, and `kept` of them are kept from there on.
        """
        if kept >= self._most:
            return until
        for at in range(last, place - 1, -1):
            if kept >= self._most:
                return at + 1
            if at in own.passes:
                kept -= _KEPT[own.kinds[own.passes[at]]]
        return place

    def empty(self) -> None:
        """Move what runs behind the last forwards to where its inputs are there, weight gradients last."""
        waiting: list[tuple[int, int]] = []
        for rank, number in self._by_place(emptying=True):
            own = self._ranks[rank]
            del own.passes[own.place[number]]
            if own.kinds[number] == _WEIGHTS:
                waiting.append((rank, number))
            else:
                own.put(number, own.first_free(self._earliest(rank, number)))
        for rank, number in waiting:
            own = self._ranks[rank]
            own.put(number, own.first_free(self._earliest(rank, number)))

    def _by_place(self, *, emptying: bool) -> list[tuple[int, int]]:
        """Passes with their ranks in order of time, all or those behind the last forwards alone."""
        found = [
            (place, rank, number)
            for rank, own in enumerate(self._ranks)
            for place, number in own.passes.items()
            if not emptying or number in own.emptying
        ]
        return [(rank, number) for _, rank, number in sorted(found)]

    def _earliest(self, rank: int, number: int) -> int:
        """The first place at which a pass finds its inputs, and the same pass of the micro batch before behind it."""
        own = self._ranks[rank]
        row, index = divmod(number, own.count)
        kind, chunk = divmod(row, 2)
        before = own.place[number - 1] if index else 0
        if kind == _WEIGHTS:
            return max(before, own.place[number - 2 * own.count])
        stages = 2 * len(self._ranks)
        stage = rank if chunk == 0 else stages - 1 - rank
        source = stage - 1 if kind == _FORWARD else stage + 1
        if source == stages:
            before = max(before, own.place[number - 2 * own.count])
        elif source >= 0:
            chunk = 0 if source < len(self._ranks) else 1
            there = self._ranks[stages - 1 - source if chunk else source]
            before = max(before, there.place[there.number(kind, chunk, index)])
        return before + 1
