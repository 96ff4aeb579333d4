"""Collectives and transfers over groups of ranks that lie inside nodes, across them, or both.

Inside a node a measured curve of bus bandwidth over message size decides (bus bandwidth as nccl-tests defines it). It
is split into a fixed latency and a transfer that scales with the bytes a rank sends and, in a mesh, with the links that
a smaller group leaves idle. Across nodes the transfer is limited by the interfaces of the group's ranks on one node or
by the node's own links, whichever is slower, and each hop adds latency.
"""

from bisect import bisect_left
from collections.abc import Mapping
from math import exp, log, log2
from typing import NamedTuple

from projector.catalog import CollectiveCurve, Device, HardwareOverrides, LinkKind, MeasuredCollective
from projector.errors import NotAvailable
from projector.operations import CollectiveKind
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
_LINK_EFFICIENCY = 0.7
"""Share of a node's links that collectives reach where no curve was measured: 317 of 448 GB/s on MI300X."""
_PAIR_EFFICIENCY = 0.75
"""Share of the links between two devices that one transfer reaches: 48 of 64 GB/s on MI3xx (ROCm/cvs)."""
_TREE_SECONDS = 20e-6
"""Time of an all-reduce of a few numbers inside a node (prior, floors of measured collectives)."""
_TREE_STEP_SECONDS = 60e-6
"""What each doubling of the nodes adds to it (prior, from the growth of NVIDIA/dgxc-benchmarking's FP8 ladders over
those in bf16, 8 to 2,048 H100)."""
_DEFAULT_LATENCY_SECONDS = 25e-6
"""Fixed time of a collective where neither a curve nor a figure of the device states one: an estimate; floors are
10-30 us."""


def sent_share(kind: CollectiveKind, size: int) -> float:
    """Bytes that a rank sends over bytes of the message: the factor of bus bandwidth."""
    match kind:
        case CollectiveKind.ALL_REDUCE:
            return 2 * (size - 1) / size
        case CollectiveKind.SEND_RECV:
            return 1.0
        case _:
            return (size - 1) / size


class Transfer(NamedTuple):
    """A collective inside one node as latency and rate."""

    latency_seconds: float
    """Fixed part."""
    bytes_per_second: float
    """Bus bandwidth of the rest, for the curve's own number of ranks."""


