"""Collectives and transfers over groups of ranks that lie inside nodes, across them, or both.

Inside a node `node_links` decides. Across nodes the transfer is limited by the interfaces of the group's ranks on one
node or by the node's own links, whichever is slower, and each hop adds latency. Where a hardware file states pods, a
group that leaves one is limited by what is left of an interface between them. Times of a calibration win over all.
"""

from collections.abc import Iterable, Mapping
from math import ceil, exp, log, log2

from projector.catalog import Device, HardwareOverrides, MeasuredCollective
from projector.costs.curves import Analytical, MeasuredCollectives
from projector.costs.node_links import NodeLinks, missing, sent_share
from projector.errors import ConfigurationError
from projector.operations import CollectiveKind, TokenVisits
from projector.parallelism import Placement

_NETWORK_HOP_SECONDS = 8e-6
"""Latency that each further node adds to a ring (prior, from NVIDIA/dgxc-benchmarking's ladders, 8 to
2,048 H100)."""
_LOCAL_HOP_SECONDS = 0.4e-6
"""Latency that each further rank of a node adds to the same ring (prior, same source)."""
_PAIR_LATENCY_SECONDS = 10e-6
"""Start of a transfer between two ranks: launch and handshake. An estimate, the low end of the floors of 10-30 us that
collectives have."""
_NETWORK_EFFICIENCY = 0.9
"""Share of an interface's line rate that large transfers reach: 45 of 50 GB/s on H100 (NVIDIA/dgxc-benchmarking),
47-48 as the send/receive floor of MI3xx (ROCm/cvs)."""
_TREE_SECONDS = 20e-6
"""Time of an all-reduce of a few numbers inside a node (prior, floors of measured collectives)."""
_TREE_STEP_SECONDS = 60e-6
"""What each doubling of the nodes adds to it (prior, from the growth of NVIDIA/dgxc-benchmarking's FP8 ladders over
those in bf16, 8 to 2,048 H100)."""
_SETUP_EXPONENT = 2.5
"""How fast a stated setup of interfaces fades with the bytes of one (AMD-AGI/Primus collective_model.py)."""
_INSIDE = Placement(size=2, ranks_per_node=2, nodes=1)
_BETWEEN = Placement(size=2, ranks_per_node=1, nodes=2)


