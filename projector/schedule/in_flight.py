"""What a schedule keeps alive: activations from a chunk's forward until its last backward event."""

from collections.abc import Sequence
from typing import NamedTuple

from projector.schedule.events import Kind, Order


class InFlight(NamedTuple):
    """The moment at which one rank keeps most."""

    weight: float
    """Weights of everything alive then; passes through chunks when no weights are given."""
    chunks: tuple[int, ...]
    """Micro batches alive then, per chunk."""
    event: int
    """Index of the event, a forward, that reaches it first."""
    chunk_peaks: tuple[int, ...]
    """Most micro batches alive per chunk, each at its own time."""


def in_flight(order: Order, weights: Sequence[Sequence[float]] | None = None) -> tuple[InFlight, ...]:
    """The peak per pipeline rank.

    `weights[rank][chunk]` is what one pass keeps (bytes, say); None counts passes. A forward pass adds, the event that
    ends its backward (`W` where the schedule has it, else `B`) frees.
    """
    frees = Kind.W if order.splits_backward else Kind.B
    ones = (1.0,) * order.chunks
    return tuple(
        _rank_peak(order, rank, ones if weights is None else weights[rank], frees) for rank in range(order.pipeline)
    )


def _rank_peak(order: Order, rank: int, weights: Sequence[float], frees: Kind) -> InFlight:
    alive, peaks = [0] * order.chunks, [0] * order.chunks
    now = best = 0.0
    best_alive, best_event = tuple(alive), 0
    for index, (kind, chunk, _) in enumerate(order.ranks[rank]):
        if kind is Kind.F:
            alive[chunk] += 1
            now += weights[chunk]
            peaks[chunk] = max(peaks[chunk], alive[chunk])
            if now > best:
                best, best_alive, best_event = now, tuple(alive), index
        elif kind is frees:
            alive[chunk] -= 1
            now -= weights[chunk]
    return InFlight(weight=best, chunks=best_alive, event=best_event, chunk_peaks=tuple(peaks))
