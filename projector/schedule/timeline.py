"""The time of a schedule: the longest path through its partial order."""

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from projector.job import Schedule
from projector.parallelism.stages import PENDING_PER_STAGE
from projector.projection import ChunkDurations
from projector.schedule.events import Kind, Order, Passes
from projector.schedule.order import ADAPTIVE, order

_MAX_EVENTS = 4096
"""Events above which `pipeline_time` computes two shorter runs and continues their slope."""
LENGTH_UNITS = 9
"""Parts of a micro batch's time on a stage to which the planned lengths of its passes are rounded."""
_STEADY_FILLINGS = 3
_STEADY_GROUPS = 2
"""Groups of micro batches after which a schedule repeats itself: with one chunk every micro batch,
with several every group."""


Durations: TypeAlias = Sequence[Sequence[ChunkDurations]]
"""By pipeline rank and chunk."""


class Timeline(NamedTuple):
    """When every event runs."""

    starts: tuple[tuple[float, ...], ...]
    """Seconds from the start of the pipeline phase, per rank and event."""
    ends: tuple[tuple[float, ...], ...]
    """When each event has done its work; a blocking send comes on top."""
    busy: tuple[float, ...]
    """Seconds of work per rank."""
    sending: tuple[float, ...]
    """Seconds that blocking sends occupy, per rank."""
    finished: tuple[float, ...]
    """When each rank is through, its last send included."""

    @property
    def seconds(self) -> float:
        """Length of the pipeline phase: until the last rank is through."""
        return max(self.finished)

    @property
    def span(self) -> float:
        """Seconds from the first event of a rank until it is through, on the rank where they are most.

        Iterations follow one another at this pace at most where no rank waits for the others between them.
        """
        begun = zip(self.starts, self.finished, strict=True)
        return max((finished - starts[0] for starts, finished in begun if starts), default=0.0)

    @property
    def bubble(self) -> tuple[float, ...]:
        """Seconds that each rank waits, blocking sends not counted."""
        return tuple(self.seconds - busy - sending for busy, sending in zip(self.busy, self.sending, strict=True))


class PipelineTime(NamedTuple):
    """A timeline's totals, without its events."""

    seconds: float
    """Length of the pipeline phase."""
    busy: tuple[float, ...]
    """Seconds of work per rank."""
    sending: tuple[float, ...]
    """Seconds that blocking sends occupy, per rank."""
    span: float
    """Length of the phase on the rank where it is longest, from its own first event on."""

    def without_barrier(self) -> "PipelineTime":
        """The phase where ranks begin the next iteration without waiting for each other."""
        return self._replace(seconds=self.span)

    def repeated(self, times: int) -> "PipelineTime":
        """Several runs one after another."""
        return PipelineTime(
            span=self.span * times,
            seconds=self.seconds * times,
            busy=tuple(seconds * times for seconds in self.busy),
            sending=tuple(seconds * times for seconds in self.sending),
        )


def longest_path(order: Order, durations: Durations, transfer: Sequence[float], *, blocking: bool = False) -> Timeline:
    """When every event runs if each starts as soon as its rank and its inputs are ready.

    `transfer[rank]` is the time of a send between `rank` and its neighbour `rank + 1` (the last entry wraps to rank 0,
    between chunks), either way. With `blocking` a send occupies its sender, as in Megatron-LM's 1F1B without
    `overlap_p2p_comm`; without, it only delays the receiver.
    """
    walk = _Walk(order, durations, transfer, blocking=blocking)
    walk.run()
    return walk.timeline()


def pipeline_time(  # noqa: PLR0913 - the schedule's own parameters and those of its cost
    schedule: Schedule,
    chunks: int,
    micro_batches: int,
    durations: Durations,
    transfer: Sequence[float],
    *,
    group: int | None = None,
    pending: int | None = None,
    blocking: bool = False,
) -> PipelineTime:
    """Totals of the pipeline phase for any number of micro batches, with several chunks in groups of `group`.

    A schedule that is planned by memory may keep `pending` micro batches on a rank, or `PENDING_PER_STAGE`.

    A schedule repeats itself once the pipeline is full, so long ones are continued from two shorter ones that differ by
    one period: a micro batch with one chunk, a group of them, `pipeline` if not said, with several.
    """
    pipeline = len(durations)
    passes = planned_by(schedule, durations, pending)

    def path(count: int) -> Timeline:
        events = order(schedule, pipeline, chunks, count, group, passes=passes)
        return longest_path(events, durations, transfer[:pipeline], blocking=blocking)

    size = group or pipeline
    step = 1 if chunks == 1 else size
    short_count = micro_batches % step + (size * _STEADY_GROUPS if chunks > 1 else pipeline * _STEADY_FILLINGS)
    if pipeline * chunks * micro_batches * 2 <= _MAX_EVENTS or micro_batches <= short_count + step:
        line = path(micro_batches)
        return PipelineTime(seconds=line.seconds, busy=line.busy, sending=line.sending, span=line.span)
    short, long = path(short_count), path(short_count + step)
    repeats = (micro_batches - short_count) // step
    busy = tuple(one + (other - one) * repeats for one, other in zip(short.busy, long.busy, strict=True))
    sending = tuple(one + (other - one) * repeats for one, other in zip(short.sending, long.sending, strict=True))
    occupied = [after - before for before, after in zip(_occupied(short), _occupied(long), strict=True)]
    seconds, span = (
        start + max(end - start, *occupied) * repeats
        for start, end in ((short.seconds, long.seconds), (short.span, long.span))
    )
    return PipelineTime(seconds=seconds, busy=busy, sending=sending, span=span)


