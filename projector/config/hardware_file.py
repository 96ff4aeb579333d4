"""Reading a Primus hardware file (`hardware_config:` map) into overrides of a device's links.

Every key either acts or is listed with the reason why it has no influence here and what says the same. A key that the
file leaves out keeps the catalog's figure, not the default of Primus, whose defaults describe no machine (`node_bw` is
1,024 GB/s there).
"""

from typing import Any

from projector.catalog import HardwareOverrides
from projector.config.nearest import nearest
from projector.config.safe_yaml import parse_mapping
from projector.errors import ConfigurationError, shown

_LARGEST_FILE = 64 * 1024
"""Characters; a hardware file is a handful of lines."""

_SMALLEST, _LARGEST = 1e-6, 1e9
"""Bounds of every figure in the file's own units; none of a real machine comes near, and times stay finite."""

_NUMBERS = {
    "node_bw": ("node_bytes_per_second", 1e9, _LARGEST),
    "pod_bw": ("network_bytes_per_second", 1e9, _LARGEST),
    "cluster_bw": ("cluster_bytes_per_second", 1e9, _LARGEST),
    "bw_eff": ("efficiency", 1.0, 1.0),
    "p2p_bw_eff": ("pair_efficiency", 1.0, 1.0),
    "node_lat": ("node_latency_seconds", 1e-6, _LARGEST),
    "pod_lat": ("network_latency_seconds", 1e-6, _LARGEST),
    "cluster_lat": ("cluster_latency_seconds", 1e-6, _LARGEST),
}
"""Key, field, factor to SI units, largest value: GB/s, shares and microseconds as Primus writes them."""
_FROM_ZERO = {
    "kernel_launch_latency": ("launch_seconds", 1e-6, _LARGEST),
    "rccl_overhead_us": ("collective_seconds", 1e-6, _LARGEST),
    "a2a_rccl_overhead_us": ("all_to_all_seconds", 1e-6, _LARGEST),
    "a2a_intra_sync_overhead": ("all_to_all_local_seconds", 1e-6, _LARGEST),
    "a2a_intra_node_peer_lat": ("all_to_all_local_peer_seconds", 1e-6, _LARGEST),
    "a2a_peer_lat": ("all_to_all_remote_peer_seconds", 1e-6, _LARGEST),
    "a2a_mesh_contention": ("mesh_contention", 1.0, 0.99),
    "a2a_remote_contention": ("remote_contention", 1.0, 1.0),
    "ar_overlap_factor": ("overlap", 1.0, 1.0),
    "ar_warmup_chunk_bytes": ("overlap_bytes", 1.0, 1e12),
    "nic_rdma_setup_us": ("setup_seconds", 1e-6, _LARGEST),
    "nic_warmup_bytes": ("warmup_bytes", 1.0, 1e12),
}
"""The same of figures that may be 0."""
_COUNTS = {
    "nics_per_node": "interfaces_per_node",
    "node_size": "domain_devices",
    "pod_size": "pod_devices",
}
_PROTOCOL = "lies inside the latency of measured collectives; rccl_overhead_us and node_lat say it"
_WITHOUT_EFFECT = {
    "hbm_latency": _PROTOCOL,
    "write_latency": _PROTOCOL,
    "write_resp": _PROTOCOL,
    "vector_flops": "links and memory bind a reduction, not its additions; node_bw and bw_eff say what it reaches",
    "switch_topology": "all ranks of a node use their interfaces at once, so that a group has its ranks' own alone;"
    " nics_per_node says how many there are",
}
"""Keys, and why they have no influence and what says the same here."""
_BESIDE = {
    "cluster_bw": ("pod_size", "holds between pods"),
    "cluster_lat": ("pod_size", "holds between pods"),
    "pod_size": ("cluster_bw", "pods differ in what lies between them"),
    "nic_warmup_bytes": ("nic_rdma_setup_us", "is where the setup ends"),
}
"""Keys that act beside another one alone, and why."""
_TOPOLOGIES = {"mesh": True, "switch": False}
_KNOWN = (*_NUMBERS, *_FROM_ZERO, *_COUNTS, "node_topology", *_WITHOUT_EFFECT)


def read_hardware_file(text: str, *, place: str = "hardware file") -> HardwareOverrides:
    """Read a hardware file. Raises `ConfigurationError` that names the key, its value and what would be right."""
    if len(text) > _LARGEST_FILE:
        raise ConfigurationError(f"{len(text)} characters", place=place, expected=f"at most {_LARGEST_FILE}")
    entries = parse_mapping(text, name=place).get("hardware_config")
    if not isinstance(entries, dict):
        raise ConfigurationError(
            "has no map hardware_config", place=place, expected="hardware_config: {node_bw: 448, ...}"
        )
    values: dict[str, Any] = {}
    for key, value in entries.items():
        where = f"{place}: hardware_config.{key}"
        if key in _NUMBERS or key in _FROM_ZERO:
            name, factor, largest = (_NUMBERS | _FROM_ZERO)[key]
            values[name] = _number(value, where, largest, zero=key in _FROM_ZERO) * factor
        elif key in _COUNTS:
            values[_COUNTS[key]] = _count(value, where)
        elif key == "node_topology":
            values["mesh"] = _topology(value, where)
        elif key not in _WITHOUT_EFFECT:
            raise ConfigurationError("is not a known key", place=where, expected=nearest(key, _KNOWN))
    return HardwareOverrides(**values, without_effect=tuple(_idle(entries)))


def _idle(entries: dict[str, Any]) -> list[str]:
    """Keys of the file that have no influence, with the reason."""
    found = [f"{key} ({_WITHOUT_EFFECT[key]})" for key in entries if key in _WITHOUT_EFFECT]
    for key, (other, why) in _BESIDE.items():
        if key == "pod_size" and "cluster_lat" in entries:
            continue
        if key in entries and other not in entries:
            found.append(f"{key} ({why}; say {other} beside it)")
    return found


def _number(value: object, place: str, largest: float = _LARGEST, *, zero: bool = False) -> float:
    least = "from 0" if zero else "above 0"
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise _wrong(value, place, f"a number {least}") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise _wrong(value, place, f"a number {least}")
    if value == 0 and not zero:
        raise _wrong(value, place, f"a number {least}")
    if not (0 if zero else _SMALLEST) <= value <= largest:
        raise _wrong(value, place, f"a number from {0 if zero else _SMALLEST:g} to {largest:g}")
    return float(value)


def _count(value: object, place: str) -> int:
    number = _number(value, place)
    if not number.is_integer():
        raise _wrong(value, place, "a whole number")
    return int(number)


def _topology(value: object, place: str) -> bool:
    if not isinstance(value, str) or value not in _TOPOLOGIES:
        raise _wrong(value, place, " or ".join(_TOPOLOGIES))
    return _TOPOLOGIES[value]


def _wrong(value: object, place: str, expected: str) -> ConfigurationError:
    return ConfigurationError(shown(value), place=place, expected=f"expected {expected}")
