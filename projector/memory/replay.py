"""Peak of a pipeline rank: footprints of its chunks replayed in the order of the schedule's events."""

from collections.abc import Mapping, Sequence
from math import ceil
from operator import mul
from typing import NamedTuple

from projector.job import Schedule
from projector.memory.footprint import Footprint, added_up
from projector.memory.segments import Situation, situations
from projector.parallelism import Layout
from projector.schedule import ADAPTIVE, ALL_AT_ONCE, WHOLE, Passes

CYCLES = 3
"""Micro batches replayed, in groups of as many as interleaving takes at a time: warm-up, one steady cycle, and one that
repeats it."""


class Peak(NamedTuple):
    """The moment at which a rank holds most."""

    size_bytes: int
    """Activations and transients at that moment."""
    kept: Mapping[str, int]
    """Of it, what is kept for backward passes, by component."""
    transient_bytes: int
    """The rest."""
    in_flight: int
    """Passes through a chunk whose activations are alive, the running one included."""
    passes: tuple[int, ...]
    """The same by chunk."""
    direction: str
    """forward or backward."""
    operation: str
    """The operation that runs."""


def replayed_micro_batches(schedule: Schedule, group: int, micro_batches: int, passes: Passes | None = None) -> int:
    """Micro batches that show every situation of a longer iteration.

    The smaller the share that waits for weight gradients, the later it fills what a schedule that is planned by memory
    may keep.
    """
    if schedule in ALL_AT_ONCE:
        return micro_batches
    slower = 1 if passes is None else max(1, WHOLE / passes.waiting)
    return min(micro_batches, ceil(CYCLES * group * slower))


def planned_passes(schedule: Schedule, chunks: Sequence[Footprint], layout: Layout) -> Passes | None:
    """What a schedule that is planned by memory knows of a stage; None for others."""
    if schedule not in ADAPTIVE:
        return None
    saved, waiting = sum(each.saved for each in chunks), sum(each.waiting_bytes for each in chunks)
    share = max(1, round(WHOLE * waiting / saved)) if saved else WHOLE
    return Passes(waiting=share, limit=layout.pending_micro_batches)


def peak(chunks: Sequence[Footprint], *, schedule: Schedule, layout: Layout, rank: int, forward_extra: int = 0) -> Peak:
    """The peak of `rank` with these chunks; `forward_extra` bytes live during every forward pass."""
    planned = planned_passes(schedule, chunks, layout)
    count = replayed_micro_batches(schedule, layout.micro_batch_group, layout.run_micro_batches, planned)
    order = situations(
        schedule, layout.pipeline, len(chunks), count, layout.micro_batch_group, rank=rank, passes=planned
    )
    at, size_bytes = _highest(order.found, chunks, forward_extra, splits_backward=order.splits_backward)
    running = chunks[at.chunk].forward if at.forward else chunks[at.chunk].backward
    others = list(at.alive)
    if not at.forward:
        others[at.chunk] -= 1
    waiting = [(count, footprint.kept) for count, footprint in zip(others, chunks, strict=True)]
    if any(at.delayed):
        waiting += [(count, footprint.kept_for_weights) for count, footprint in zip(at.delayed, chunks, strict=True)]
    kept = {name: size for name, size in added_up((*waiting, (1, running.kept))).items() if size}
    passes = [whole + late for whole, late in zip(others, at.delayed, strict=True)]
    passes[at.chunk] += 1
    return Peak(
        size_bytes=size_bytes,
        kept=kept,
        transient_bytes=size_bytes - sum(kept.values()),
        in_flight=sum(passes),
        passes=tuple(passes),
        direction="forward" if at.forward else "backward",
        operation=running.operation,
    )


def _highest(
    found: Sequence[Situation], chunks: Sequence[Footprint], forward_extra: int, *, splits_backward: bool
) -> tuple[Situation, int]:
    """The first situation of which a rank holds most, and how much that is."""
    saved = [each.saved for each in chunks]
    waits = [each.waiting_bytes for each in chunks] if splits_backward else [0] * len(chunks)
    # At the end of a split backward pass all of what waits is there.
    rises = (
        [max(each.backward.size_bytes, waiting) - each.saved for each, waiting in zip(chunks, waits, strict=True)],
        [each.forward.size_bytes + forward_extra for each in chunks],
    )
    sizes = [rises[forward][chunk] + sum(map(mul, alive, saved)) for forward, chunk, alive, _ in found]
    if splits_backward:
        sizes = [size + sum(map(mul, each.delayed, waits)) for size, each in zip(sizes, found, strict=True)]
    highest = max(sizes)
    return found[sizes.index(highest)], highest
