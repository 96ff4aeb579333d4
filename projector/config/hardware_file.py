"""Reading a Primus hardware file (`hardware_config:` map) into overrides of a device's links.

Primus's file feeds its own latency and bandwidth formulas. Keys that describe the machine are taken over; keys that
are constants of those formulas have no counterpart here and are listed as without effect.
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
    "bw_eff": ("efficiency", 1.0, 1.0),
    "p2p_bw_eff": ("pair_efficiency", 1.0, 1.0),
    "node_lat": ("node_latency_seconds", 1e-6, _LARGEST),
    "pod_lat": ("network_latency_seconds", 1e-6, _LARGEST),
}
"""Key, field, factor to SI units, largest value: GB/s, shares and microseconds as Primus writes them."""
_WITHOUT_EFFECT = frozenset({
    "node_size", "pod_size", "cluster_bw", "cluster_lat", "hbm_latency", "write_latency", "write_resp",
    "kernel_launch_latency", "vector_flops", "rccl_overhead_us", "switch_topology", "ar_overlap_factor",
    "ar_warmup_chunk_bytes", "nic_rdma_setup_us", "nic_warmup_bytes", "a2a_peer_lat", "a2a_intra_sync_overhead",
    "a2a_intra_node_peer_lat", "a2a_mesh_contention", "a2a_rccl_overhead_us", "a2a_remote_contention",
})  # fmt: skip
_TOPOLOGIES = {"mesh": True, "switch": False}
_KNOWN = (*_NUMBERS, "nics_per_node", "node_topology", *sorted(_WITHOUT_EFFECT))


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
    without_effect = []
    for key, value in entries.items():
        where = f"{place}: hardware_config.{key}"
        if key in _NUMBERS:
            name, factor, largest = _NUMBERS[key]
            values[name] = _positive(value, where, largest) * factor
        elif key == "nics_per_node":
            values["interfaces_per_node"] = _count(value, where)
        elif key == "node_topology":
            values["mesh"] = _topology(value, where)
        elif key in _WITHOUT_EFFECT:
            without_effect.append(key)
        else:
            raise ConfigurationError("is not a known key", place=where, expected=nearest(key, _KNOWN))
    return HardwareOverrides(**values, without_effect=tuple(without_effect))


def _positive(value: object, place: str, largest: float = _LARGEST) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise _wrong(value, place, "a number above 0") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise _wrong(value, place, "a number above 0")
    if not _SMALLEST <= value <= largest:
        raise _wrong(value, place, f"a number from {_SMALLEST:g} to {largest:g}")
    return float(value)


def _count(value: object, place: str) -> int:
    number = _positive(value, place)
    if not number.is_integer():
        raise _wrong(value, place, "a whole number")
    return int(number)


def _topology(value: object, place: str) -> bool:
    if not isinstance(value, str) or value not in _TOPOLOGIES:
        raise _wrong(value, place, " or ".join(_TOPOLOGIES))
    return _TOPOLOGIES[value]


def _wrong(value: object, place: str, expected: str) -> ConfigurationError:
    return ConfigurationError(shown(value), place=place, expected=f"expected {expected}")
