"""Process groups whose communicators a training step makes, and the device memory that RCCL or NCCL keeps for each.

torch makes a communicator at the first collective of a group, so that groups which a framework only creates cost
nothing. What one takes follows its channels, and these follow the ranks that it has on a node: RCCL keeps 16 MiB a
channel (6 MiB to receive and 2 MiB to send, for ring and for tree).
"""

from typing import NamedTuple

from projector.catalog import Device
from projector.job import Dialect, ExpertDispatch, Sharding, TrainingJob
from projector.operations import Group
from projector.parallelism import Layout


class ProcessGroup(NamedTuple):
    """A group of two or more ranks that communicates."""

    name: str
    """What it is for."""
    ranks_per_node: int
    """Most of its ranks on one node; 1 where it only crosses nodes."""
    exchanges: bool = False
    """Every rank sends to every other, as in an all-to-all, for which there are buffers per pair."""


def groups_in_use(job: TrainingJob, layout: Layout) -> tuple[ProcessGroup, ...]:
    """Every group of which a rank makes a communicator; none on a single device."""
    if layout.world == 1:
        return ()
    mesh = job.software.dialect is Dialect.TORCHTITAN
    return (_everyone("world", layout), *(_mesh_groups if mesh else _megatron_groups)(job, layout))


def communicator_bytes(groups: tuple[ProcessGroup, ...], device: Device) -> int:
    """Device memory of their communicators; 0 where nobody knows the device's figure."""
    return sum(_bytes_of(group, device) for group in groups)


def _bytes_of(group: ProcessGroup, device: Device) -> int:
    """The figure for the fewest ranks that hold the group, else that of a whole node.

    A communicator that only exchanges connects neither a ring nor a tree.
    """
    if group.exchanges and device.peer_bytes is not None:
        return (group.ranks_per_node - 1) * device.peer_bytes
    smaller = [size for ranks, size in sorted(device.small_communicator_bytes.items()) if ranks >= group.ranks_per_node]
    return smaller[0] if smaller else device.communicator_bytes or 0


def _everyone(name: str, layout: Layout) -> ProcessGroup:
    return ProcessGroup(name=name, ranks_per_node=min(layout.world, layout.devices_per_node))


def _group(layout: Layout, group: Group, name: str | None = None, *, exchanges: bool = False) -> ProcessGroup:
    placed = layout.placement(group)
    return ProcessGroup(name=name or group.value, ranks_per_node=placed.ranks_per_node, exchanges=exchanges)


def _exchanges(job: TrainingJob, group: Group) -> bool:
    """Whether a group runs all-to-all: experts without a dispatch library, context parallelism over heads."""
    if group is Group.EXPERT:
        return job.software.expert_dispatch is ExpertDispatch.ALL_TO_ALL
    return group is Group.CONTEXT and job.parallelism.context_communication.startswith("a2a")


def _megatron_groups(job: TrainingJob, layout: Layout) -> list[ProcessGroup]:
    """Beside the world: data with context parallelism, the ranks that share an optimizer, and one per parallelism.

    Experts add the group that averages their metrics, their own, that of tensor and expert parallelism together and
    that of their copies; a balance bias one over which tokens are counted (Megatron-LM parallel_state.py,
    finalize_model_grads.py, moe_utils.py).
    """
    found = []
    if layout.size(Group.DATA) > 1:
        found.append(_group(layout, Group.DATA))
        if layout.sharding is not Sharding.NONE:
            found.append(_everyone("optimizer", layout))
    others = (Group.TENSOR, Group.PIPELINE, Group.CONTEXT, Group.EMBEDDING)
    found += [_group(layout, each, exchanges=_exchanges(job, each)) for each in others if layout.size(each) > 1]
    if layout.expert > 1:
        together = layout.expert * layout.expert_tensor
        found += [
            _group(layout, Group.DATA, "expert metrics"),
            _group(layout, Group.EXPERT, exchanges=_exchanges(job, Group.EXPERT)),
            ProcessGroup(name="tensor and expert", ranks_per_node=min(together, layout.devices_per_node)),
        ]
        if layout.expert_data > 1:
            found.append(_group(layout, Group.EXPERT_DATA))
    if any(block.router_balance_bias for block in job.model.expert_blocks):
        found.append(_group(layout, Group.DATA, "balance bias"))
    return found


def _mesh_groups(job: TrainingJob, layout: Layout) -> list[ProcessGroup]:
    """One per dimension of the device mesh; a dimension of all ranks is the world itself.

    Source: torch/distributed/device_mesh.py `_init_process_groups`; torchtitan/distributed/parallel_dims.py.
    """
    dimensions = (Group.DATA, Group.TENSOR, Group.PIPELINE, Group.CONTEXT, Group.EXPERT, Group.EXPERT_DATA)
    own = [group for group in dimensions if 1 < layout.size(group) < layout.world]
    if layout.expert == 1:
        own = [group for group in own if group is not Group.EXPERT_DATA]
    found = [_group(layout, group, exchanges=_exchanges(job, group)) for group in own]
    if 1 < layout.shard < layout.size(Group.DATA):
        least = min(layout.shard, max(1, layout.devices_per_node // layout.tensor))
        found.append(ProcessGroup(name="shard", ranks_per_node=least))
    return found
