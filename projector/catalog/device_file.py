"""Reading `devices/*.yaml` into `Device`: people's units in the file (GB/s, GiB, us), SI units in the value."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from projector.catalog.device import CollectiveCurve, Device, Link, LinkKind
from projector.catalog.facts import Facts, Provenance, provenance_of, read_mapping
from projector.errors import ConfigurationError

GIBIBYTE = 2**30
_GIGA = 10**9

_INTEGERS = {"compute_units": 1, "node_devices": 1}
_SCALED = {
    "clock_mhz": ("clock_hz", 1e6),
    "sustained_clock_mhz": ("sustained_clock_hz", 1e6),
    "memory_bandwidth_gb_per_second": ("memory_bandwidth_bytes_per_second", _GIGA),
    "elementwise_gb_per_second": ("elementwise_bytes_per_second", _GIGA),
    "low_precision_cast_gb_per_second": ("low_precision_cast_bytes_per_second", _GIGA),
    "gemm_output_gb_per_second": ("gemm_output_bytes_per_second", _GIGA),
    "expert_dispatch_gb_per_second": ("expert_dispatch_bytes_per_second", _GIGA),
    "expert_dispatch_network_gb_per_second": ("expert_dispatch_network_bytes_per_second", _GIGA),
    "launch_us": ("launch_seconds", 1e-6),
    "collective_latency_us": ("collective_latency_seconds", 1e-6),
    "collective_step_us": ("collective_step_seconds", 1e-6),
    "expert_dispatch_us": ("expert_dispatch_seconds", 1e-6),
    "step_overhead_ms": ("step_overhead_seconds", 1e-3),
    "training_factor": ("training_factor", 1.0),
    "idle_power_share": ("idle_power_share", 1.0),
    "attention_forward_tflops": ("attention_forward_tflops", 1.0),
    "attention_backward_tflops": ("attention_backward_tflops", 1.0),
    "latent_attention_factor": ("latent_attention_factor", 1.0),
    "latent_attention_backward_tflops": ("latent_attention_backward_tflops", 1.0),
    "all_to_all_over_all_reduce": ("all_to_all_over_all_reduce", 1.0),
}
_SIZES = {
    "cache_mib": ("cache_bytes", 2**20),
    "memory_capacity_gib": ("memory_capacity_bytes", GIBIBYTE),
    "memory_size_gib": ("memory_size_bytes", GIBIBYTE),
    "blas_workspace_mib": ("blas_workspace_bytes", 2**20),
    "framework_workspace_mib": ("framework_workspace_bytes", 2**20),
    "context_gib": ("context_bytes", GIBIBYTE),
    "communicator_gib": ("communicator_bytes", GIBIBYTE),
    "peer_mib": ("peer_bytes", 2**20),
    "eager_communicator_gib": ("eager_communicator_bytes", GIBIBYTE),
    "outside_allocator_uncertainty_gib": ("outside_allocator_uncertainty_bytes", GIBIBYTE),
}
_MAPPINGS = (
    "peak_tflops",
    "gemm_tflops",
    "gemm_burst_tflops",
    "gemm_achievable_tflops",
    "grouped_gemm_tflops",
    "attention_backend_tflops",
)


@dataclass(slots=True)
class _Sheet:
    """What has been read so far: field values and where they come from."""

    values: dict[str, object]
    provenance: dict[str, Provenance]

    def number(self, fact: Facts, field_name: str) -> float:
        """Value of a fact; its provenance is noted under the field's name."""
        value = fact.required("value", float)
        self.provenance[field_name] = provenance_of(fact)
        fact.finish()
        return value


def read_device(path: Path) -> Device:
    """The device that a file of the catalog describes; raises as `device_of`."""
    return device_of(read_mapping(path), place=path.name)


