"""What lies between allocated memory and what the device shows: the allocator's slack, and everything outside torch.

Outside torch's allocator are the runtime's context and one communicator per process group that is in use (RCCL keeps
channel buffers per group: AMD-AGI/Primus 31de2ce2, 2367ac56 and its raw logs).
"""

from projector.catalog import Device
from projector.job import ExpertDispatch, Sharding, TrainingJob
from projector.operations import Group
from projector.parallelism import Layout
from projector.provenance import Assumption

DEEPEP_BUFFER_BYTES = 1024**3
"""Communication buffers of a DeepEP dispatcher inside a node. An estimate: the library sizes them by hidden size, ranks
and streaming multiprocessors (deepseek-ai/DeepEP csrc/config.hpp, `get_nvl_buffer_size_hint`)."""


def communicators(job: TrainingJob, layout: Layout) -> int:
    """Process groups of two or more ranks that a training step uses.

    Dense data parallelism uses three (world, data with context parallelism, optimizer instance); experts add three
    (metrics, expert, tensor with expert), a balance bias one; tensor, pipeline and context parallelism one each.
    """
    if layout.world == 1:
        return 0
    count = 1
    if layout.size(Group.DATA) > 1:
        count += 2 if layout.sharding is not Sharding.NONE else 1
    count += sum(layout.size(group) > 1 for group in (Group.TENSOR, Group.PIPELINE, Group.CONTEXT, Group.EMBEDDING))
    if layout.expert > 1:
        count += 3
        count += layout.expert_data > 1
    return count + any(block.router_balance_bias for block in job.model.expert_blocks)


def outside_allocator(job: TrainingJob, layout: Layout, device: Device) -> dict[str, int]:
    """Expected bytes by name of what the device holds outside torch's allocator.

    Figures that nobody knows count as 0; `projector.memory.unmodelled.unknown_figures` names them.
    """
    parts = {
        "runtime context": device.context_bytes or 0,
        "communicators": communicators(job, layout) * (device.communicator_bytes or 0),
    }
    if job.software.eager_communicators:
        parts["eagerly created communicators"] = device.eager_communicator_bytes or 0
    if _dispatches_with_deepep(job, layout):
        parts["expert dispatch buffers"] = DEEPEP_BUFFER_BYTES
    return {name: size for name, size in parts.items() if size}


def outside_uncertainty(job: TrainingJob, layout: Layout, device: Device) -> int:
    """Half width in bytes of the interval around what lies outside the allocator; an estimated part may be all off."""
    estimated = DEEPEP_BUFFER_BYTES if _dispatches_with_deepep(job, layout) else 0
    return (device.outside_allocator_uncertainty_bytes or 0) + estimated


def memory_assumptions(job: TrainingJob, layout: Layout) -> tuple[Assumption, ...]:
    """Sizes that are estimates of this project and no facts of the catalog."""
    if not _dispatches_with_deepep(job, layout):
        return ()
    why = "an estimate; the library sizes them by hidden size, ranks and SMs, so that the interval is as wide"
    return (Assumption(what=f"{DEEPEP_BUFFER_BYTES / 1024**3:g} GiB of DeepEP buffers per GPU", why=why),)


def _dispatches_with_deepep(job: TrainingJob, layout: Layout) -> bool:
    return job.software.expert_dispatch is ExpertDispatch.DEEPEP and layout.expert > 1