class Network:
    """Seconds of communication between devices of one kind."""

    def __init__(
        self,
        device: Device,
        devices_per_node: int,
        overrides: HardwareOverrides | None = None,
        measured: Mapping[str, MeasuredCollective] | None = None,
        curves: MeasuredCollectives | None = None,
    ) -> None:
        """`overrides` replace the catalog's figures of links; `measured` collectives and `curves` win over both."""
        self._device = device
        self._overrides = overrides or HardwareOverrides()
        self._curves = curves or MeasuredCollectives()
        self._devices_per_node = devices_per_node
        linked = self._linked_devices()
        usual = device.node_devices or devices_per_node
        self._hosts = linked // devices_per_node if linked > usual else 1
        self._links = NodeLinks(device, linked, self._overrides, measured or {})

    def seconds(self, kind: CollectiveKind, message_bytes: float, placement: Placement) -> float:
        """Seconds of one call over a group; 0 for a group of one or an empty message.

        Raises `NotAvailable` when the device has no figures of the links that the group needs.
        """
        if placement.size < 2 or message_bytes <= 0:  # noqa: PLR2004 - one rank needs no communication
            return 0.0
        if kind is CollectiveKind.SEND_RECV:
            return self.pair_seconds(message_bytes, crosses_nodes=placement.nodes > 1)
        return self._curves.seconds(self._model(kind), message_bytes, placement)

    def reduced_numbers_seconds(self, devices: int) -> float:
        """Seconds of an all-reduce of a few numbers over `devices` that fill their nodes, which takes trees."""
        return _TREE_SECONDS + _TREE_STEP_SECONDS * log2(max(1.0, devices / self._devices_per_node))

    def pair_seconds(self, message_bytes: float, *, crosses_nodes: bool, crosses_pods: bool = False) -> float:
        """Seconds of a transfer between two devices."""
        where = _BETWEEN if crosses_nodes else _INSIDE
        if crosses_pods:
            where = where._replace(extent=(self._overrides.pod_devices or 0) + 1)
        return self._curves.seconds(self._model(CollectiveKind.SEND_RECV), message_bytes, where)

    def domain_of(self, device: int) -> int:
        """Number of the domain of fast links, a node or a rack of NVLink hosts, that the device of the job lies in."""
        return device // (self._hosts * self._devices_per_node)

    def shift_seconds(self, message_bytes: float, pairs: Iterable[tuple[int, int]]) -> float:
        """Seconds in which the first device of each pair sends to the second; the farthest transfer decides."""
        pod, crosses, far = self._overrides.pod_devices, False, False
        for one, other in pairs:
            crosses = crosses or self.domain_of(one) != self.domain_of(other)
            far = far or (pod is not None and one // pod != other // pod)
            # Schedulers fill racks of NVLink hosts with whole stages where ranks are numbered across their edge.
            if self._hosts > 1 or (crosses and (far or pod is None)):
                break
        return self.pair_seconds(message_bytes, crosses_nodes=crosses, crosses_pods=crosses and far)

    def interface_rate(self, *, paired: bool = False, between_pods: bool = False) -> float:
        """Bytes per second that one device reaches over the network."""
        link = self._device.inter_node
        if link is None:
            raise missing(self._device, "inter_node")
        stated = self._overrides.pair_efficiency if paired else self._overrides.efficiency
        line, cluster = self._overrides.network_bytes_per_second, self._overrides.cluster_bytes_per_second
        narrow = between_pods and cluster is not None
        if line is None and stated is None and self._overrides.interfaces_per_node is None and not narrow:
            return link.achieved_bytes_per_second or link.bytes_per_second * _NETWORK_EFFICIENCY
        interfaces = self._overrides.interfaces_per_node or self._devices_per_node
        share = min(1.0, interfaces / self._devices_per_node)
        rate = line or link.bytes_per_second
        if narrow and cluster is not None:
            rate = min(rate, cluster)
        return rate * share * (stated or _NETWORK_EFFICIENCY)

    def described(self) -> str:
        """The links that decide, for people, with the stated figures in the place of the catalog's."""
        stated, inside, outside = self._overrides, self._device.intra_node, self._device.inter_node
        rates = (
            (stated.node_bytes_per_second or (inside and inside.bytes_per_second), "a GPU inside a node"),
            (stated.network_bytes_per_second or (outside and outside.bytes_per_second), "an interface"),
            (stated.pod_devices and stated.cluster_bytes_per_second, f"it between pods of {stated.pod_devices}"),
        )
        told = [f"{rate / 1e9:g} GB/s {of}" for rate, of in rates if rate]
        return ", ".join([*told, f"{stated.interfaces_per_node or self._devices_per_node} interfaces a node"])

    def dispatch_seconds(self, visits: TokenVisits, placement: Placement) -> float | None:
        """One dispatch or combine of a DeepEP class of library; None when the device has no figures of one.

        A token goes once to each rank that it visits, over the network once to each node: from there it is forwarded.
        """
        device = self._device
        if device.expert_dispatch_bytes_per_second is None:
            return None
        rate = device.expert_dispatch_bytes_per_second * self._links.scale
        seconds = visits.token_bytes * visits.places(placement.size) / rate
        placement = self._by_domain(placement)
        if placement.nodes > 1:
            others = visits.places(placement.nodes) * (placement.nodes - 1) / placement.nodes
            network = self.interface_rate()
            if device.expert_dispatch_network_bytes_per_second is not None:
                usual = Network(device, self._devices_per_node).interface_rate()
                network *= device.expert_dispatch_network_bytes_per_second / usual
            seconds = max(seconds, visits.token_bytes * others / network)
        return seconds + (device.expert_dispatch_seconds or 0.0)

    def _linked_devices(self) -> int:
        """Devices that fast links connect: those of a usual node, or of several hosts where that is more.

        Raises `ConfigurationError` for a stated number that is no whole number of the job's nodes.
        """
        stated, per_node = self._overrides.domain_devices, self._devices_per_node
        if stated is None:
            link = self._device.intra_node
            return max(per_node, (link and link.domain_devices) or 1)
        if stated % per_node:
            expected = f"expected {per_node}, the GPUs of a node of the job, or a multiple of it"
            raise ConfigurationError(f"{stated}", place="hardware file: hardware_config.node_size", expected=expected)
        return stated

    def _model(self, kind: CollectiveKind) -> Analytical:
        if kind is CollectiveKind.SEND_RECV:
            return Analytical(kind, self._pair, self._crosses)
        return Analytical(kind, lambda size, where: self._modelled(kind, size, where), self._crosses)

    def _crosses(self, placement: Placement) -> bool:
        return self._by_domain(placement).nodes > 1

    def _modelled(self, kind: CollectiveKind, message_bytes: float, placement: Placement) -> float:
        placement = self._by_domain(placement)
        if placement.nodes == 1:
            return self._links.seconds(kind, message_bytes, placement.size)
        if kind is CollectiveKind.ALL_TO_ALL:
            return self._all_to_all_across(message_bytes, placement)
        return self._ring_across(kind, message_bytes, placement)

    def _pair(self, message_bytes: float, placement: Placement) -> float:
        launch = self._overrides.launch_seconds
        start = _PAIR_LATENCY_SECONDS if launch is None else launch
        if placement.nodes == 1:
            return start + self._links.pair_seconds(message_bytes)
        pods = self._pods(placement) > 1
        hop = self._overrides.cluster_latency_seconds if pods else None
        latency = hop or self._overrides.network_latency_seconds or 0.0
        return start + latency + message_bytes / self.interface_rate(paired=True, between_pods=pods)

    def _by_domain(self, placement: Placement) -> Placement:
        """The placement with every domain of fast links, a rack of NVLink hosts say, counted as one node."""
        if self._hosts <= 1 or placement.nodes == 1:
            return placement
        return Placement(
            size=placement.size,
            ranks_per_node=min(placement.size, placement.ranks_per_node * self._hosts),
            nodes=-(-placement.nodes // self._hosts),
            extent=placement.extent,
        )

    def _pods(self, placement: Placement) -> int:
        """Stated pods that the group touches, 1 where none are stated."""
        pod = self._overrides.pod_devices
        extent = placement.extent or placement.nodes * self._hosts * self._devices_per_node
        return 1 if pod is None else min(placement.nodes, -(-extent // pod))

    def _ring_across(self, kind: CollectiveKind, message_bytes: float, placement: Placement) -> float:
        """Hierarchical ring: all ranks of a node feed their interfaces at once while its links carry the rest."""
        local = placement.ranks_per_node
        sent = sent_share(kind, placement.size) * message_bytes
        between = sent / (local * self.interface_rate(between_pods=self._pods(placement) > 1))
        inside = sent / self._local_rate(kind, message_bytes, local) if local > 1 else 0.0
        passes = 2 if kind is CollectiveKind.ALL_REDUCE else 1
        latency = passes * self._hops_seconds(placement)
        if local > 1:
            latency += self._links.latency(kind, message_bytes, local)
        elif self._overrides.collective_seconds is not None:
            latency += self._overrides.collective_seconds + (self._overrides.launch_seconds or 0.0)
        exposed = 1 - self._overlap(message_bytes / local)
        seconds = latency + max(between, inside) + exposed * min(between, inside)
        seconds = max(seconds, self._on_one_node(kind, message_bytes, local))
        return seconds + self._setup_seconds(kind, message_bytes, placement)

    def _on_one_node(self, kind: CollectiveKind, message_bytes: float, local: int) -> float:
        """The same collective over the group's ranks of one node: with more ranks elsewhere it takes no less."""
        if local == 1:
            return 0.0
        ratio = self._curves.ratio(self._model(kind), message_bytes, _local(local))
        return self._links.seconds(kind, message_bytes, local) * ratio

    def _local_rate(self, kind: CollectiveKind, message_bytes: float, local: int) -> float:
        """Rate of the leg inside a node: measured for the collective, else that of a ring, as an all-reduce is one."""
        leg = kind if self._links.has_measured(kind) else CollectiveKind.ALL_REDUCE
        rate = self._links.bytes_per_second(leg, message_bytes, local)
        return rate / self._curves.ratio(self._model(kind), message_bytes, _local(local))

    def _overlap(self, rank_bytes: float) -> float:
        """Share of the shorter leg that runs beside the longer one, all of it unless a file states less."""
        whole = self._overrides.overlap_bytes
        share = 1.0 if self._overrides.overlap is None else self._overrides.overlap
        return share * (1.0 if whole is None else min(1.0, rank_bytes / whole))

    def _setup_seconds(self, kind: CollectiveKind, message_bytes: float, placement: Placement) -> float:
        """Stated setup of interfaces that a small all-reduce does not hide."""
        setup, whole = self._overrides.setup_seconds, self._overrides.warmup_bytes
        if setup is None or kind is not CollectiveKind.ALL_REDUCE:
            return 0.0
        steps = ceil(log2(placement.nodes))
        interfaces = self._overrides.interfaces_per_node or self._devices_per_node
        filled = 0.0 if whole is None else min(1.0, message_bytes / (interfaces * steps) / whole)
        return setup * steps * (1.0 - exp(_SETUP_EXPONENT * log(filled)) if filled else 1.0)

    def _all_to_all_across(self, message_bytes: float, placement: Placement) -> float:
        """Each rank sends the share of other nodes through its own interface while links of the node carry the rest."""
        size, local, stated = placement.size, placement.ranks_per_node, self._overrides
        near = self._all_to_all_interface_rate(placement)
        remote = message_bytes * (size - local) / size / near
        pods = self._pods(placement)
        if pods > 1:
            far = near * self.interface_rate(between_pods=True) / self.interface_rate()
            remote = max(remote, message_bytes * (pods - 1) / pods / far)
        inside = self._on_one_node(CollectiveKind.ALL_TO_ALL, message_bytes * local / size, local)
        fixed = (stated.all_to_all_remote_peer_seconds or 0.0) * (size - local)
        if (own := self._links.stated_latency(CollectiveKind.ALL_TO_ALL, local)) is not None:
            fixed += own
            inside = max(0.0, inside - own)
        return max(inside, remote) + fixed + self._hops_seconds(placement)

    def _all_to_all_interface_rate(self, placement: Placement) -> float:
        """An interface's rate in all-to-all: stated contention, else from the measured curve over two nodes, if any."""
        rate = self.interface_rate()
        contention = self._overrides.remote_contention
        if contention is not None:
            return rate / (1 + contention * (placement.nodes - 1))
        curve = self._device.collective(CollectiveKind.ALL_TO_ALL.value, nodes=2)
        link = self._device.inter_node
        if curve is None or link is None:
            return rate
        best = max(bandwidth for _, bandwidth in curve.points)
        remote_share = (curve.ranks - curve.ranks / curve.nodes) / (curve.ranks - 1)
        usual = link.achieved_bytes_per_second or link.bytes_per_second * _NETWORK_EFFICIENCY
        return rate * min(1.0, best * remote_share / usual)

    def _hops_seconds(self, placement: Placement) -> float:
        network = self._overrides.network_latency_seconds or _NETWORK_HOP_SECONDS
        local = self._overrides.node_latency_seconds or _LOCAL_HOP_SECONDS
        between = self._pods(placement) - 1
        cluster = (self._overrides.cluster_latency_seconds or network) * between
        return cluster + network * (placement.nodes - 1 - between) + local * (placement.size - placement.nodes)


def _local(ranks: int) -> Placement:
    """That many ranks of one node."""
    return Placement(size=ranks, ranks_per_node=ranks, nodes=1)
