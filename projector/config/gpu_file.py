"""GPUs that a person describes: a file of the catalog's own form, or Primus's `gpu_hardware_profiles:`.

A Primus profile states peaks, bandwidth and compute units alone. What it leaves out is that of the GPU of the same name
in the catalog, else of `_TEMPLATE`: rates in proportion to the peaks, and never the memory's capacity. What was derived
so is an estimate, with the reason.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import isfinite

from projector import catalog
from projector.catalog import Device, Provenance, device_of
from projector.catalog.names import normalised
from projector.config.nearest import nearest
from projector.config.safe_yaml import parse_mapping
from projector.errors import ConfigurationError, DeviceUnknown, shown

PROFILES = "gpu_hardware_profiles"
"""The key that makes a file Primus's."""
_TEMPLATE = "MI355X"
"""GPU whose proportions an unknown one of Primus gets: the catalog's most measured one of AMD's current generation."""
_NUMBERS = ("peak_tflops_bf16", "peak_tflops_fp16", "peak_tflops_fp8", "hbm_bandwidth_gbps", "base_clock_mhz")
_COUNTS = ("n_cu", "n_xcd")
_KNOWN = (*_NUMBERS, *_COUNTS, "aliases")
_NEEDED = ("peak_tflops_bf16", "hbm_bandwidth_gbps")
_LARGEST = 1e9
_GEMM_RATES = ("gemm_tflops", "gemm_burst_tflops", "gemm_achievable_tflops", "grouped_gemm_tflops")
_ATTENTION = ("attention_forward_tflops", "attention_backward_tflops", "latent_attention_backward_tflops")
_MEMORY = ("elementwise_bytes_per_second", "gemm_output_bytes_per_second", "low_precision_cast_bytes_per_second")


def read_gpu_files(files: Mapping[str, str]) -> tuple[Device, ...]:
    """The GPUs of files by name, in order; raises `ConfigurationError` that names file and key."""
    found = tuple(device for name, text in files.items() for device in read_gpu_file(text, place=name))
    seen: dict[str, Device] = {}
    for device in found:
        for name in {normalised(each) for each in (device.name, *device.aliases)}:
            if name in seen:
                raise ConfigurationError(f"two files describe a GPU called {name}", place="GPU files", expected="one")
            seen[name] = device
    return found


def read_gpu_file(text: str, *, place: str = "GPU file") -> tuple[Device, ...]:
    """The GPUs of one file; raises `ConfigurationError` that names the key, its value and what would be right."""
    content = parse_mapping(text, name=place)
    profiles = content.get(PROFILES)
    if profiles is None:
        _check_numbers(content, place)
        try:
            return (replace(device_of(content, place=place), file=place),)
        except ValueError as error:
            message = f"cannot be read: {error}"
            raise ConfigurationError(message, place=place, expected="a file such as the catalog's") from error
    if not isinstance(profiles, dict) or not profiles:
        raise ConfigurationError(shown(profiles), place=f"{place}: {PROFILES}", expected="expected GPUs by name")
    found = (_profiled(name, entries, f"{place}: {PROFILES}.{name}") for name, entries in profiles.items())
    return tuple(replace(device, file=place) for device in found)


def named_device(name: str, own: Iterable[Device]) -> Device:
    """The GPU called `name`: a person's own before the catalog's. Raises `DeviceUnknown`."""
    wanted = normalised(name)
    for device in own:
        if wanted in {normalised(each) for each in (device.name, *device.aliases)}:
            return device
    return catalog.device(name)


def _profiled(name: str, entries: object, place: str) -> Device:
    if not isinstance(entries, Mapping):
        raise ConfigurationError(shown(entries), place=place, expected=f"expected keys {', '.join(_KNOWN)}")
    for key in entries:
        if key not in _KNOWN:
            raise ConfigurationError("is not a known key", place=f"{place}.{key}", expected=nearest(key, _KNOWN))
    for key in _NEEDED:
        if key not in entries:
            raise ConfigurationError("is missing", place=f"{place}.{key}", expected="expected a number above 0")
    numbers = {key: _number(entries[key], f"{place}.{key}") for key in (*_NUMBERS, *_COUNTS) if key in entries}
    for key in _COUNTS:
        if not numbers.get(key, 1.0).is_integer():
            raise ConfigurationError(shown(entries[key]), place=f"{place}.{key}", expected="expected a whole number")
    aliases = entries.get("aliases") or []
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise ConfigurationError(shown(aliases), place=f"{place}.aliases", expected="expected a list of names")
    return _device(name, tuple(aliases), numbers, place)


