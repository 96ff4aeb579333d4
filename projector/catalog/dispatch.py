"""How large DeepEP makes its buffers, from `frameworks/deepep.yaml`."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from projector.catalog.facts import Facts, read_mapping

_FILE = Path(__file__).parent / "frameworks" / "deepep.yaml"


class DispatchBuffers(NamedTuple):
    """Sizes by which DeepEP's buffers are made."""

    node_ranks: int
    """Ranks that reach each other without the network."""
    node_tokens: Mapping[int, int]
    """Tokens that wait per channel and peer of the node, by the most ranks of the expert group."""
    network_tokens: int
    """Tokens that wait per channel and node, in either direction."""
    token_bytes: int
    """Bytes of a waiting token beside its hidden state."""
    units_per_channel: int
    """Compute units of one channel."""
    network_step_bytes: int
    """Multiple to which the buffer for the network is rounded up."""


@cache
def dispatch_buffers() -> DispatchBuffers:
    """The sizes of the library."""
    facts = Facts(read_mapping(_FILE), place=_FILE.name)
    facts.required("source", str)
    tokens = facts.inner("node_tokens")
    found = DispatchBuffers(
        node_ranks=facts.required("node_ranks", int),
        node_tokens={int(ranks): tokens.required(ranks, int) for ranks in tokens},
        network_tokens=facts.required("network_tokens", int),
        token_bytes=facts.required("token_bytes", int),
        units_per_channel=facts.required("units_per_channel", int),
        network_step_bytes=facts.required("network_step_mib", int) * 2**20,
    )
    facts.finish()
    return found
