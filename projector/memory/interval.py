"""The interval around projected memory: named uncertainties, each with its level and its source.

Four things are uncertain, one at each level that a measurement can tell apart: what is counted (a tensor that the
engine does not know, or knows at another size), where the router sends tokens, what the caching allocator holds back,
and what lies outside it. They add up: nobody has shown them to be independent.
"""

from collections.abc import Iterable
from dataclasses import replace

from projector.job import Dialect, RecomputeGranularity, Schedule, Sharding, TrainingJob
from projector.projection import MemoryLevel, StageMemory, Uncertainty

PERSISTENT_SHARE = 0.01
"""Of what is persistent, how much may be counted wrongly: weights, gradients and optimizer state are exact, so that
caches, tables and buffers are meant (accuracy page: 0.3 % on average over Megatron-LM's tests, worst 1 %)."""
BUFFERS_BYTES = 128 * 1024**2
"""What lies beside it: workspaces, gather buffers and batches that stay between iterations (Megatron-LM's tests of
models that hardly weigh anything are within this)."""
PLAIN_SHARE = 0.015
"""Of activations and transients of a 16-bit job without special modes: worst of the dense rows of Megatron-LM's tests,
of SimuMax's runs on B200 and of AMD's logs, where mechanisms are complete."""
SPECIAL_SHARE = 0.05
"""The same where attention stores its scores, whose temporaries differ by version, under fully sharded weights,
selective recomputation, low precision, adapters, zero-bubble schedules or TorchTitan."""

_PLAIN_SCHEDULES = (None, Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED)


def counted(stage: StageMemory, job: TrainingJob) -> tuple[Uncertainty, ...]:
    """What may be counted wrongly, at the two levels at which it enters."""
    persistent = stage.level_bytes(MemoryLevel.PERSISTENT)
    passing = stage.level_bytes(MemoryLevel.ALLOCATED) - persistent
    share = SPECIAL_SHARE if is_special(job) else PLAIN_SHARE
    return (
        _around(
            "what is counted as persistent",
            MemoryLevel.PERSISTENT,
            BUFFERS_BYTES + round(PERSISTENT_SHARE * persistent),
        ),
        _around("what is counted of activations", MemoryLevel.ALLOCATED, round(share * passing)),
    )


def is_special(job: TrainingJob) -> bool:
    """Whether modes are in use whose tensors are known less well."""
    return (
        job.precision.low_precision is not None
        or job.software.dialect is Dialect.TORCHTITAN
        or not job.software.flash_attention
        or job.parallelism.sharding is Sharding.PARAMETERS
        or job.recompute.granularity in (RecomputeGranularity.SELECTIVE, RecomputeGranularity.OPERATIONS)
        or job.adapters is not None
        or job.schedule not in _PLAIN_SCHEDULES
    )


def routed(stage: StageMemory, low: StageMemory, high: StageMemory) -> Uncertainty:
    """What routing may do, from the least to the most uneven."""
    expected = stage.level_bytes(MemoryLevel.ALLOCATED)
    return Uncertainty(
        name="routing to experts",
        level=MemoryLevel.ALLOCATED,
        below_bytes=max(0, expected - low.level_bytes(MemoryLevel.ALLOCATED)),
        above_bytes=max(0, high.level_bytes(MemoryLevel.ALLOCATED) - expected),
    )


def reserved(stage: StageMemory, least_ratio: float, most_ratio: float) -> Uncertainty:
    """What the caching allocator may hold back, from the least to the most reserved over allocated memory."""
    allocated, expected = stage.level_bytes(MemoryLevel.ALLOCATED), stage.level_bytes(MemoryLevel.RESERVED)
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


def with_interval(stage: StageMemory, uncertainties: Iterable[Uncertainty], *, safety_margin: float) -> StageMemory:
    """The stage with its interval; a safety margin widens the upper end of device memory by a share."""
    entered = tuple(each for each in uncertainties if each.below_bytes or each.above_bytes)
    below, above = sum(each.below_bytes for each in entered), sum(each.above_bytes for each in entered)
    return replace(
        stage,
        uncertainties=entered,
        device_bytes_lower=max(0, stage.device_bytes - below),
        device_bytes_upper=round((stage.device_bytes + above) * (1 + safety_margin)),
    )


def _around(name: str, level: MemoryLevel, half_width_bytes: int) -> Uncertainty:
    return Uncertainty(name=name, level=level, below_bytes=half_width_bytes, above_bytes=half_width_bytes)