class Network:
    """Seconds of communication between devices of one kind."""

    def __init__(
        self,
        device: Device,
        devices_per_node: int,
        overrides: HardwareOverrides | None = None,
        measured: Mapping[str, MeasuredCollective] | None = None,
    ) -> None:
        """`overrides` replace the catalog's figures of links; collectives `measured` on one node win over both."""
        self._measured = measured or {}
        self._device = device
        self._overrides = overrides or HardwareOverrides()
        self._domain = max(devices_per_node, (device.intra_node and device.intra_node.domain_devices) or 1)
        self._devices_per_node = devices_per_node
        self._hosts = self._domain // devices_per_node
        mesh = device.intra_node is not None and device.intra_node.kind is LinkKind.MESH
        self._mesh = mesh if self._overrides.mesh is None else self._overrides.mesh

    def seconds(self, kind: CollectiveKind, message_bytes: float, placement: Placement) -> float:
        """Seconds of one call over a group; 0 for a group of one or an empty message.

        Raises `NotAvailable` when the device has no figures of the links that the group needs.
        """
        if placement.size < 2 or message_bytes <= 0:  # noqa: PLR2004 - one rank needs no communication
            return 0.0
        if kind is CollectiveKind.SEND_RECV:
            return self.pair_seconds(message_bytes, crosses_nodes=placement.nodes > 1)
        placement = self._by_domain(placement)
        if placement.nodes == 1:
            return self._inside(kind, message_bytes, placement.size)
        if kind is CollectiveKind.ALL_TO_ALL:
            return self._all_to_all_across(message_bytes, placement)
        return self._ring_across(kind, message_bytes, placement)

    def reduced_numbers_seconds(self, devices: int) -> float:
        """Seconds of an all-reduce of a few numbers over `devices` that fill their nodes, which takes trees."""
        return _TREE_SECONDS + _TREE_STEP_SECONDS * log2(max(1.0, devices / self._devices_per_node))

    def pair_seconds(self, message_bytes: float, *, crosses_nodes: bool) -> float:
        """Seconds of a transfer between two devices."""
        if crosses_nodes:
            latency = self._overrides.network_latency_seconds or 0.0
            return _PAIR_LATENCY_SECONDS + latency + message_bytes / self.interface_rate(paired=True)
        link = self._device.intra_node
        if link is None:
            raise self._missing("intra_node")
        rate = link.pair_bytes_per_second * self._node_scale()
        if self._overrides.mesh is False:
            rate = link.bytes_per_second * self._node_scale()
        efficiency = self._overrides.pair_efficiency or _PAIR_EFFICIENCY
        return _PAIR_LATENCY_SECONDS + message_bytes / (rate * efficiency)

    def domain_of(self, device: int) -> int:
        """Number of the domain of fast links, a node or a rack of NVLink hosts, that the device of the job lies in."""
        return device // (self._hosts * self._devices_per_node)

    def interface_rate(self, *, paired: bool = False) -> float:
        """Bytes per second that one device reaches over the network."""
        link = self._device.inter_node
        if link is None:
            raise self._missing("inter_node")
        stated = self._overrides.pair_efficiency if paired else self._overrides.efficiency
        line = self._overrides.network_bytes_per_second
        if line is None and stated is None and self._overrides.interfaces_per_node is None:
            return link.achieved_bytes_per_second or link.bytes_per_second * _NETWORK_EFFICIENCY
        interfaces = self._overrides.interfaces_per_node or self._devices_per_node
        share = min(1.0, interfaces / self._devices_per_node)
        return (line or link.bytes_per_second) * share * (stated or _NETWORK_EFFICIENCY)

    def dispatch_seconds(self, unique_bytes: float, placement: Placement) -> float | None:
        """One dispatch or combine of a DeepEP class of library; None when the device has no figures of one.

        `unique_bytes` counts a token once per rank that it visits.
        """
        device = self._device
        if device.expert_dispatch_bytes_per_second is None:
            return None
        rate = device.expert_dispatch_bytes_per_second * self._node_scale()
        seconds = unique_bytes / rate
        placement = self._by_domain(placement)
        if placement.nodes > 1:
            remote = unique_bytes * (placement.size - placement.ranks_per_node) / placement.size
            network = device.expert_dispatch_network_bytes_per_second or self.interface_rate()
            seconds = max(seconds, remote / network)
        return seconds + (device.expert_dispatch_seconds or 0.0)

    def _by_domain(self, placement: Placement) -> Placement:
        """The placement with every domain of fast links, a rack of NVLink hosts say, counted as one node."""
        if self._hosts <= 1 or placement.nodes == 1:
            return placement
        return Placement(
            size=placement.size,
            ranks_per_node=min(placement.size, placement.ranks_per_node * self._hosts),
            nodes=-(-placement.nodes // self._hosts),
        )

    def _inside(self, kind: CollectiveKind, message_bytes: float, size: int) -> float:
        sent = sent_share(kind, size) * message_bytes
        if (own := self._measured.get(kind.value)) is not None:
            rate = own.bytes_per_second * self._size_share(kind, message_bytes)
            return own.latency_seconds(size) + sent / (rate * self._used_links(size))
        found = self._transfer(kind, message_bytes)
        latency = found.latency_seconds
        if self._overrides.node_latency_seconds is not None:
            latency += self._overrides.node_latency_seconds * (size - 1)
        elif self._device.collective_step_seconds is not None:
            latency += self._device.collective_step_seconds * (size - 1)
        return latency + sent / (found.bytes_per_second * self._used_links(size))

    def _size_share(self, kind: CollectiveKind, message_bytes: float) -> float:
        """Share of its rate at large messages that a collective reaches at a size, 1 where no curve tells.

        A calibration states the rate of large messages alone, so that the form over sizes stays the catalog's.
        """
        curve = self._device.collective(kind.value)
        if curve is None:
            return 1.0
        latency = self._device.collective_latency_seconds
        latency = _curve_latency(curve) if latency is None else latency
        largest = curve.points[-1][0]
        return _transfer_rate(curve, message_bytes, latency) / _transfer_rate(curve, largest, latency)

    def _used_links(self, size: int) -> float:
        """Share of a mesh's links that a group of `size` drives."""
        return min(1.0, (size - 1) / max(1, self._domain - 1)) if self._mesh else 1.0

    def _transfer(self, kind: CollectiveKind, message_bytes: float) -> Transfer:
        """Latency and rate at a message size, from the best figures that the device has."""
        device, scale = self._device, self._node_scale()
        curve = device.collective(kind.value)
        factor = 1.0
        if curve is None:
            curve = device.collective(CollectiveKind.ALL_REDUCE.value)
            if kind is CollectiveKind.ALL_TO_ALL:
                factor = device.all_to_all_over_all_reduce or 1.0
        if curve is not None:
            latency = (
                device.collective_latency_seconds
                if device.collective_latency_seconds is not None
                else _curve_latency(curve)
            )
            rate = _transfer_rate(curve, message_bytes, latency) * factor
            return Transfer(latency_seconds=latency, bytes_per_second=rate * scale * self._efficiency_scale(curve))
        link = device.intra_node
        if link is None:
            raise self._missing("intra_node")
        efficiency = self._overrides.efficiency or _LINK_EFFICIENCY
        rate = link.achieved_bytes_per_second or link.bytes_per_second * efficiency
        latency = device.collective_latency_seconds or _DEFAULT_LATENCY_SECONDS
        return Transfer(latency_seconds=latency, bytes_per_second=rate * scale)

    def _node_scale(self) -> float:
        """Stated line rate of the node's links over the catalog's."""
        link = self._device.intra_node
        if self._overrides.node_bytes_per_second is None or link is None:
            return 1.0
        return self._overrides.node_bytes_per_second / link.bytes_per_second

    def _efficiency_scale(self, curve: CollectiveCurve) -> float:
        """Stated efficiency over the one that the curve's best point shows."""
        link = self._device.intra_node
        if self._overrides.efficiency is None or link is None:
            return 1.0
        return self._overrides.efficiency * link.bytes_per_second / max(rate for _, rate in curve.points)

    def _ring_across(self, kind: CollectiveKind, message_bytes: float, placement: Placement) -> float:
        """Hierarchical ring: all ranks of a node feed their interfaces at once."""
        rate = placement.ranks_per_node * self.interface_rate()
        if placement.ranks_per_node > 1:
            inside = self._transfer(CollectiveKind.ALL_REDUCE, message_bytes)
            rate = min(rate, inside.bytes_per_second * self._used_links(placement.ranks_per_node))
        passes = 2 if kind is CollectiveKind.ALL_REDUCE else 1
        latency = passes * self._hops_seconds(placement)
        return latency + sent_share(kind, placement.size) * message_bytes / rate

    def _all_to_all_across(self, message_bytes: float, placement: Placement) -> float:
        """Each rank sends the share of other nodes through its own interface while links of the node carry the rest."""
        size, local = placement.size, placement.ranks_per_node
        remote = message_bytes * (size - local) / size / self._all_to_all_interface_rate()
        inside = 0.0
        if local > 1:
            inside = self._inside(CollectiveKind.ALL_TO_ALL, message_bytes * local / size, local)
        return max(inside, remote) + self._hops_seconds(placement)

    def _all_to_all_interface_rate(self) -> float:
        """An interface's rate in all-to-all: from the measured curve over two nodes, where there is one."""
        curve = self._device.collective(CollectiveKind.ALL_TO_ALL.value, nodes=2)
        rate = self.interface_rate()
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
        return network * (placement.nodes - 1) + local * (placement.size - placement.nodes)

    def _missing(self, what: str) -> NotAvailable:
        return NotAvailable(
            f"the time of communication on {self._device.name} needs its {what}, which the catalog does not have",
            place="target device",
            expected="give the links in a hardware file",
        )


def _curve_latency(curve: CollectiveCurve) -> float:
    """Time of the smallest message that was measured."""
    size, rate = curve.points[0]
    return sent_share(CollectiveKind(curve.collective), curve.ranks) * size / rate


def _transfer_rate(curve: CollectiveCurve, message_bytes: float, latency: float) -> float:
    """Bus bandwidth after the latency is taken out, between measured sizes as powers of the size."""
    share = sent_share(CollectiveKind(curve.collective), curve.ranks)

    def after_latency(point: tuple[int, float]) -> float:
        size, rate = point
        sent = share * size
        return sent / max(sent / rate - latency, 0.1 * sent / rate)

    points = curve.points
    sizes = [size for size, _ in points]
    index = bisect_left(sizes, message_bytes)
    if index == 0 or index == len(points):
        return after_latency(points[min(index, len(points) - 1)])
    low, high = points[index - 1], points[index]
    part = log(message_bytes / low[0]) / log(high[0] / low[0])
    return exp((1 - part) * log(after_latency(low)) + part * log(after_latency(high)))
