"""The order of events on every pipeline rank, per schedule."""

from collections.abc import Callable
from functools import lru_cache
from sys import maxsize
from typing import NamedTuple, TypeAlias

from projector.errors import ConfigurationError, InputError, LayoutImpossible
from projector.job import Schedule
from projector.parallelism.stages import PENDING_PER_STAGE, V_CHUNKS, V_SHAPED
from projector.schedule.events import Order, Passes, RankOrder
from projector.schedule.folded import v_half, v_min, zero_bubble_v
from projector.schedule.split_backward import (
    heuristic,
    interleaved_zero_bubble,
    zero_bubble,
)
from projector.schedule.whole_backward import (
    all_forward_all_backward,
    first_pair,
    interleaved,
    looped_breadth_first,
    one_f_one_b,
)

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


def planned_schedule(schedule: Schedule, pipeline: int, micro_batches: int) -> Schedule:
    """The schedule whose order is used: the heuristic where an integer program is too large or has no solver here.

    The zero-bubble fork of Megatron-LM does likewise: its automatic schedule is the heuristic's initial solution
    (megatron/core/pipeline_parallel/zerobubble/scheduler/zb.py).
    """
    if schedule is not Schedule.SEAAILAB_ILP:
        return schedule
    from projector.schedule.integer_program import solvable  # noqa: PLC0415 - loaded by those who ask for it

    return schedule if solvable(pipeline, micro_batches) else Schedule.ZERO_BUBBLE_HEURISTIC


MAXIMUM_EVENTS = 500_000
"""Forward and backward passes of an order that is written out, about ten seconds of work: 256 stages with one chunk, 64
with 16. A model of a million million parameters has 64 stages (arXiv 2104.04473, table 1)."""


class _Size(NamedTuple):
    """What an order is built for."""

    pipeline: int
    """Pipeline ranks."""
    chunks: int
    """Model chunks per rank."""
    micro_batches: int
    """Micro batches."""
    group: int | None
    """Micro batches that a chunk takes at a time; None for one per rank."""
    passes: Passes
    """The passes, for schedules that are planned by them."""
    ahead: int
    """Forwards by which a rank's warm-up is longer than the pipeline needs."""


@lru_cache(maxsize=64)
def order(  # noqa: PLR0913 - what decides an order
    schedule: Schedule,
    pipeline: int,
    chunks: int,
    micro_batches: int,
    group: int | None = None,
    *,
    passes: Passes | None = None,
    combined: bool = False,
) -> Order:
    """The order of a schedule; interleaving takes micro batches in groups of `group`, or one per stage.

    `passes` matter to `ADAPTIVE` schedules alone. Without them such a schedule plans for passes of one length and
    `PENDING_PER_STAGE` micro batches in memory. With `combined` a `COMBINED` schedule runs each forward beside the
    backward that follows it, for which ranks run one more forward ahead (Megatron-LM schedules.py
    `get_pp_rank_microbatches` with `overlap_moe_expert_parallel_comm`); others pay no heed to it.

    Raises `LayoutImpossible` when the number of chunks does not suit the schedule, `BatchIndivisible` when the number
    of micro batches does not.
    """
    if pipeline < 1 or chunks < 1 or micro_batches < 1:
        msg = f"{pipeline} stages, {chunks} chunks and {micro_batches} micro batches"
        raise InputError(msg, place="pipeline schedule", expected="each must be at least 1")
    offer = _OFFERS[schedule]
    if not suits(schedule, chunks):
        least = offer.fewest_chunks
        wanted = f"{least}" if least == offer.most_chunks else f"{least} or more"
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
    size = _Size(
        pipeline=pipeline,
        chunks=chunks,
        micro_batches=micro_batches,
        group=group,
        passes=passes or Passes(limit=PENDING_PER_STAGE * pipeline),
        ahead=1 if combined and schedule in COMBINED else 0,
    )
    ranks = offer.build(size)
    return Order(
        ranks=ranks,
        pairs=tuple(_first_pair(size, rank) for rank in range(pipeline)) if size.ahead else None,
        chunks=chunks,
        micro_batches=micro_batches,
        splits_backward=schedule.splits_backward,
        folded=schedule in V_SHAPED,
    )


def _first_pair(size: _Size, rank: int) -> int:
    return first_pair(rank, size.pipeline, size.chunks, size.micro_batches, size.group, ahead=size.ahead)


def suits(schedule: Schedule, chunks: int) -> bool:
    """Whether a schedule is made for so many model chunks per rank."""
    return _OFFERS[schedule].fewest_chunks <= chunks <= _OFFERS[schedule].most_chunks


_Builder: TypeAlias = Callable[[_Size], tuple[RankOrder, ...]]


def _by_rank(build: Callable[[int, int, int, int], RankOrder]) -> _Builder:
    """A builder of all ranks from one that writes a rank's events down."""
    return lambda size: tuple(
        build(rank, size.pipeline, size.chunks, size.micro_batches) for rank in range(size.pipeline)
    )


