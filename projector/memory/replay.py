"""Peak of a pipeline rank: footprints of its chunks replayed in the order of the schedule's events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from projector.job import Schedule
from projector.memory.footprint import Footprint, summed
from projector.parallelism import Layout
from projector.schedule import Kind, order

CYCLES = 3
"""Micro batches replayed, in multiples of the stages: warm-up, one steady cycle, and one that repeats it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Peak:
    """The moment at which a rank holds most."""

    size_bytes: int
    """Activations and transients at that moment."""
    kept: Mapping[str, int]
    """Of it, what is kept for backward passes, by component."""
    transient_bytes: int
    """The rest."""
    in_flight: int
    """Passes through a chunk whose activations are alive, the running one included."""
    direction: str
    """forward or backward."""
    operation: str
    """The operation that runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Moment:
    """A distinct situation of a rank: an event is about to run, with these passes alive."""

    forward: bool
    chunk: int
    alive: tuple[int, ...]


@lru_cache(maxsize=256)
def _moments(schedule: Schedule, pipeline: int, chunks: int, micro_batches: int) -> tuple[tuple[_Moment, ...], ...]:
    """Distinct situations per rank; steady repetition of a schedule adds none."""
    events = order(schedule, pipeline, chunks, micro_batches)
    frees = Kind.W if events.splits_backward else Kind.B
    ranks = []
    for rank in events.ranks:
        alive = [0] * chunks
        seen: dict[tuple[bool, int, tuple[int, ...]], None] = {}
        for kind, chunk, _ in rank:
            if kind is not Kind.W:
                seen[kind is Kind.F, chunk, tuple(alive)] = None
            if kind is Kind.F:
                alive[chunk] += 1
            elif kind is frees:
                alive[chunk] -= 1
        ranks.append(tuple(_Moment(forward=each[0], chunk=each[1], alive=each[2]) for each in seen))
    return tuple(ranks)


def replayed_micro_batches(pipeline: int, micro_batches: int) -> int:
    """Micro batches that show every situation of a longer iteration."""
    return min(micro_batches, CYCLES * pipeline)


def peak(chunks: Sequence[Footprint], *, schedule: Schedule, layout: Layout, rank: int, forward_extra: int = 0) -> Peak:
    """The peak of `rank` with these chunks; `forward_extra` bytes live during every forward pass."""
    count = replayed_micro_batches(layout.pipeline, layout.micro_batches)
    moments = _moments(schedule, layout.pipeline, len(chunks), count)[rank]
    best, at = -1, moments[0]
    for moment in moments:
        size = _size(moment, chunks, forward_extra)
        if size > best:
            best, at = size, moment
    running = chunks[at.chunk].forward if at.forward else chunks[at.chunk].backward
    others = [count - (not at.forward and index == at.chunk) for index, count in enumerate(at.alive)]
    waiting = [
        {name: count * size for name, size in footprint.kept.items()}
        for count, footprint in zip(others, chunks, strict=True)
    ]
    kept = {name: size for name, size in summed((*waiting, running.kept)).items() if size}
    return Peak(
        size_bytes=best,
        kept=kept,
        transient_bytes=best - sum(kept.values()),
        in_flight=sum(others) + 1,
        direction="forward" if at.forward else "backward",
        operation=running.operation,
    )


def _size(moment: _Moment, chunks: Sequence[Footprint], forward_extra: int) -> int:
    running = chunks[moment.chunk]
    alive = sum(count * footprint.saved for count, footprint in zip(moment.alive, chunks, strict=True))
    if moment.forward:
        return alive + running.forward.size_bytes + forward_extra
    return alive - running.saved + running.backward.size_bytes
