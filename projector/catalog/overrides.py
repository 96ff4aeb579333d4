"""Figures of a person's own machine, which replace those of the catalog."""

from typing import NamedTuple


class HardwareOverrides(NamedTuple):
    """Figures of links that replace the catalog's; None keeps them. In brackets, the key of a Primus hardware file."""

    node_bytes_per_second: float | None = None
    """Line rate of one device inside the node, one direction (`node_bw`)."""
    network_bytes_per_second: float | None = None
    """Line rate of one network interface, one direction (`pod_bw`)."""
    cluster_bytes_per_second: float | None = None
    """What of it is left between pods (`cluster_bw`)."""
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
    cluster_latency_seconds: float | None = None
    """Time of one hop between pods (`cluster_lat`)."""
    mesh: bool | None = None
    """Direct links between every pair inside the node (`node_topology`)."""
    domain_devices: int | None = None
    """Devices that the links of a node connect, of one host or more (`node_size`)."""
    pod_devices: int | None = None
    """Devices behind one level of switches, between which and the next the rate of the cluster holds (`pod_size`)."""
    launch_seconds: float | None = None
    """Start of a kernel that communicates (`kernel_launch_latency`)."""
    collective_seconds: float | None = None
    """Fixed time of a collective other than an all-to-all (`rccl_overhead_us`)."""
    all_to_all_seconds: float | None = None
    """Fixed time of an all-to-all (`a2a_rccl_overhead_us`)."""
    all_to_all_local_seconds: float | None = None
    """More of it where ranks share a node (`a2a_intra_sync_overhead`)."""
    all_to_all_local_peer_seconds: float | None = None
    """Time of each other rank of the node in an all-to-all (`a2a_intra_node_peer_lat`)."""
    all_to_all_remote_peer_seconds: float | None = None
    """Time of each rank of other nodes in an all-to-all (`a2a_peer_lat`)."""
    mesh_contention: float | None = None
    """Share of a mesh's rate that an all-to-all over all of its links loses (`a2a_mesh_contention`)."""
    remote_contention: float | None = None
    """Growth of an all-to-all's time on the network with each further node (`a2a_remote_contention`)."""
    overlap: float | None = None
    """Share of the shorter leg of a collective across nodes, inside or between them, that runs beside the longer one
    (`ar_overlap_factor`)."""
    overlap_bytes: float | None = None
    """Bytes of one rank from which that overlap is complete (`ar_warmup_chunk_bytes`)."""
    setup_seconds: float | None = None
    """Time that a small reduction across nodes loses for each doubling of the nodes (`nic_rdma_setup_us`)."""
    warmup_bytes: float | None = None
    """Bytes of one interface from which it loses none (`nic_warmup_bytes`)."""
    without_effect: tuple[str, ...] = ()
    """Keys of the file that have no influence here, each with the reason in brackets."""

    @property
    def all_to_all_latency(self) -> bool:
        """Whether anything states what an all-to-all takes beside its bytes."""
        fixed = self.all_to_all_seconds, self.all_to_all_local_seconds
        peers = self.all_to_all_local_peer_seconds, self.all_to_all_remote_peer_seconds
        return any(figure is not None for figure in (*fixed, *peers))