def device_of(content: Mapping[str, object], *, place: str) -> Device:
    """The device that the content of a file describes.

    Raises `ConfigurationError` that names file and key when a value is missing, of the wrong type or unknown.
    """
    facts = Facts(content, place=place)
    sheet = _Sheet(values={}, provenance={})
    for key in ("name", "vendor", "architecture"):
        sheet.values[key] = facts.required(key, str)
    sheet.values["host_platform"] = facts.default("host_platform", "x86")
    for key in ("aliases", "product_names", "pci_device_ids"):
        sheet.values[key] = facts.texts(key)
    _read_numbers(facts, sheet)
    for key in _MAPPINGS:
        sheet.values[key] = {
            entry: sheet.number(facts.inner(key).inner(entry), f"{key}.{entry}") for entry in facts.inner(key)
        }
    sheet.values["small_communicator_bytes"] = {
        int(ranks): size * 2**20 for ranks, size in _whole_numbers(facts, sheet, "small_communicator_mib").items()
    }
    sheet.values["flops_per_unit_and_clock"] = _whole_numbers(facts, sheet, "flops_per_unit_and_clock")
    for key in ("intra_node", "inter_node"):
        if key in facts:
            sheet.values[key] = _link(facts.inner(key), sheet, key)
    sheet.values["collectives"] = _collectives(facts)
    facts.finish()
    return Device(**sheet.values, provenance=sheet.provenance)  # type: ignore[arg-type]


def _read_numbers(facts: Facts, sheet: _Sheet) -> None:
    for key in _INTEGERS:
        if key in facts:
            sheet.values[key] = int(sheet.number(facts.inner(key), key))
    for key, (field_name, factor) in _SCALED.items():
        if key in facts:
            sheet.values[field_name] = sheet.number(facts.inner(key), field_name) * factor
    for key, (field_name, unit_bytes) in _SIZES.items():
        if key in facts:
            sheet.values[field_name] = round(sheet.number(facts.inner(key), field_name) * unit_bytes)


def _whole_numbers(facts: Facts, sheet: _Sheet, key: str) -> Mapping[str, int]:
    inner = facts.inner(key)
    return {entry: int(sheet.number(inner.inner(entry), f"{key}.{entry}")) for entry in inner}


def _link(facts: Facts, sheet: _Sheet, field_name: str) -> Link:
    rate = facts.required("gb_per_second", float) * _GIGA
    achieved = facts.optional("achieved_gb_per_second", float)
    link = Link(
        name=facts.required("name", str),
        kind=facts.choice("kind", LinkKind),
        bytes_per_second=rate,
        pair_bytes_per_second=facts.default("pair_gb_per_second", rate / _GIGA) * _GIGA,
        domain_devices=facts.optional("domain_devices", int),
        achieved_bytes_per_second=None if achieved is None else achieved * _GIGA,
    )
    sheet.provenance[field_name] = provenance_of(facts)
    facts.finish()
    return link


def _collectives(facts: Facts) -> tuple[CollectiveCurve, ...]:
    content = facts.raw("collectives") or []
    if not isinstance(content, list):
        raise ConfigurationError(f"{content!r}", place=f"{facts.place}.collectives", expected="expected a list")
    return tuple(_curve(Facts(item, place=f"{facts.place}.collectives")) for item in content)


def _curve(facts: Facts) -> CollectiveCurve:
    curve = CollectiveCurve(
        collective=facts.required("collective", str),
        ranks=facts.required("ranks", int),
        nodes=facts.default("nodes", 1),
        points=_points(facts, "bytes_and_gb_per_second"),
        software=facts.default("software", ""),
        floor=facts.default("floor", otherwise=False),
        provenance=provenance_of(facts),
    )
    facts.finish()
    return curve


def _points(facts: Facts, key: str) -> tuple[tuple[int, float], ...]:
    points = facts.raw(key)
    try:
        return tuple((int(size), float(rate) * _GIGA) for size, rate in points)  # type: ignore[attr-defined]
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{points!r}", place=f"{facts.place}.{key}", expected="expected a list of [bytes, GB/s]"
        ) from error