def _device(name: str, aliases: tuple[str, ...], numbers: Mapping[str, float], place: str) -> Device:
    try:
        base, known = catalog.device(name), True
    except DeviceUnknown:
        base, known = catalog.device(_TEMPLATE), False
    peaks = {**base.peak_tflops}
    for key in ("bf16", "fp16", "fp8"):
        if (stated := numbers.get(f"peak_tflops_{key}")) is not None:
            peaks[key] = stated
        elif not known:
            peaks.pop(key, None)
    bandwidth = numbers["hbm_bandwidth_gbps"] * 1e9
    values: dict[str, object] = {
        "memory_bandwidth_bytes_per_second": bandwidth,
        "peak_tflops": peaks,
        **_scaled(base, peaks, bandwidth),
    }
    if "n_cu" in numbers:
        values["compute_units"] = int(numbers["n_cu"])
    if "base_clock_mhz" in numbers:
        values["clock_hz"] = numbers["base_clock_mhz"] * 1e6
    if not known:
        unknown = ("memory_capacity_bytes", "memory_size_bytes", "cache_bytes", "sustained_clock_hz")
        values |= dict.fromkeys(unknown) | {"flops_per_unit_and_clock": {}, "pci_device_ids": (), "product_names": ()}
        values["architecture"] = normalised(name)
    why = f"as {base.name}; rates in proportion to the profile's peaks and bandwidth"
    changed = replace(base, name=name, aliases=aliases, **values)  # type: ignore[arg-type]
    own_fields = ("peak_tflops", "memory_bandwidth_bytes_per_second", "compute_units", "clock_hz")
    sources: dict[str, Provenance] = {
        key: Provenance(source=place)
        if key.split(".")[0] in own_fields
        else Provenance(source=place, estimated=True, why=why)
        for key in base.provenance
    }
    return replace(changed, provenance=sources)


def _scaled(base: Device, peaks: Mapping[str, float], bandwidth: float) -> dict[str, object]:
    """Rates of arithmetic by the ratio of the format's peaks, rates of memory by that of the bandwidths."""

    def ratio(name: str) -> float | None:
        key = "bf16" if name in {"forward", "backward"} else name if name in peaks else _family(name)
        return None if key not in peaks else peaks[key] / base.peak_tflops.get(key, peaks[key])

    values: dict[str, object] = {}
    for field_name in _GEMM_RATES:
        rates: Mapping[str, float] = getattr(base, field_name)
        gains = {name: ratio(name) for name in rates}
        values[field_name] = {name: rate * gain for name, rate in rates.items() if (gain := gains[name]) is not None}
    for names, gain in ((_ATTENTION, ratio("bf16")), (_MEMORY, bandwidth / (_bandwidth(base) or bandwidth))):
        for field_name in names:
            rate = getattr(base, field_name)
            values[field_name] = None if rate is None else rate * (gain or 1.0)
    return values


def _family(name: str) -> str:
    """The peak behind a low-precision format."""
    return "fp4" if "fp4" in name else "fp6" if "fp6" in name else "fp8"


def _bandwidth(device: Device) -> float | None:
    return device.memory_bandwidth_bytes_per_second


def _check_numbers(value: object, place: str) -> None:
    """Complain about numbers that no GPU has: below 0, or 0 where it is not a time."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _check_numbers(inner, place if key == "value" else f"{place}.{key}")
    elif isinstance(value, list):
        for inner in value:
            _check_numbers(inner, place)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        time = place.endswith(("_us", "_ms"))
        if not isfinite(value) or value < 0 or value >= _LARGEST**2 or (value == 0 and not time):
            raise ConfigurationError(shown(value), place=place, expected="expected a number above 0")


def _number(value: object, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or not 0 < value < _LARGEST:
        raise ConfigurationError(shown(value), place=place, expected="expected a number above 0")
    return float(value)
