"""What lies between allocated memory and what the device shows: the allocator's slack, and everything outside torch.

Outside torch's allocator are the runtime's context and one communicator per process group that is in use (RCCL keeps
channel buffers per group: AMD-AGI/Primus 31de2ce2, 2367ac56 and its raw logs).
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from projector.catalog import Device
from projector.catalog.facts import read_mapping
from projector.job import ExpertDispatch, MixtureOfExperts, Sharding, TrainingJob
from projector.operations import Group
from projector.parallelism import Layout

_ALLOCATOR = Path(__file__).parent.parent / "catalog" / "frameworks" / "caching-allocator.yaml"
DEEPEP_BUFFER_BYTES = 1024**3
"""Communication buffers of a DeepEP dispatcher inside a node (deepseek-ai/DeepEP README, `Buffer` sizing hints)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A value with bounds."""

    expected: float
    """Most likely value."""
    lower: float
    """Lower end."""
    upper: float
    """Upper end."""


@cache
def reserved_ratio(vendor: str) -> Interval:
    """Reserved over allocated memory of torch's caching allocator, by GPU vendor."""
    figures = read_mapping(_ALLOCATOR).get(vendor)
    if not isinstance(figures, dict):
        return Interval(expected=1.05, lower=1.0, upper=1.2)
    return Interval(expected=figures["ratio"], lower=figures["lower"], upper=figures["upper"])


def communicators(job: TrainingJob, layout: Layout) -> int:
    """Process groups of two or more ranks that a training step uses.

    Dense data parallelism uses three (world, data with context parallelism, optimizer instance); experts add three
    (metrics, expert, tensor with expert), a balance bias one; tensor, pipeline and context parallelism one each.
    """
    if layout.world == 1:
        return 0
    count = 1
    if layout.size(Group.DATA) > 1:
        count += 2 if job.parallelism.sharding is not Sharding.NONE else 1
    count += sum(layout.size(group) > 1 for group in (Group.TENSOR, Group.PIPELINE, Group.CONTEXT, Group.EMBEDDING))
    blocks = {layer.feed_forward for layer in job.model.layers}
    experts = [block for block in blocks if isinstance(block, MixtureOfExperts)]
    if experts and layout.expert > 1:
        count += 3
        count += layout.expert_data > 1
    return count + any(block.router_balance_bias for block in experts)


def outside_allocator(job: TrainingJob, layout: Layout, device: Device) -> dict[str, int]:
    """Expected bytes by name of what the device holds outside torch's allocator."""
    parts = {
        "runtime context": device.context_bytes or 0,
        "communicators": communicators(job, layout) * (device.communicator_bytes or 0),
    }
    if job.software.eager_communicators:
        parts["eagerly created communicators"] = device.eager_communicator_bytes or 0
    if job.software.expert_dispatch is ExpertDispatch.DEEPEP and layout.expert > 1:
        parts["expert dispatch buffers"] = DEEPEP_BUFFER_BYTES
    return {name: size for name, size in parts.items() if size}
