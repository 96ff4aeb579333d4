"""Schedules over two chunks a rank whose second runs back up the ranks: ZB-V, V-Half, V-Min.

Qi et al., Pipeline Parallelism with Controllable Memory (arXiv 2405.15362): a schedule repeats a building block, the
passes of one micro batch at fixed distances; how long the block keeps activations decides the memory.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

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
    """A block for every micro batch, passes moved forward in time where their inputs and the memory allow.

    Forwards and backwards keep the order of the repeated blocks. `W` fills what is free, and comes before a forward
    that memory has no room for: never more is kept than the repeated blocks keep. It is simulated step by step, so that
    no two ranks can wait for each other.
    """
    blocks = [block(rank) for rank in range(pipeline)]
    limit = max(map(_block_memory, blocks))
    ranks = [
        _Rank(passes=_in_order(each, micro_batches), stages=(rank, 2 * pipeline - 1 - rank))
        for rank, each in enumerate(blocks)
    ]
    done = [[0] * (2 * pipeline) for _ in "FB"]
    while any(len(rank.events) < PASSES * micro_batches for rank in ranks):
        ran = [rank.step(done, limit) for rank in ranks]
        for event, rank in zip(ran, ranks, strict=True):
            if event is not None and event.kind is not Kind.W:
                done[event.kind is Kind.B][rank.stages[event.chunk]] += 1
    return tuple(tuple(rank.events) for rank in ranks)


def _in_order(block: Block, micro_batches: int) -> list[Event]:
    """Forwards and backwards of repeated blocks, by the time at which they start."""
    starts = sorted(
        (start + PASSES * index, kind, chunk, index) for start, kind, chunk in block for index in range(micro_batches)
    )
    return [Event(kind, chunk, index) for _, kind, chunk, index in starts]


def _block_memory(block: Block) -> int:
    """Most passes kept at a time by endlessly repeated blocks whose `W` take the free places in turn."""
    length = max(start for start, _, _ in block)
    repeats = range(length // PASSES + 2)
    kinds = {start + PASSES * index: kind for start, kind, _ in block for index in repeats}
    alive = waiting = most = 0
    for time in range(length + PASSES):
        kind = kinds.get(time)
        if kind is Kind.F:
            alive += 1
            most = max(most, alive)
        elif kind is Kind.B:
            waiting += 1
        elif waiting:
            waiting -= 1
            alive -= 1
    return most


@dataclass(kw_only=True, slots=True)
class _Rank:
    """One rank of a schedule that is being built."""

    passes: list[Event]
    """Forwards and backwards in the order in which it runs them."""
    stages: tuple[int, int]
    """Places of its chunks on a micro batch's way."""
    events: list[Event] = field(default_factory=list)
    """What it has run, in order."""
    waiting: list[Event] = field(default_factory=list)
    """Weight gradients in the order in which they became possible, those that it has run included."""
    weights: int = 0
    """Weight gradients that it has run."""
    alive: int = 0
    """Passes whose activations it keeps."""

    def step(self, done: list[list[int]], limit: int) -> Event | None:
        """Run a pass, or none where nothing can run; `done[backward][stage]` counts what has run before."""
        following = len(self.events) - self.weights
        event = self.passes[following] if following < len(self.passes) else None
        if event is not None and self._can_run(event, done, limit):
            if event.kind is Kind.F:
                self.alive += 1
            else:
                self.waiting.append(event._replace(kind=Kind.W))
        elif self.weights < len(self.waiting):
            event = self.waiting[self.weights]
            self.weights += 1
            self.alive -= 1
        else:
            return None
        self.events.append(event)
        return event

    def _can_run(self, event: Event, done: list[list[int]], limit: int) -> bool:
        kind, chunk, micro_batch = event
        stage = self.stages[chunk]
        if kind is Kind.F:
            return self.alive < limit and (stage == 0 or done[0][stage - 1] > micro_batch)
        last = len(done[1]) - 1
        return (done[0][stage] if stage == last else done[1][stage + 1]) > micro_batch