def planned_by(schedule: Schedule, durations: Durations, pending: int | None) -> Passes | None:
    """What a schedule that is planned ahead knows of the passes; None where the schedule is none of these."""
    if schedule not in ADAPTIVE:
        return None
    return planned_passes(durations, pending or PENDING_PER_STAGE * len(durations))


def planned_passes(durations: Durations, limit: int) -> Passes:
    """Forward, backward and weight gradient of the middle stage in whole parts of `LENGTH_UNITS` together.

    The zero-bubble fork of Megatron-LM plans with the median of the stages (zerobubble/runtime.py).
    """
    forward, back, weight = (
        sorted(sum(getattr(chunk, name) for chunk in rank) for rank in durations)[(len(durations) - 1) // 2]
        for name in ("forward", "backward_input", "backward_weight")
    )
    unit = (forward + back + weight) / LENGTH_UNITS or 1.0
    lengths = max(1, round(forward / unit)), max(1, round(back / unit)), max(1, round(weight / unit))
    return Passes(lengths=lengths, limit=limit)


def _occupied(line: Timeline) -> tuple[float, ...]:
    """Seconds in which each rank does something."""
    return tuple(busy + sending for busy, sending in zip(line.busy, line.sending, strict=True))


def _hops(order: Order, transfer: Sequence[float]) -> tuple[float, ...]:
    """Seconds from each virtual stage to the next; 0 behind the last and between two of one rank."""
    ranks = [order.rank_of(stage) for stage in range(order.pipeline * order.chunks)]
    hops = [
        0.0 if one == other else transfer[min(one, other) if abs(one - other) == 1 else max(one, other)]
        for one, other in pairwise(ranks)
    ]
    return (*hops, 0.0)


class _Walk:
    """Runs ranks in turn; one that lacks an input sleeps until the event it waits for has ended.

    Events have flat numbers, because enum members are slow dictionary keys: virtual stage x micro batches + micro batch
    for forwards, shifted by the number of forwards for backwards.
    """

    def __init__(self, order: Order, durations: Durations, transfer: Sequence[float], *, blocking: bool) -> None:
        self._order = order
        self._hops = _hops(order, transfer)
        self._blocking = blocking
        self._stages = order.pipeline * order.chunks
        self._forwards = self._stages * order.micro_batches
        self._arrival: list[float | None] = [None] * (2 * self._forwards)
        self._sleepers: dict[int, int] = {}
        self._clock = [0.0] * order.pipeline
        self._sending = [0.0] * order.pipeline
        self._starts: list[list[float]] = [[] for _ in range(order.pipeline)]
        self._ends: list[list[float]] = [[] for _ in range(order.pipeline)]
        self._busy = tuple(sum(one.total for one in rank) * order.micro_batches for rank in durations)
        merged = not order.splits_backward
        self._lengths = [
            [
                (one.forward, one.backward_input + (one.backward_weight if merged else 0.0), one.backward_weight)
                for one in rank
            ]
            for rank in durations
        ]

    def run(self) -> None:
        """Run every event, or raise when ranks wait for each other."""
        ready = deque(range(self._order.pipeline))
        while ready:
            ready.extend(self._advance(ready.popleft()))
        if self._sleepers:
            msg = f"the schedule's ranks {sorted(self._sleepers.values())} wait for each other"
            raise RuntimeError(msg)

    def _advance(self, rank: int) -> list[int]:
        """Run the events of a rank until an input is missing; the ranks that this wakes."""
        woken: list[int] = []
        events, starts, ends = self._order.ranks[rank], self._starts[rank], self._ends[rank]
        lengths, clock = self._lengths[rank], self._clock[rank]
        stages = [self._order.virtual_stage(rank, chunk) for chunk in range(self._order.chunks)]
        arrival, sleepers, count, last = self._arrival, self._sleepers, self._order.micro_batches, self._stages - 1
        for position in range(len(starts), len(events)):
            kind, chunk, micro_batch = events[position]
            if kind is Kind.W:
                starts.append(clock)
                clock += lengths[chunk][2]
                ends.append(clock)
                continue
            stage = stages[chunk]
            if kind is Kind.F:
                number, edge, step = stage * count + micro_batch, 0, -count
                length, hop = lengths[chunk][0], self._hops[stage]
            else:
                number, edge, step = self._forwards + stage * count + micro_batch, last, count
                length, hop = lengths[chunk][1], self._hops[stage - 1]
            if stage != edge:
                arrived = arrival[number + step]
                if arrived is None:
                    sleepers[number + step] = rank
                    break
                clock = max(clock, arrived)
            starts.append(clock)
            clock += length
            ends.append(clock)
            arrival[number] = clock + hop
            if self._blocking:
                clock += hop
                self._sending[rank] += hop
            if number in sleepers:
                woken.append(sleepers.pop(number))
        self._clock[rank] = clock
        return woken

    def timeline(self) -> Timeline:
        """What was found."""
        return Timeline(
            starts=tuple(map(tuple, self._starts)),
            ends=tuple(map(tuple, self._ends)),
            busy=self._busy,
            sending=tuple(self._sending),
            finished=tuple(self._clock),
        )
