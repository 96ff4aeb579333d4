"""Replay of torch's caching allocator: what it reserves beyond what is allocated.

`caching` has the allocator's rules; `tape` what a part of the model allocates for a micro batch, cut from its
operations by `forward` and `backward`. Megatron-LM: `startup` is what comes before the first iteration, `iterations`
plays all of it in the order of the pipeline schedule, `stage` puts a pipeline stage together. Fully sharded training:
`sharded` and `sharded_stage`. What is not needed for a job is not loaded.
"""

from typing import TYPE_CHECKING, Protocol

from projector.catalog import Device
from projector.job import Dialect, RecomputeGranularity, Schedule, Sharding, TrainingJob
from projector.layers import uniform_group
from projector.layers.shapes import Shapes
from projector.parallelism import Layout

if TYPE_CHECKING:
    from projector.memory.allocator.iterations import Peaks

__all__ = ["StageReplays", "is_replayed", "replays_of"]


class StageReplays(Protocol):
    """Replays of the stages of a job."""

    def steps(self, stage: int) -> int:
        """Allocations and frees of one data-parallel rank of a stage, about."""
        ...

    def play(self, stage: int, *, ranks: int) -> "Peaks":
        """The highest of up to `ranks` data-parallel ranks of a stage."""
        ...


def replays_of(
    job: TrainingJob, layout: Layout, shapes: Shapes, device: Device, schedule: Schedule
) -> StageReplays | None:
    """Replays of a job; None where its framework's allocations are not known one by one.

    Neither are those of schedules that separate weight gradients, whose tensors wait in queues of the framework.
    """
    if _in_buffers(job, layout):
        from projector.memory.allocator.stage import Replays  # noqa: PLC0415 - loaded for jobs that are replayed

        replays = Replays(job, layout, shapes, device, schedule)
        return None if replays.splits_backward else replays
    if _sharded(job, layout):
        from projector.memory.allocator.sharded_stage import ShardedReplays  # noqa: PLC0415 - likewise

        return ShardedReplays(job, layout, shapes, device)
    return None


def is_replayed(job: TrainingJob, layout: Layout) -> bool:
    """Whether the framework's allocations are known one by one, whatever the schedule."""
    return _in_buffers(job, layout) or _sharded(job, layout)


def _in_buffers(job: TrainingJob, layout: Layout) -> bool:
    """Megatron-LM with weights and gradients in buffers, which the distributed optimizer may divide."""
    megatron = job.software.dialect is not Dialect.TORCHTITAN
    buffers = layout.sharding in {Sharding.NONE, Sharding.OPTIMIZER}
    plain = job.adapters is None and not job.offload.modules and not job.precision.low_precision_weights
    return megatron and buffers and plain and job.recompute.granularity is not RecomputeGranularity.OPERATIONS


def _sharded(job: TrainingJob, layout: Layout) -> bool:
    """FSDP2 without pipeline stages and experts, with layers that run again one by one, if at all.

    Its optimizer has equal moments of every weight.

    What routing and grouped products make on the way in eager PyTorch is described in sum, not tensor by tensor.
    """
    # DeepSpeed, which shards too, keeps its gradients in buffers of its own.
    sharded = job.software.gradients_given_up and layout.sharding is Sharding.PARAMETERS
    optimizer = job.optimizer
    moments = not (optimizer.block_elements or optimizer.factored or optimizer.exempt_classes)
    plain = job.adapters is None and not job.offload.modules and not job.model.expert_blocks and moments
    single = uniform_group(job.recompute) == 1
    return sharded and plain and single and layout.pipeline == 1
