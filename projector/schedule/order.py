"""The order of events on every pipeline rank, per schedule."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache, partial
from sys import maxsize
from typing import NamedTuple, TypeAlias

from projector.errors import BatchIndivisible, ConfigurationError, InputError, LayoutImpossible, NotAvailable
from projector.job import Schedule
from projector.parallelism.batch import groups_suit
from projector.parallelism.stages import V_CHUNKS, V_SHAPED


class Kind(StrEnum):
    """What an event does."""

    F = "F"
    """Forward of one micro batch through one model chunk."""
    B = "B"
    """Backward; towards the input only where the schedule has `W` events, else all of it."""
    W = "W"
    """Backward towards the weights, where the schedule separates it."""


class Event(NamedTuple):
    """One pass of a micro batch through a model chunk. A tuple, because schedules hold very many of them."""

    kind: Kind
    """What is done."""
    chunk: int
    """Model chunk of the rank, from 0."""
    micro_batch: int
    """Micro batch, from 0."""


RankOrder: TypeAlias = tuple[Event, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """A schedule for a number of micro batches: a total order per rank."""

    ranks: tuple[RankOrder, ...]
    """Events of every pipeline rank, in the order in which it runs them."""
    chunks: int
    """Model chunks per rank."""
    micro_batches: int
    """Micro batches of an iteration."""
    splits_backward: bool
    """Backward is separated into `B` and `W`."""
    folded: bool = False
    """Second chunks run back down the ranks, so that rank 0 has the first and the last layers (a V)."""

    def virtual_stage(self, rank: int, chunk: int) -> int:
        """Place of a rank's chunk on a micro batch's way, from 0."""
        if self.folded and chunk % 2:
            return (chunk + 1) * self.pipeline - 1 - rank
        return chunk * self.pipeline + rank

    def rank_of(self, virtual_stage: int) -> int:
        """The rank that holds a virtual stage."""
        chunk, place = divmod(virtual_stage, self.pipeline)
        return self.pipeline - 1 - place if self.folded and chunk % 2 else place

    @property
    def pipeline(self) -> int:
        """Pipeline ranks."""
        return len(self.ranks)


AUTOMATIC = ("auto", "all")
"""What a person may say instead of a schedule's name: what the framework runs, alone or compared with the others."""


def named_schedule(name: str) -> Schedule | None:
    """The schedule called `name`; None for the words of `AUTOMATIC`, which leave the choice to the framework.

    Raises `ConfigurationError` for a name that is none.
    """
    if name in AUTOMATIC:
        return None
    try:
        return Schedule(name)
    except ValueError:
        known = ", ".join((*AUTOMATIC, *(known.value for known in Schedule)))
        raise ConfigurationError(f"{name!r}", place="pipeline schedule", expected=f"one of {known}") from None


def framework_schedule(chunks: int, schedule: Schedule | None) -> Schedule:
    """The schedule that the framework would really run: the stated one, else what `chunks` per rank imply."""
    if schedule is not None:
        return schedule
    return Schedule.INTERLEAVED if chunks > 1 else Schedule.ONE_F_ONE_B


MAXIMUM_EVENTS = 500_000
"""Forward and backward passes of an order that is written out, about ten seconds of work: 256 stages with one chunk, 64
with 16. A model of a million million parameters has 64 stages (arXiv 2104.04473, table 1)."""


@lru_cache(maxsize=64)
def order(schedule: Schedule, pipeline: int, chunks: int, micro_batches: int, group: int | None = None) -> Order:
    """The order of a schedule; interleaving takes micro batches in groups of `group`, or one per stage.

    Raises `NotAvailable` for a schedule that is not offered yet, `LayoutImpossible` when the number of chunks does not
    suit the schedule, `BatchIndivisible` when the number of micro batches does not.
    """
    if pipeline < 1 or chunks < 1 or micro_batches < 1:
        msg = f"{pipeline} stages, {chunks} chunks and {micro_batches} micro batches"
        raise InputError(msg, place="pipeline schedule", expected="each must be at least 1")
    builder = partial(_interleaved, group=group) if schedule is Schedule.INTERLEAVED else _BUILDERS.get(schedule)
    if builder is None:
        raise NotAvailable(
            f"{schedule.value} is not available yet",
            place="pipeline schedule",
            expected="available are " + ", ".join(name.value for name in AVAILABLE),
        )
    least, most = _CHUNKS[schedule]
    if not least <= chunks <= most:
        wanted = f"{least}" if least == most else f"{least} or more"
        raise LayoutImpossible(
            f"{schedule.value} with {chunks} model chunks per stage",
            place="pipeline schedule",
            expected=f"{schedule.value} needs {wanted}",
        )
    events = 2 * pipeline * chunks * micro_batches
    if events > MAXIMUM_EVENTS:
        raise LayoutImpossible(
            f"{pipeline} stages x {chunks} model chunks take {events} events until the schedule repeats itself",
            place="pipeline_model_parallel_size",
            expected=f"fewer stages or chunks; at most {MAXIMUM_EVENTS} events are replayed",
        )
    return Order(
        ranks=tuple(builder(rank, pipeline, chunks, micro_batches) for rank in range(pipeline)),
        chunks=chunks,
        micro_batches=micro_batches,
        splits_backward=schedule in _SPLIT,
        folded=schedule in V_SHAPED,
    )


