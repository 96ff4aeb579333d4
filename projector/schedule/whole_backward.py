"""Schedules whose backward pass is one event: GPipe, 1F1B, interleaved 1F1B, looped breadth first."""

from projector.errors import BatchIndivisible
from projector.job import Schedule
from projector.parallelism.batch import groups_suit
from projector.schedule.events import Event, Kind, RankOrder


def all_forward_all_backward(rank: int, pipeline: int, chunks: int, micro_batches: int) -> RankOrder:  # noqa: ARG001 - one shape
    """GPipe (arXiv 1811.06965): every forward before any backward, both in the order of the micro batches."""
    return tuple(Event(kind, 0, index) for kind in (Kind.F, Kind.B) for index in range(micro_batches))


def looped_breadth_first(rank: int, pipeline: int, chunks: int, micro_batches: int) -> RankOrder:  # noqa: ARG001 - one shape
    """All micro batches through a chunk before the next; backward mirrors it (arXiv 2211.05953)."""
    forward = [Event(Kind.F, chunk, index) for chunk in range(chunks) for index in range(micro_batches)]
    return (*forward, *(Event(Kind.B, chunk, index) for _, chunk, index in reversed(forward)))


def one_f_one_b(rank: int, pipeline: int, micro_batches: int, *, ahead: int = 0) -> RankOrder:
    """One forward, one backward after a warm-up that fills the pipeline (PipeDream-Flush, arXiv 2006.09503).

    The warm-up is `ahead` forwards longer.
    """
    return alternate(
        [Event(Kind.F, 0, index) for index in range(micro_batches)],
        [Event(Kind.B, 0, index) for index in range(micro_batches)],
        warm_up=_filling(rank, pipeline) + ahead,
    )


def interleaved(  # noqa: PLR0913 - what decides its order
    rank: int, pipeline: int, chunks: int, micro_batches: int, group: int | None = None, *, ahead: int = 0
) -> RankOrder:
    """1F1B over model chunks, micro batches in groups, of the pipeline's size if not said (arXiv 2104.04473, 2.2).

    The warm-up is that of Megatron-LM core/pipeline_parallel/schedules.py: two per following rank and a group per
    further chunk, and `ahead` more.
    """
    size = suiting_group(Schedule.INTERLEAVED, pipeline, micro_batches, group)
    forward, backward = in_groups(chunks, micro_batches, size)
    return alternate(forward, backward, warm_up=_filling(rank, pipeline, chunks, size) + ahead)


def first_pair(  # noqa: PLR0913 - what decides its order
    rank: int, pipeline: int, chunks: int, micro_batches: int, group: int | None, *, ahead: int
) -> int:
    """Number of a rank's first forward that is followed by a backward in turn; that of all forwards where none is."""
    return min(chunks * micro_batches, _filling(rank, pipeline, chunks, group or pipeline) + ahead)


def _filling(rank: int, pipeline: int, chunks: int = 1, group: int = 1) -> int:
    """Forwards that fill the pipeline behind a rank, before its first backward and the forward just in front of it."""
    following = pipeline - rank - 1
    return following if chunks == 1 else following * 2 + (chunks - 1) * group


def suiting_group(schedule: Schedule, pipeline: int, micro_batches: int, group: int | None) -> int:
    """Micro batches that a chunk takes at a time; raises `BatchIndivisible` where that leaves the pipeline empty."""
    size = group or pipeline
    if groups_suit(pipeline, micro_batches, size):
        return size
    below = micro_batches // pipeline * pipeline
    near = f"{below} or {below + pipeline}" if below else f"{pipeline}"
    raise BatchIndivisible(
        f"{micro_batches} micro batches over {pipeline} pipeline stages",
        place=f"pipeline schedule {schedule.value}",
        expected=f"the number of micro batches must be a multiple of {pipeline}, such as {near}",
    )


def in_groups(chunks: int, micro_batches: int, size: int) -> tuple[list[Event], list[Event]]:
    """Forwards and backwards of interleaving, each in order: a group passes all chunks before the next group's turn."""
    forward, backward = [], []
    for first in range(0, micro_batches, size):
        members = range(first, min(first + size, micro_batches))
        forward += [Event(Kind.F, chunk, index) for chunk in range(chunks) for index in members]
        backward += [Event(Kind.B, chunk, index) for chunk in reversed(range(chunks)) for index in members]
    return forward, backward


def alternate(forward: list[Event], backward: list[Event], *, warm_up: int) -> RankOrder:
    """`warm_up` forwards, then one forward and one backward in turn, then the remaining backwards."""
    warm = min(warm_up, len(forward))
    steady = len(forward) - warm
    events = forward[:warm]
    for ahead, back in zip(forward[warm:], backward[:steady], strict=True):
        events += (ahead, back)
    events += backward[steady:]
    return tuple(events)
