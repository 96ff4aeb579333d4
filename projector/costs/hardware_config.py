"""Reading a Primus hardware file (`hardware_config:` map) into overrides of a device's links.

Primus's file feeds its own latency and bandwidth formulas. Keys that describe the machine are taken over; keys that
are constants of those formulas have no counterpart here and are listed as without effect.
"""

from dataclasses import dataclass
from difflib import get_close_matches

import yaml

from projector.errors import ConfigurationError

_Loader: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LARGEST_FILE = 64 * 1024
"""Characters; a hardware file is a handful of lines."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HardwareOverrides:
    """Figures that replace those of the catalog; None keeps the catalog's."""

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


_NUMBERS = {
    "node_bw": ("node_bytes_per_second", 1e9),
    "pod_bw": ("network_bytes_per_second", 1e9),
    "bw_eff": ("efficiency", 1.0),
    "p2p_bw_eff": ("pair_efficiency", 1.0),
    "node_lat": ("node_latency_seconds", 1e-6),
    "pod_lat": ("network_latency_seconds", 1e-6),
    "nics_per_node": ("interfaces_per_node", 1),
}
"""Key, field and factor: GB/s, microseconds and counts as Primus writes them."""
_WITHOUT_EFFECT = frozenset({
    "node_size", "pod_size", "cluster_bw", "cluster_lat", "hbm_latency", "write_latency", "write_resp",
    "kernel_launch_latency", "vector_flops", "rccl_overhead_us", "switch_topology", "ar_overlap_factor",
    "ar_warmup_chunk_bytes", "nic_rdma_setup_us", "nic_warmup_bytes", "a2a_peer_lat", "a2a_intra_sync_overhead",
    "a2a_intra_node_peer_lat", "a2a_mesh_contention", "a2a_rccl_overhead_us", "a2a_remote_contention",
})  # fmt: skip
_TOPOLOGIES = {"mesh": True, "switch": False}
_KNOWN = (*_NUMBERS, "node_topology", *sorted(_WITHOUT_EFFECT))


def read_hardware_config(text: str, *, place: str = "hardware file") -> HardwareOverrides:
    """Read a hardware file. Raises `ConfigurationError` that names the key, its value and what would be right."""
    if len(text) > _LARGEST_FILE:
        raise ConfigurationError(f"{len(text)} characters", place=place, expected=f"at most {_LARGEST_FILE}")
    try:
        content = yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise ConfigurationError(f"is not YAML: {error}".replace("\n", " "), place=place) from error
    entries = content.get("hardware_config") if isinstance(content, dict) else None
    if not isinstance(entries, dict):
        raise ConfigurationError(
            "has no map hardware_config", place=place, expected="hardware_config: {node_bw: 448, ...}"
        )
    values: dict[str, object] = {}
    without_effect = []
    for key, value in entries.items():
        where = f"{place}: hardware_config.{key}"
        if key in _NUMBERS:
            name, factor = _NUMBERS[key]
            values[name] = _positive(value, where) * factor
        elif key == "node_topology":
            values["mesh"] = _topology(value, where)
        elif key in _WITHOUT_EFFECT:
            without_effect.append(key)
        else:
            near = get_close_matches(str(key), _KNOWN, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(_KNOWN)}"
            raise ConfigurationError("is not a known key", place=where, expected=hint)
    if "interfaces_per_node" in values:
        values["interfaces_per_node"] = int(values["interfaces_per_node"])  # type: ignore[call-overload]
    return HardwareOverrides(**values, without_effect=tuple(without_effect))  # type: ignore[arg-type]


def _positive(value: object, place: str) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise ConfigurationError(f"{value!r}", place=place, expected="expected a number above 0") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ConfigurationError(f"{value!r}", place=place, expected="expected a number above 0")
    return float(value)


def _topology(value: object, place: str) -> bool:
    if not isinstance(value, str) or value not in _TOPOLOGIES:
        raise ConfigurationError(f"{value!r}", place=place, expected=f"expected {' or '.join(_TOPOLOGIES)}")
    return _TOPOLOGIES[value]
