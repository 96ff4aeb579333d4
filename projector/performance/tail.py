"""What ends an iteration behind the pipeline: reduction of gradients, optimizer step, gathering of weights."""

from projector.costs import CostModel, gradient_buffer_seconds, optimizer_step_seconds
from projector.costs.kernels import ADAM_BYTES
from projector.job import Sharding, TrainingJob, Tuning
from projector.layers import padded_vocabulary
from projector.operations import CollectiveKind, Group, Held
from projector.parallelism import Layout
from projector.performance.blocks import BlockTime
from projector.performance.data_parallel import Communicator, Window, step_communication
from projector.performance.muon import newton_schulz_seconds
from projector.performance.passes import NOTHING, PassTime, Traffic, exposed_part

OPTIMIZER = "optimizer step"
"""Waterfall part of the update."""
STEP = "step overhead"
"""Waterfall part of fixed work outside layers and optimizer."""
_HOST_LINK_BYTES_PER_SECOND = 50e9
"""Transfers between device and host memory: 51-56 GB/s on MI300X, H100 and H200 (Azure/AI-benchmarking-guide)."""
_OFFLOAD_LINK_BYTES = 6
"""Bytes per offloaded parameter over that link: an fp32 gradient down, a 16-bit weight up."""
_HOST_MEMORY_BYTES_PER_SECOND = 75e9
"""One device's share of host memory: two sockets of about 300 GB/s over 8 devices (estimate)."""


def stage_tail(job: TrainingJob, layout: Layout, costs: CostModel, chunks: tuple[BlockTime, ...]) -> PassTime:
    """Exposed time of a stage's gradient reduction, optimizer step and weight gathering."""
    stage = BlockTime(name="stage").plus(chunks)
    held = stage.held
    communicator = Communicator(costs=costs, layout=layout, precision=job.precision)
    if layout.sharding is Sharding.PARAMETERS:
        communication = communicator.replicas(held)
    else:
        communication = step_communication(communicator, held, job.software, _window(layout, chunks))
    seconds = _update_seconds(job, layout, costs, held)
    seconds += newton_schulz_seconds(stage.matrices, job, layout, costs)
    update = PassTime(parts={OPTIMIZER: seconds})
    return communication.plus(update, _tied_reduction(job, layout, costs))


def _window(layout: Layout, chunks: tuple[BlockTime, ...]) -> Window:
    """One chunk: its own pass. Several: a group of micro batches passes each of the others before or after it."""
    passes = layout.micro_batch_group * (len(chunks) - 1) if len(chunks) > 1 else 1
    return Window(
        chunks=len(chunks),
        forward_seconds=passes * max(chunk.forward.seconds for chunk in chunks),
        backward_seconds=passes * max(chunk.backward.seconds for chunk in chunks),
    )


def _update_seconds(job: TrainingJob, layout: Layout, costs: CostModel, held: Held) -> float:
    """Zeroing and scaling gradients, and the update of this device's share."""
    precision, optimizer, device = job.precision, job.optimizer, costs.device
    whole = layout.sharding is Sharding.NONE
    share = (job.tuning or Tuning()).optimizer_bandwidth_share
    shard = held.dense / (1 if whole else layout.shard) + held.expert / (1 if whole else layout.expert_shard)
    on_device = shard * (1 - optimizer.offload_fraction)
    seconds = optimizer_step_seconds(on_device, precision.optimizer_bytes, device, share=share)
    buffered = shard if layout.sharding is Sharding.PARAMETERS else held.total
    seconds += gradient_buffer_seconds(buffered, precision.gradient_bytes, device, share=share)
    offloaded = shard * optimizer.offload_fraction
    seconds += offloaded * (
        _OFFLOAD_LINK_BYTES / _HOST_LINK_BYTES_PER_SECOND + ADAM_BYTES / _HOST_MEMORY_BYTES_PER_SECOND
    )
    return seconds


def _tied_reduction(job: TrainingJob, layout: Layout, costs: CostModel) -> PassTime:
    """All-reduce of the token table's gradient between first and last stage when both hold it."""
    if not layout.tied_across_stages or job.adapters is not None:
        return NOTHING
    message = padded_vocabulary(job) // layout.tensor * job.model.hidden * job.precision.gradient_bytes
    seconds = costs.network.seconds(CollectiveKind.ALL_REDUCE, message, layout.placement(Group.EMBEDDING))
    if not seconds:
        return NOTHING
    return PassTime(
        parts={exposed_part(Group.EMBEDDING): seconds},
        traffic={
            (Group.EMBEDDING, CollectiveKind.ALL_REDUCE): Traffic(
                message_bytes=message, seconds=seconds, exposed_seconds=seconds
            )
        },
    )