def _in_groups(build: Callable[[int, int, int, int, int | None], RankOrder]) -> _Builder:
    """The same for a schedule that takes micro batches in groups."""
    return lambda size: tuple(
        build(rank, size.pipeline, size.chunks, size.micro_batches, size.group) for rank in range(size.pipeline)
    )


class _Offer(NamedTuple):
    """A schedule that can be built."""

    build: _Builder
    """Writes its events down."""
    fewest_chunks: int = 1
    """Model chunks per rank that it is made for, at least."""
    most_chunks: int = 1
    """The same, at most."""


def _one_f_one_b(size: _Size) -> tuple[RankOrder, ...]:
    return tuple(
        one_f_one_b(rank, size.pipeline, size.micro_batches, ahead=size.ahead) for rank in range(size.pipeline)
    )


def _interleaved(size: _Size) -> tuple[RankOrder, ...]:
    pipeline, chunks, micro_batches, group, _, ahead = size
    return tuple(
        interleaved(rank, pipeline, chunks, micro_batches, group, ahead=ahead) for rank in range(size.pipeline)
    )


def _heuristic(size: _Size) -> tuple[RankOrder, ...]:
    return heuristic(size.pipeline, size.micro_batches, size.passes)


def _shortest(size: _Size) -> tuple[RankOrder, ...]:
    from projector.schedule.integer_program import shortest, solvable  # noqa: PLC0415 - loaded by those who ask for it

    build = shortest if solvable(size.pipeline, size.micro_batches) else heuristic
    return build(size.pipeline, size.micro_batches, size.passes)


_OFFERS = {
    Schedule.ONE_F_ONE_B: _Offer(build=_one_f_one_b),
    Schedule.INTERLEAVED: _Offer(build=_interleaved, fewest_chunks=2, most_chunks=maxsize),
    Schedule.ZERO_BUBBLE: _Offer(build=_by_rank(zero_bubble)),
    Schedule.ZERO_BUBBLE_HEURISTIC: _Offer(build=_heuristic),
    Schedule.ZBV_FORMATTED: _Offer(build=_by_rank(zero_bubble_v), fewest_chunks=V_CHUNKS, most_chunks=V_CHUNKS),
    Schedule.ZBV_GREEDY_HALF: _Offer(
        build=lambda size: v_half(size.pipeline, size.micro_batches), fewest_chunks=V_CHUNKS, most_chunks=V_CHUNKS
    ),
    Schedule.ZBV_GREEDY_MIN: _Offer(
        build=lambda size: v_min(size.pipeline, size.micro_batches), fewest_chunks=V_CHUNKS, most_chunks=V_CHUNKS
    ),
    Schedule.SEAAILAB_ILP: _Offer(build=_shortest),
    Schedule.GPIPE: _Offer(build=_by_rank(all_forward_all_backward)),
    Schedule.LOOPED_BFS: _Offer(build=_by_rank(looped_breadth_first), fewest_chunks=2, most_chunks=maxsize),
    Schedule.INTERLEAVED_ZERO_BUBBLE: _Offer(
        build=_in_groups(interleaved_zero_bubble), fewest_chunks=2, most_chunks=maxsize
    ),
}

AVAILABLE: tuple[Schedule, ...] = tuple(_OFFERS)
"""Schedules that `order` can build."""
ADAPTIVE = frozenset({Schedule.ZERO_BUBBLE_HEURISTIC, Schedule.SEAAILAB_ILP})
"""Schedules whose order follows the lengths of the passes and what waits between them."""
ALL_AT_ONCE = frozenset({Schedule.GPIPE, Schedule.LOOPED_BFS})
"""Schedules that keep every micro batch of a run, however many there are."""
COMBINED = frozenset({Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED})
"""Schedules that can run a forward beside the backward of another micro batch."""
IN_GROUPS = frozenset({Schedule.INTERLEAVED, Schedule.LOOPED_BFS, Schedule.INTERLEAVED_ZERO_BUBBLE})
"""Schedules that take micro batches in groups."""
OF_PYTORCH = frozenset(
    {
        Schedule.ONE_F_ONE_B,
        Schedule.INTERLEAVED,
        Schedule.ZBV_FORMATTED,
        Schedule.GPIPE,
        Schedule.LOOPED_BFS,
        Schedule.INTERLEAVED_ZERO_BUBBLE,
    }
)
"""Schedules of torch/distributed/pipelining/schedules.py."""
OF_MEGATRON = frozenset(AVAILABLE) - {Schedule.GPIPE, Schedule.LOOPED_BFS, Schedule.INTERLEAVED_ZERO_BUBBLE}
"""Schedules of Megatron-LM, its zero-bubble fork and Primus's pipeline."""
