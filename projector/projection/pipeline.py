"""What a pipeline phase is computed from."""

from dataclasses import dataclass
from typing import NamedTuple


class ChunkDurations(NamedTuple):
    """Seconds of one micro batch in one model chunk."""

    forward: float
    """Forward pass."""
    backward_input: float
    """Backward pass towards the input, recomputation included."""
    backward_weight: float
    """Backward pass towards the weights."""

    @property
    def total(self) -> float:
        """Seconds that the chunk occupies its rank per micro batch."""
        return self.forward + self.backward_input + self.backward_weight


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelinePhase:
    """Model chunks with their times, and how micro batches pass through them; a schedule makes a timeline of it."""

    chunks: tuple[tuple[ChunkDurations, ...], ...]
    """By pipeline rank and model chunk."""
    micro_batches: int
    """Micro batches of one run through the pipeline."""
    transfer_seconds: tuple[float, ...]
    """A send between each rank and the next, the last to the first; what of it overlaps with work is left out."""
    blocking: bool = False
    """A send occupies its sender; else it only delays the receiver."""
    barrier: bool = True
    """Ranks wait for each other at the end; without, each begins its next iteration when it is through."""
    runs: int = 1
    """How often an iteration fills and drains the pipeline."""
    group: int | None = None
    """Micro batches that a chunk takes at a time under interleaving; None for one per rank."""
    pending: int | None = None
    """Micro batches that a rank may keep under a schedule that is planned by memory; None for two per rank."""
    hidden_seconds: tuple[tuple[tuple[float, ...], ...], ...] | None = None
    """Seconds by which a forward and the backward behind it take less because they run beside each other: by rank,
    chunk of the forward and chunk of the backward; None where passes run one after the other."""
    activation_bytes: tuple[tuple[float, ...], ...] | None = None
    """What one micro batch keeps, by rank and chunk; None where nobody says."""

    @property
    def stages(self) -> int:
        """Pipeline ranks."""
        return len(self.chunks)

    @property
    def chunks_per_stage(self) -> int:
        """Model chunks of a rank."""
        return len(self.chunks[0])
