"""Figures of a person's own machine, which replace those of the catalog."""

from typing import NamedTuple


class HardwareOverrides(NamedTuple):
    """Figures of links that replace the catalog's; None keeps them. In brackets, the key of a Primus hardware file."""

    node_bytes_per_second: float | None = None
    """Line rate of one device inside the node, one direction (`node_bw`)."""
    network_bytes_per_second: float | None = None
    """Line rate of one network interface, one direction (`pod_bw`)."""
    interfaces_per_node: int | None = None
    """Network interfaces of a node (`nics_per_node`)."""
    efficiency: float | None = None
    """Share of line rates that collectives reach (`bw_eff`)."""
    pair_efficiency: float | None = None
    """Share of line rates that point-to-point transfers reach (`p2p_bw_eff`)."""
    node_latency_seconds: float | None = None
    """Time of one hop inside the node (`node_lat`)."""
    network_latency_seconds: float | None = None
    """Time of one hop between nodes (`pod_lat`)."""
    mesh: bool | None = None
    """Direct links between every pair inside the node (`node_topology`)."""
    without_effect: tuple[str, ...] = ()
    """Keys of the file that this engine has no use for."""
