"""The interval around projected memory: named uncertainties, each with its level and its source.

Four things are uncertain, one at each level that a measurement can tell apart: what is counted (a tensor that the
engine does not know, or knows at another size), where the router sends tokens, what the caching allocator holds back,
and what lies outside it. They add up: nobody has shown them to be independent, and a reader can add them by hand.
"""

from collections.abc import Iterable

from projector.job import Dialect, RecomputeGranularity, Schedule, Sharding, TrainingJob
from projector.projection import MemoryLevel, StageMemory, Uncertainty

MARGIN = "safety margin"
"""Name of the part of an interval that a person adds."""
PERSISTENT_SHARE, SPECIAL_PERSISTENT_SHARE = 0.01, 0.015
"""Of what is persistent, how much may be counted wrongly, and how much in special modes (below): weights, gradients and
optimizer state are exact, so that caches, tables and copies of weights are meant. Of Megatron-LM's tests on which
constants may be fitted, dense ones deviate by 0.3 % at most beyond the buffers, ones with experts by 1.3 %."""
BUFFERS_BYTES, SPECIAL_BUFFERS_BYTES = 32 * 1024**2, 128 * 1024**2
"""What lies beside it: workspaces, gather buffers and batches that stay between iterations. Where models of the same
tests hardly weigh anything, plain rows deviate by 40 MB at most and rows of special modes by 110 MB, but for one in fp8
under fully sharded weights."""
PLAIN_SHARE = 0.015
"""Of activations and transients of a 16-bit job without special modes: worst of the dense rows of Megatron-LM's tests,
of SimuMax's runs on B200 and of AMD's logs, where mechanisms are complete."""
SPECIAL_SHARE = 0.05
"""The same where attention stores its scores, whose temporaries differ by version, under fully sharded weights,
selective recomputation, low precision, adapters, zero-bubble schedules, CUDA graphs or TorchTitan."""

_PLAIN_SCHEDULES = (None, Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED)


def counted(stage: StageMemory, job: TrainingJob) -> tuple[Uncertainty, ...]:
    """What may be counted wrongly, at the two levels at which it enters."""
    persistent = stage.level_bytes(MemoryLevel.PERSISTENT)
    passing = stage.level_bytes(MemoryLevel.ALLOCATED) - persistent
    share, persistent_share, buffers_bytes = PLAIN_SHARE, PERSISTENT_SHARE, BUFFERS_BYTES
    if is_special(job):
        share, persistent_share, buffers_bytes = SPECIAL_SHARE, SPECIAL_PERSISTENT_SHARE, SPECIAL_BUFFERS_BYTES
    return (
        _around(
            "what is counted as persistent",
            MemoryLevel.PERSISTENT,
            buffers_bytes + round(persistent_share * persistent),
        ),
        _around("what is counted of activations", MemoryLevel.ALLOCATED, round(share * passing)),
    )


def is_special(job: TrainingJob) -> bool:
    """Whether modes are in use whose tensors are known less well."""
    return (
        job.precision.low_precision is not None
        or job.software.dialect is Dialect.TORCHTITAN
        or not job.software.flash_attention
        or bool(job.software.graphed_layers)
        or job.parallelism.sharding is Sharding.PARAMETERS
        or job.recompute.granularity in (RecomputeGranularity.SELECTIVE, RecomputeGranularity.OPERATIONS)
        or job.adapters is not None
        or job.schedule not in _PLAIN_SCHEDULES
    )


def routed(stage: StageMemory, low_bytes: int, high_bytes: int) -> Uncertainty:
    """What routing may do, from what is allocated with the least to the most uneven."""
    expected = stage.level_bytes(MemoryLevel.ALLOCATED)
    return Uncertainty(
        name="routing to experts",
        level=MemoryLevel.ALLOCATED,
        below_bytes=max(0, expected - low_bytes),
        above_bytes=max(0, high_bytes - expected),
    )


def reserved(stage: StageMemory, slack_bytes: int, least_ratio: float, most_ratio: float) -> Uncertainty:
    """What the caching allocator may hold back, from the least to the most reserved over allocated memory.

    `slack_bytes` come on top of what the stage has at the reserved level.
    """
    allocated = stage.level_bytes(MemoryLevel.ALLOCATED)
    expected = stage.level_bytes(MemoryLevel.RESERVED) + slack_bytes
    return Uncertainty(
        name="caching allocator",
        level=MemoryLevel.RESERVED,
        below_bytes=max(0, round(expected - least_ratio * allocated)),
        above_bytes=max(0, round(most_ratio * allocated - expected)),
    )


def outside(stage: StageMemory, half_width_bytes: int) -> Uncertainty:
    """What lies outside the allocator: never less than nothing."""
    size = stage.device_bytes - stage.level_bytes(MemoryLevel.RESERVED)
    return Uncertainty(
        name="outside the allocator",
        level=MemoryLevel.DEVICE,
        below_bytes=min(size, half_width_bytes),
        above_bytes=half_width_bytes,
    )


def margin(device_bytes: int, uncertainties: Iterable[Uncertainty], share: float) -> Uncertainty:
    """What a person wants free, as a share of the upper end of device memory: no lack of knowledge."""
    above = sum(each.above_bytes for each in uncertainties)
    return Uncertainty(
        name=MARGIN, level=MemoryLevel.DEVICE, below_bytes=0, above_bytes=round((device_bytes + above) * share)
    )


def ends(device_bytes: int, uncertainties: Iterable[Uncertainty]) -> tuple[int, int]:
    """Lower and upper end of device memory."""
    below = above = 0
    for each in uncertainties:
        below += each.below_bytes
        above += each.above_bytes
    return max(0, device_bytes - below), device_bytes + above


def _around(name: str, level: MemoryLevel, half_width_bytes: int) -> Uncertainty:
    return Uncertainty(name=name, level=level, below_bytes=half_width_bytes, above_bytes=half_width_bytes)