def _one_f_one_b(rank: int, pipeline: int, chunks: int, micro_batches: int) -> RankOrder:  # noqa: ARG001 - one shape
    """One forward, one backward after a warm-up that fills the pipeline (PipeDream-Flush, arXiv 2006.09503)."""
    return _alternate(
        [Event(Kind.F, 0, index) for index in range(micro_batches)],
        [Event(Kind.B, 0, index) for index in range(micro_batches)],
        warm_up=pipeline - rank - 1,
    )


def _interleaved(rank: int, pipeline: int, chunks: int, micro_batches: int, group: int | None = None) -> RankOrder:
    """1F1B over model chunks, micro batches in groups, of the pipeline's size if not said (arXiv 2104.04473, 2.2).

    The warm-up is that of Megatron-LM core/pipeline_parallel/schedules.py: two per following rank and a group per
    further chunk.
    """
    size = group or pipeline
    if not groups_suit(pipeline, micro_batches, size):
        below = micro_batches // pipeline * pipeline
        near = f"{below} or {below + pipeline}" if below else f"{pipeline}"
        raise BatchIndivisible(
            f"{micro_batches} micro batches over {pipeline} pipeline stages",
            place=f"pipeline schedule {Schedule.INTERLEAVED.value}",
            expected=f"the number of micro batches must be a multiple of {pipeline}, such as {near}",
        )
    forward, backward = [], []
    for first in range(0, micro_batches, size):
        members = range(first, min(first + size, micro_batches))
        forward += [Event(Kind.F, chunk, index) for chunk in range(chunks) for index in members]
        backward += [Event(Kind.B, chunk, index) for chunk in reversed(range(chunks)) for index in members]
    return _alternate(forward, backward, warm_up=(pipeline - rank - 1) * 2 + (chunks - 1) * size)


def _alternate(forward: list[Event], backward: list[Event], *, warm_up: int) -> RankOrder:
    """`warm_up` forwards, then one forward and one backward in turn, then the remaining backwards."""
    warm = min(warm_up, len(forward))
    steady = len(forward) - warm
    events = forward[:warm]
    for ahead, back in zip(forward[warm:], backward[:steady], strict=True):
        events += (ahead, back)
    events += backward[steady:]
    return tuple(events)


def _zero_bubble(rank: int, pipeline: int, chunks: int, micro_batches: int) -> RankOrder:  # noqa: ARG001 - one shape
    """ZB-H1 (arXiv 2401.10241, section 2.2): 1F1B with `W` delayed by as many micro batches as ranks come before.

    Every rank then holds the activations of at most `pipeline` micro batches, as the first rank of 1F1B does.
    """
    events: list[Event] = []
    waiting = 0
    for event in _one_f_one_b(rank, pipeline, 1, micro_batches):
        events.append(event)
        if event.kind is Kind.B and event.micro_batch - waiting >= rank:
            events.append(Event(Kind.W, 0, waiting))
            waiting += 1
    events += [Event(Kind.W, 0, index) for index in range(waiting, micro_batches)]
    return tuple(events)


def _zero_bubble_v(rank: int, pipeline: int, chunks: int, micro_batches: int) -> RankOrder:
    """ZB-V (arXiv 2401.10241, section 6; arXiv 2405.15362): two chunks a rank, folded.

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


_BUILDERS: dict[Schedule, Callable[[int, int, int, int], RankOrder]] = {
    Schedule.ONE_F_ONE_B: _one_f_one_b,
    Schedule.INTERLEAVED: _interleaved,
    Schedule.ZERO_BUBBLE: _zero_bubble,
    Schedule.ZBV_FORMATTED: _zero_bubble_v,
}
_CHUNKS = {
    Schedule.ONE_F_ONE_B: (1, 1),
    Schedule.INTERLEAVED: (2, maxsize),
    Schedule.ZERO_BUBBLE: (1, 1),
    Schedule.ZBV_FORMATTED: (V_CHUNKS, V_CHUNKS),
}
"""Fewest and most model chunks per rank that a schedule is made for."""
_SPLIT = frozenset({Schedule.ZERO_BUBBLE, Schedule.ZBV_FORMATTED})
"""Schedules that separate `B` and `W`."""

AVAILABLE: tuple[Schedule, ...] = tuple(_BUILDERS)
"""Schedules that `order` can build."""
