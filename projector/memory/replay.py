"""Peak of a pipeline rank: footprints of its chunks replayed in the order of the schedule's events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from projector.job import Schedule
from projector.memory.footprint import Footprint, summed
from projector.parallelism import Layout
from projector.schedule import Kind, order

CYCLES = 3
"""Micro batches replayed, in groups of as many as interleaving takes at a time: warm-up, one steady cycle, and one that
repeats it."""


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
    """A distinct situation of a rank: an event is about to run, with these passes alive, per chunk."""

    forward: bool
    chunk: int
    alive: tuple[int, ...]
    """Passes whose backward has not run."""
    delayed: tuple[int, ...]
    """Passes of which only the weight gradient is missing."""


@lru_cache(maxsize=256)
def _moments(
    schedule: Schedule, pipeline: int, chunks: int, micro_batches: int, group: int
) -> tuple[tuple[_Moment, ...], ...]:
    """Distinct situations per rank; steady repetition of a schedule adds none."""
    events = order(schedule, pipeline, chunks, micro_batches, group)
    ranks = []
    for rank in events.ranks:
        alive, delayed = [0] * chunks, [0] * chunks
        seen: dict[_Moment, None] = {}
        for kind, chunk, _ in rank:
            if kind is Kind.W:
                delayed[chunk] -= 1
                continue
            forward = kind is Kind.F
            seen[_Moment(forward=forward, chunk=chunk, alive=tuple(alive), delayed=tuple(delayed))] = None
            alive[chunk] += 1 if forward else -1
            delayed[chunk] += events.splits_backward and not forward
        ranks.append(tuple(seen))
    return tuple(ranks)


def replayed_micro_batches(group: int, micro_batches: int) -> int:
    """Micro batches that show every situation of a longer iteration."""
    return min(micro_batches, CYCLES * group)


def peak(chunks: Sequence[Footprint], *, schedule: Schedule, layout: Layout, rank: int, forward_extra: int = 0) -> Peak:
    """The peak of `rank` with these chunks; `forward_extra` bytes live during every forward pass."""
    count = replayed_micro_batches(layout.micro_batch_group, layout.run_micro_batches)
    moments = _moments(schedule, layout.pipeline, len(chunks), count, layout.micro_batch_group)[rank]
    best, at = -1, moments[0]
    for moment in moments:
        size = _size(moment, chunks, forward_extra)
        if size > best:
            best, at = size, moment
    running = chunks[at.chunk].forward if at.forward else chunks[at.chunk].backward
    others = [count - (not at.forward and index == at.chunk) for index, count in enumerate(at.alive)]
    waiting = [
        {name: count * size for name, size in kept.items()}
        for count, kept in (
            *zip(others, (footprint.kept for footprint in chunks), strict=True),
            *zip(at.delayed, (footprint.kept_for_weights for footprint in chunks), strict=True),
        )
    ]
    kept = {name: size for name, size in summed((*waiting, running.kept)).items() if size}
    return Peak(
        size_bytes=best,
        kept=kept,
        transient_bytes=best - sum(kept.values()),
        in_flight=sum(others) + sum(at.delayed) + 1,
        direction="forward" if at.forward else "backward",
        operation=running.operation,
    )


def _size(moment: _Moment, chunks: Sequence[Footprint], forward_extra: int) -> int:
    running = chunks[moment.chunk]
    alive = sum(count * footprint.saved for count, footprint in zip(moment.alive, chunks, strict=True))
    if any(moment.delayed):
        waiting = (sum(footprint.kept_for_weights.values()) for footprint in chunks)
        alive += sum(count * size for count, size in zip(moment.delayed, waiting, strict=True))
    if moment.forward:
        return alive + running.forward.size_bytes + forward_extra
    return alive - running.saved + running.backward.size_bytes
