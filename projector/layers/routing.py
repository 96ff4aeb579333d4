"""Whether a router decides how many rows a device's experts receive, and what may be stated of it."""

from projector.errors import ConfigurationError
from projector.job import TrainingJob
from projector.layers.dispatch import has_static_rows
from projector.parallelism import Layout


def routing_decides(job: TrainingJob, layout: Layout) -> bool:
    """Whether the router decides how many rows a device's experts receive."""
    software = job.software
    fixed = software.force_load_balancing or software.pads_experts or has_static_rows(software, layout.expert)
    return layout.expert > 1 and bool(job.model.expert_blocks) and not fixed


def routing_limit(job: TrainingJob, layout: Layout) -> float:
    """All tokens of all ranks, to as many experts of one device as a token may visit, over the balanced share."""
    block = job.model.expert_blocks[0]
    local = block.experts // layout.expert
    return layout.expert * min(1.0, local / block.top_k)


def stated_imbalance(job: TrainingJob, layout: Layout) -> float | None:
    """Rows of the busiest device over the balanced share where they are stated and the router decides, else None.

    Raises `ConfigurationError` for a factor that no routing can reach.
    """
    stated = job.software.routing_imbalance
    if stated is None or not routing_decides(job, layout):
        return None
    limit = routing_limit(job, layout)
    if not 1 <= stated <= limit:
        message = f"a routing imbalance of {stated:g} cannot be"
        expected = f"from 1 to {limit:g}, where every token of the group visits one device"
        raise ConfigurationError(message, place="routing_imbalance", expected=expected)
    return stated
