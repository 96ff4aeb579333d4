"""Buffers of a DeepEP dispatcher, which the library allocates itself, outside torch's allocator."""

from projector.catalog import dispatch_buffers
from projector.job import TrainingJob
from projector.parallelism import Layout


def dispatch_buffer_bytes(job: TrainingJob, layout: Layout) -> int:
    """Bytes on one device; 0 for other dispatchers.

    Per channel, peer of the node and waiting token the hidden state with its indices, weights and scales; beyond a
    node the same per channel and node, to send and to receive (DeepEP csrc/config.hpp `get_nvl_buffer_size_hint`,
    `get_rdma_buffer_size_hint`; a channel's counters and the alignment, below 0.1 %, are left out).
    """
    if not job.software.expert_dispatch.sends_once or layout.expert == 1:
        return 0
    sizes = dispatch_buffers()
    ranks = layout.expert * layout.expert_tensor
    channels = job.software.expert_dispatch_units // sizes.units_per_channel
    token = job.precision.activation_bytes * job.model.hidden + sizes.token_bytes
    fitting = [tokens for most, tokens in sorted(sizes.node_tokens.items()) if ranks <= most]
    waiting = fitting[0] if fitting else max(sizes.node_tokens.values())
    inside = channels * min(ranks, sizes.node_ranks) * waiting * token
    if ranks <= sizes.node_ranks:
        return inside
    network = 2 * channels * (ranks // sizes.node_ranks) * sizes.network_tokens * token
    return inside + -(-network // sizes.network_step_bytes) * sizes.network_step_bytes
