"""Peak of a pipeline rank: footprints of its chunks replayed in the order of the schedule's events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from projector.job import Schedule
from projector.memory.footprint import Footprint, added_up
from projector.memory.segments import Segment, segmented
from projector.parallelism import Layout
from projector.schedule import ADAPTIVE, ALL_AT_ONCE, WHOLE, Kind, Passes

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
    passes: tuple[int, ...]
    """The same by chunk."""
    direction: str
    """forward or backward."""
    operation: str
    """The operation that runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Moment:
    """A situation of a rank: a pass is about to run, with these passes alive, per chunk."""

    size_bytes: int
    """Activations and transients."""
    forward: bool
    chunk: int
    alive: tuple[int, ...]
    """Passes whose backward has not run."""
    delayed: tuple[int, ...]
    """Passes of which only the weight gradient is missing."""


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
    passes = segmented(schedule, layout.pipeline, len(chunks), count, layout.micro_batch_group, passes=planned)
    at = _highest(passes.ranks[rank], chunks, forward_extra, splits_backward=passes.splits_backward)
    running = chunks[at.chunk].forward if at.forward else chunks[at.chunk].backward
    others = [count - (not at.forward and index == at.chunk) for index, count in enumerate(at.alive)]
    waiting = [(count, footprint.kept) for count, footprint in zip(others, chunks, strict=True)]
    if any(at.delayed):
        waiting += [(count, footprint.kept_for_weights) for count, footprint in zip(at.delayed, chunks, strict=True)]
    kept = {name: size for name, size in added_up((*waiting, *running.shares)).items() if size}
    return Peak(
        size_bytes=at.size_bytes,
        kept=kept,
        transient_bytes=at.size_bytes - sum(kept.values()),
        in_flight=sum(others) + sum(at.delayed) + 1,
        passes=tuple(
            whole + late + (index == at.chunk)
            for index, (whole, late) in enumerate(zip(others, at.delayed, strict=True))
        ),
        direction="forward" if at.forward else "backward",
        operation=running.operation,
    )


def _highest(
    segments: Sequence[Segment], chunks: Sequence[Footprint], forward_extra: int, *, splits_backward: bool
) -> _Moment:
    """The first moment at which a rank that runs these segments holds most."""
    saved = [each.saved for each in chunks]
    waits = [each.waiting_bytes if splits_backward else 0 for each in chunks]
    forward = [each.forward.size_bytes + forward_extra for each in chunks]
    # At the end of a split backward pass all of what waits is there.
    backward = [
        max(each.backward.size_bytes, waiting) - each.saved for each, waiting in zip(chunks, waits, strict=True)
    ]
    alive, delayed = [0] * len(chunks), [0] * len(chunks)
    size, highest = 0, -1
    found: tuple[bool, int, tuple[int, ...], tuple[int, ...]] = (True, 0, (), ())
    for segment in segments:
        for times, looks in segment.turns:
            for kind, chunk in segment.pattern:
                if looks and kind is not Kind.W:
                    rises = kind is Kind.F
                    during = size + (forward if rises else backward)[chunk]
                    if during > highest:
                        highest, found = during, (rises, chunk, tuple(alive), tuple(delayed))
                if kind is Kind.F:
                    alive[chunk] += times
                    size += times * saved[chunk]
                elif kind is Kind.B:
                    alive[chunk] -= times
                    delayed[chunk] += times * splits_backward
                    size += times * (waits[chunk] - saved[chunk])
                else:
                    delayed[chunk] -= times
                    size -= times * waits[chunk]
    return _Moment(size_bytes=highest, forward=found[0], chunk=found[1], alive=found[2], delayed=found[3])
