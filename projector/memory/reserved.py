"""From allocated to reserved: what torch's caching allocator holds beyond what is in use.

The stages that may be the fullest are replayed on the allocator, within a bounded effort, and the others taken to be
like them; jobs whose framework's allocations are not known one by one take the ratio of published runs.
"""

from collections.abc import Sequence
from typing import NamedTuple

from projector.catalog import Device, ReservedRatio, reserved_ratio
from projector.memory.allocator import StageReplays
from projector.memory.moments import pooled_gradients
from projector.parallelism import Layout
from projector.projection import MemoryComponent, MemoryLevel, StageMemory

SLACK = "allocator slack"
"""Component of what is reserved and not allocated."""
SAME_SHARE = 0.1
"""By what share of projected memory a replay of the same job may differ: it plays some steps of uneven routing, and
leaves small tensors out."""
EFFORT_STEPS = 40_000
"""Allocations and frees that a projection replays at most, which bounds its time: about 0.05 s on a laptop's core."""


class Slack(NamedTuple):
    """Reserved beyond allocated memory of a stage, as shares of allocated memory."""

    expected: float
    """Most likely."""
    lower: float
    """Lower end."""
    upper: float
    """Upper end."""
    first_reserved_bytes: int | None = None
    """Bytes reserved when the first iteration is over; None where the stage was not replayed."""


def published(device: Device) -> Slack:
    """The slack of published runs on GPUs of the device's vendor."""
    ratio = reserved_ratio(device.vendor)
    return Slack(expected=ratio.expected - 1, lower=ratio.lower - 1, upper=ratio.upper - 1)


def fragmented(found: Sequence[Slack], layout: Layout, device: Device) -> tuple[Slack, ...]:
    """The slacks where chunks interleave: what is kept then lives for unequal times, and holes between stay."""
    if layout.virtual_pipeline == 1:
        return tuple(found)
    most = reserved_ratio(device.vendor).interleaved_upper - 1
    return tuple(each._replace(upper=max(each.upper, most)) for each in found)


def slack_bytes(stage: StageMemory, slack: Slack) -> int:
    """What a stage's allocator holds beyond what is allocated."""
    expected = round(slack.expected * stage.level_bytes(MemoryLevel.ALLOCATED))
    return max(0, expected - pooled_gradients(stage.components))


def with_slack(stage: StageMemory, size_bytes: int) -> tuple[MemoryComponent, ...]:
    """The stage's components with the allocator's slack behind what is allocated."""
    part = MemoryComponent(name=SLACK, level=MemoryLevel.RESERVED, size_bytes=size_bytes)
    inside = [each for each in stage.components if each.level is not MemoryLevel.DEVICE]
    return (*inside, part, *stage.components[len(inside) :])


def first_reserved_bytes(stage: StageMemory, slack: Slack, size_bytes: int) -> int | None:
    """What the allocator of a stage holds when the first iteration is over; None where it was not replayed."""
    if slack.first_reserved_bytes is None:
        return None
    least = stage.first_iteration_allocated_bytes or 0
    return min(max(slack.first_reserved_bytes, least), stage.level_bytes(MemoryLevel.RESERVED) + size_bytes)


def slacks(
    allocated_bytes: Sequence[int],
    replays: StageReplays | None,
    device: Device,
    pooled_bytes: Sequence[int],
    *,
    stated_routing: bool = False,
) -> tuple[Slack, ...]:
    """The slack of every stage, by its allocated memory; `replays` None replays none.

    `pooled_bytes` of a stage stay reserved in pools of other streams, which the ratio of published runs does not know.
    With `stated_routing` memory is not that of the routing that is replayed, and only shares carry over.
    """
    ratio = reserved_ratio(device.vendor)
    fallback = published(device)
    found = [
        _more(fallback, pooled / max(1, allocated))
        for allocated, pooled in zip(allocated_bytes, pooled_bytes, strict=True)
    ]
    if replays is None:
        return tuple(found)
    fullest = max(allocated_bytes)
    candidates = [
        number
        for number in sorted(range(len(found)), key=lambda number: -allocated_bytes[number])
        if allocated_bytes[number] * ratio.upper >= fullest
    ]
    played: dict[int, Slack] = {}
    left = EFFORT_STEPS
    steps = {number: replays.steps(number) for number in candidates}
    for position, number in enumerate(candidates):
        if steps[number] > left:
            break
        share = left // (len(candidates) - position)
        ranks = max(1, share // max(1, steps[number]))
        peaks = replays.play(number, ranks=ranks)
        left -= steps[number] * ranks
        if not stated_routing and not _same(peaks.allocated_bytes, allocated_bytes[number]):
            continue
        played[number] = _around(peaks.slack_bytes / peaks.allocated_bytes, ratio, peaks.first_reserved_bytes)
    if not played:
        return tuple(found)
    # What was not played of the same job is like what was.
    most = max(played.values(), key=lambda slack: slack.expected)._replace(first_reserved_bytes=None)
    return tuple(played.get(number, most) for number in range(len(found)))


def _same(replayed_bytes: int, projected_bytes: int) -> bool:
    """Whether a replay allocates what is projected; otherwise it plays another job than the one that was asked for."""
    return abs(replayed_bytes / projected_bytes - 1) <= SAME_SHARE


def _more(slack: Slack, share: float) -> Slack:
    """The slack with a share of allocated memory on top."""
    return slack._replace(expected=slack.expected + share, lower=slack.lower + share, upper=slack.upper + share)


def pooled_slacks(allocated_bytes: Sequence[int], pools_bytes: Sequence[int], device: Device) -> tuple[Slack, ...]:
    """The slack of stages whose pools of other streams are known."""
    ratio = reserved_ratio(device.vendor)
    pairs = zip(pools_bytes, allocated_bytes, strict=True)
    return tuple(_around(pools / max(1, allocated), ratio) for pools, allocated in pairs)


def _around(share: float, ratio: ReservedRatio, first_reserved_bytes: int | None = None) -> Slack:
    """A replayed slack with the deviation of replays from measured runs."""
    return Slack(
        expected=max(0.0, share),
        lower=max(0.0, share - ratio.replayed_below),
        upper=max(0.0, share) + ratio.replayed_above,
        first_reserved_bytes=first_reserved_bytes,
    )
