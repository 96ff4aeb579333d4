"""The time of a schedule: the longest path through its partial order."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from projector.job import Schedule
from projector.parallelism.stages import PENDING_PER_STAGE
from projector.projection import ChunkDurations
from projector.schedule.events import Kind, Order, Passes
from projector.schedule.order import ADAPTIVE, ALL_AT_ONCE
from projector.schedule.steady import Kept, run
from projector.schedule.steps import KINDS, Hidden, Lengths, Pairs, advance, begun, lengths, program

LENGTH_UNITS = 9
"""Parts of a micro batch's time on a stage to which the planned lengths of its passes are rounded."""
_MOST_AT_ONCE = 100_000
"""Forward and backward passes above which a schedule that keeps all micro batches is continued from two runs: its
forwards and its backwards each go at the pace of their slowest stage by then."""

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
    saved: tuple[float, ...]
    """Seconds that each rank works less because some passes run beside each other; `busy` is without them."""

    def without_barrier(self) -> "PipelineTime":
        """The phase where ranks begin the next iteration without waiting for each other."""
        return self._replace(seconds=self.span)

    def continued(self, shorter: "PipelineTime", times: int) -> "PipelineTime":
        """Longer by `times` what this is longer than a `shorter` run."""

        def more(one: float, other: float) -> float:
            return one + (one - other) * times

        return PipelineTime(
            seconds=more(self.seconds, shorter.seconds),
            busy=tuple(map(more, self.busy, shorter.busy)),
            sending=tuple(map(more, self.sending, shorter.sending)),
            span=more(self.span, shorter.span),
            saved=tuple(map(more, self.saved, shorter.saved)),
        )

    def repeated(self, times: int) -> "PipelineTime":
        """Several runs one after another."""
        return PipelineTime(
            span=self.span * times,
            seconds=self.seconds * times,
            busy=tuple(seconds * times for seconds in self.busy),
            sending=tuple(seconds * times for seconds in self.sending),
            saved=tuple(seconds * times for seconds in self.saved),
        )


def longest_path(
    order: Order,
    durations: Durations,
    transfer: Sequence[float],
    *,
    blocking: bool = False,
    hidden: Hidden | None = None,
) -> Timeline:
    """When every event runs if each starts as soon as its rank and its inputs are ready.

    `transfer[rank]` is the time of a send between `rank` and its neighbour `rank + 1` (the last entry wraps to rank 0,
    between chunks), either way. With `blocking` a send occupies its sender, as in Megatron-LM's 1F1B without
    `overlap_p2p_comm`; without, it only delays the receiver. Where the order runs a forward beside a backward, the two
    take less by `hidden[rank][chunk of the forward][chunk of the backward]`.
    """
    found = program(order)
    known = lengths(order, durations, transfer, blocking=blocking, hidden=hidden)
    ends, clock = [0.0] * (len(found.steps) + 1), [0.0] * order.pipeline
    advance(found.steps, 0, known, ends, clock)
    saved = _saved(order, Counter(number for _, _, number in found.steps), hidden)
    starts = [list(begun(found.steps, known, ends, numbers)) for numbers in found.ranks]
    until = [[ends[number] for number in numbers] for numbers in found.ranks]
    if order.pairs is not None:
        _shared(order, durations, starts, until)
    return Timeline(
        starts=tuple(map(tuple, starts)),
        ends=tuple(map(tuple, until)),
        busy=_busy(durations, order.micro_batches, saved),
        sending=_sending(order, known, order.micro_batches),
        finished=tuple(clock),
    )


def _shared(order: Order, durations: Durations, starts: list[list[float]], ends: list[list[float]]) -> None:
    """Give each of two passes that run beside each other its share of their time, so that both can be drawn."""
    for rank, (events, first) in enumerate(zip(order.ranks, order.pairs or (), strict=True)):
        for at in range(first + 1, len(events)):
            if events[at].kind is Kind.B and events[at - 1].kind is Kind.F:
                ahead, back = durations[rank][events[at - 1].chunk], durations[rank][events[at].chunk]
                whole = ahead.forward + back.backward_input + back.backward_weight
                share = ahead.forward / whole if whole else 0.5
                starts[rank][at - 1] = starts[rank][at]
                ends[rank][at - 1] = starts[rank][at] = starts[rank][at] + share * (ends[rank][at] - starts[rank][at])


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
    hidden: Hidden | None = None,
) -> PipelineTime:
    """Totals of the pipeline phase for any number of micro batches, with several chunks in groups of `group`.

    A schedule that is planned by memory may keep `pending` micro batches on a rank, or `PENDING_PER_STAGE`. What a
    schedule repeats once the pipeline is full is not walked every time, with the same result (`steady`). With `hidden`
    a schedule that can run a forward beside a backward does so.
    """
    passes = planned_by(schedule, durations, pending)
    kind = Kept(schedule, len(durations), chunks, group, passes, combined=hidden is not None)
    # Growth is even once every rank has something to do, which two micro batches a rank are enough for.
    most = max(2 * len(durations) + 2, _MOST_AT_ONCE // (2 * len(durations) * chunks))
    if schedule in ALL_AT_ONCE and micro_batches > most:
        shorter, longer = (_walked(kind, count, durations, transfer, blocking=blocking) for count in (most - 1, most))
        return longer.continued(shorter, micro_batches - most)
    return _walked(kind, micro_batches, durations, transfer, blocking=blocking, hidden=hidden)


def _walked(  # noqa: PLR0913 - a schedule and its cost
    kind: Kept,
    micro_batches: int,
    durations: Durations,
    transfer: Sequence[float],
    *,
    blocking: bool,
    hidden: Hidden | None = None,
) -> PipelineTime:
    found = run(kind, micro_batches)
    known = lengths(found.order, durations, transfer[: kind.pipeline], blocking=blocking, hidden=hidden)
    finished, started = found.repeating.walked(known, found.repetitions)
    saved = _saved(found.order, found.counts() if found.order.pairs else Counter(), hidden)
    return PipelineTime(
        seconds=max(finished),
        busy=_busy(durations, micro_batches, saved),
        sending=_sending(found.order, known, micro_batches),
        span=max(end - start for start, end in zip(started, finished, strict=True)),
        saved=saved,
    )


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


def _busy(durations: Durations, micro_batches: int, saved: Sequence[float]) -> tuple[float, ...]:
    """Seconds in which each rank works."""
    works = (sum(one.total for one in rank) * micro_batches for rank in durations)
    return tuple(work - less for work, less in zip(works, saved, strict=True))


def _saved(order: Order, counts: Counter[int], hidden: Hidden | None) -> tuple[float, ...]:
    """Seconds by which each rank's passes take less because some run beside each other."""
    found = [0.0] * order.pipeline
    if order.pairs is not None and hidden is not None:
        paired = Pairs(stages=order.pipeline * order.chunks, chunks=order.chunks)
        for stage in range(paired.stages):
            rank = order.rank_of(stage)
            for chunk, seconds in enumerate(hidden[rank][stage // order.pipeline]):
                found[rank] += seconds * counts[paired.both(stage, chunk)]
    return tuple(found)


def _sending(order: Order, known: Lengths, micro_batches: int) -> tuple[float, ...]:
    """Seconds in which sends occupy each rank."""
    sends = [0.0] * order.pipeline
    for stage in range(order.pipeline * order.chunks):
        sends[order.rank_of(stage)] += sum(known.sending[stage * KINDS : (stage + 1) * KINDS])
    return tuple(seconds * micro_batches for seconds in sends)
