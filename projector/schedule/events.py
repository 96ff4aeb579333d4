"""What a schedule is made of: events of a rank, and the total order of them on every rank."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias


class Kind(StrEnum):
    """What an event does."""

    F = "F"
    """Forward of one micro batch through one model chunk."""
    B = "B"
    """Backward; towards the input only where the schedule has `W` events, else all of it."""
    W = "W"
    """Backward towards the weights, where the schedule separates it."""


WHOLE = 16
"""Parts into which shares of a micro batch's memory are rounded."""


class Event(NamedTuple):
    """One pass of a micro batch through a model chunk. A tuple, because schedules hold very many of them."""

    kind: Kind
    """What is done."""
    chunk: int
    """Model chunk of the rank, from 0."""
    micro_batch: int
    """Micro batch, from 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Passes:
    """What a schedule that is planned ahead knows of a micro batch's passes through a stage."""

    lengths: tuple[int, int, int] = (1, 1, 1)
    """Time of a forward, of a backward towards the input and of one towards the weights, in any unit."""
    waiting: int = WHOLE
    """Share of a micro batch's activations that waits for its weight gradient, of `WHOLE`."""
    limit: int
    """Micro batches whose activations a rank may keep."""


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
    pairs: tuple[int, ...] | None = None
    """For each rank the event from which on a forward and the backward behind it run beside each other; None where all
    passes run one after the other."""
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
