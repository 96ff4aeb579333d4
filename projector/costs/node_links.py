"""Collectives over the fast links of one node, or of one domain of NVLink.

A measured curve of bus bandwidth over message size decides (bus bandwidth as nccl-tests defines it). It is split into a
fixed latency and a transfer that scales with the bytes a rank sends and, in a mesh, with the links that a smaller group
leaves idle.
"""

from bisect import bisect_left
from collections.abc import Mapping
from math import exp, log
from typing import NamedTuple

from projector.catalog import CollectiveCurve, Device, HardwareOverrides, LinkKind, MeasuredCollective
from projector.errors import NotAvailable
from projector.operations import CollectiveKind

_LINK_EFFICIENCY = 0.7
"""Share of a node's links that collectives reach where no curve was measured: 317 of 448 GB/s on MI300X."""
_PAIR_EFFICIENCY = 0.75
"""Share of the links between two devices that one transfer reaches: 48 of 64 GB/s on MI3xx (ROCm/cvs)."""
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


def missing(device: Device, what: str) -> NotAvailable:
    """That the device has no figures of links that a group needs."""
    return NotAvailable(
        f"the time of communication on {device.name} needs its {what}, which the catalog does not have",
        place="target device",
        expected="give the links in a hardware file",
    )


class Transfer(NamedTuple):
    """A collective as latency and rate."""

    latency_seconds: float
    """Fixed part."""
    bytes_per_second: float
    """Bus bandwidth of the rest, for the curve's own number of ranks."""


class NodeLinks:
    """Seconds of communication that stays inside a domain of fast links."""

    def __init__(
        self,
        device: Device,
        domain: int,
        overrides: HardwareOverrides,
        measured: Mapping[str, MeasuredCollective],
    ) -> None:
        """`domain` devices share the links; collectives `measured` on them win over the catalog and `overrides`."""
        self._device, self._domain, self._overrides, self._measured = device, domain, overrides, measured
        mesh = device.intra_node is not None and device.intra_node.kind is LinkKind.MESH
        self._mesh = mesh if overrides.mesh is None else overrides.mesh

    @property
    def scale(self) -> float:
        """Stated line rate of the links over the catalog's."""
        link = self._device.intra_node
        if self._overrides.node_bytes_per_second is None or link is None:
            return 1.0
        return self._overrides.node_bytes_per_second / link.bytes_per_second

    def has_measured(self, kind: CollectiveKind) -> bool:
        """Whether a calibration or the catalog states the rate of a collective."""
        return kind.value in self._measured or self._device.collective(kind.value) is not None

    def seconds(self, kind: CollectiveKind, message_bytes: float, size: int) -> float:
        """Seconds of one collective over `size` ranks."""
        sent = sent_share(kind, size) * message_bytes
        latency = self.latency(kind, message_bytes, size)
        return latency + sent / self.bytes_per_second(kind, message_bytes, size)

    def bytes_per_second(self, kind: CollectiveKind, message_bytes: float, size: int) -> float:
        """Bus bandwidth of `size` ranks after the latency."""
        own = self._measured.get(kind.value)
        if own is not None:
            return own.bytes_per_second * self._size_share(kind, message_bytes) * self._used_links(size)
        rate = self._transfer(kind, message_bytes).bytes_per_second * self._used_links(size)
        contention = self._overrides.mesh_contention
        if kind is CollectiveKind.ALL_TO_ALL and contention is not None and self._mesh:
            rate *= 1 - contention * self._used_links(size) ** 2
        return rate

    def pair_seconds(self, message_bytes: float) -> float:
        """Seconds of a transfer between two devices, beside its start."""
        link = self._device.intra_node
        if link is None:
            raise missing(self._device, "intra_node")
        rate = link.pair_bytes_per_second * self.scale
        if self._overrides.mesh is False:
            rate = link.bytes_per_second * self.scale
        return message_bytes / (rate * (self._overrides.pair_efficiency or _PAIR_EFFICIENCY))

    def latency(self, kind: CollectiveKind, message_bytes: float, size: int) -> float:
        """Fixed part of one call over `size` ranks."""
        own = self._measured.get(kind.value)
        if own is not None:
            return own.latency_seconds(size)
        stated = self.stated_latency(kind, size)
        latency = self._transfer(kind, message_bytes).latency_seconds if stated is None else stated
        if self._overrides.node_latency_seconds is not None:
            return latency + self._overrides.node_latency_seconds * (size - 1)
        step = 0.0 if stated is not None else self._device.collective_step_seconds or 0.0
        return latency + step * (size - 1)

    def stated_latency(self, kind: CollectiveKind, size: int) -> float | None:
        """Fixed part that a hardware file states; None where it leaves that to the catalog."""
        stated, launch = self._overrides, self._overrides.launch_seconds or 0.0
        if kind is not CollectiveKind.ALL_TO_ALL:
            return None if stated.collective_seconds is None else stated.collective_seconds + launch
        if not stated.all_to_all_latency:
            return None
        shared = 0.0 if size == 1 else stated.all_to_all_local_seconds or 0.0
        fixed = (stated.all_to_all_seconds or 0.0) + shared + launch
        return fixed + (stated.all_to_all_local_peer_seconds or 0.0) * (size - 1)

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
        device = self._device
        exchange = kind is CollectiveKind.ALL_TO_ALL
        contended = exchange and self._mesh and self._overrides.mesh_contention is not None
        curve = None if contended else device.collective(kind.value)
        factor = 1.0
        if curve is None:
            curve = device.collective(CollectiveKind.ALL_REDUCE.value)
            if exchange and not contended:
                factor = device.all_to_all_over_all_reduce or 1.0
        if curve is not None:
            stated = device.collective_latency_seconds
            latency = _curve_latency(curve) if stated is None else stated
            rate = _transfer_rate(curve, message_bytes, latency) * factor
            return Transfer(latency_seconds=latency, bytes_per_second=rate * self.scale * self._efficiency_scale(curve))
        link = device.intra_node
        if link is None:
            raise missing(device, "intra_node")
        efficiency = self._overrides.efficiency or _LINK_EFFICIENCY
        rate = link.achieved_bytes_per_second or link.bytes_per_second * efficiency
        latency = device.collective_latency_seconds or _DEFAULT_LATENCY_SECONDS
        return Transfer(latency_seconds=latency, bytes_per_second=rate * self.scale)

    def _efficiency_scale(self, curve: CollectiveCurve) -> float:
        """Stated efficiency over the one that the curve's best point shows."""
        link = self._device.intra_node
        if self._overrides.efficiency is None or link is None:
            return 1.0
        return self._overrides.efficiency * link.bytes_per_second / max(rate for _, rate in curve.points)


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
