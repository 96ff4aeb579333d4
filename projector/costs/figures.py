"""Reading a device's figures, with a refusal that names what is missing instead of a guess."""

from collections.abc import Mapping

from projector.catalog import Device, peak_format
from projector.errors import RateUnknown
from projector.job import LowPrecision

TERA, GIGA = 1e12, 1e9
"""FLOP/s of a TFLOP/s, bytes per second of a GB/s."""
KERNEL_GAP_SECONDS = 2e-6
"""Time between the work of two kernels of one stream: the first drains, the second fills. A prior: raw launches take
3 us on the host (tritonbench pull request 1017) and overlap with the kernel before."""

_STAND_INS: Mapping[LowPrecision, tuple[LowPrecision, ...]] = {
    LowPrecision.FP8_BLOCK: (LowPrecision.FP8,),
    LowPrecision.MXFP8: (LowPrecision.FP8,),
    LowPrecision.MXFP6: (LowPrecision.MXFP8, LowPrecision.FP8),
    LowPrecision.MXFP4: (LowPrecision.NVFP4,),
}
"""Formats whose rate stands in where a format's own was not measured and both have the same peak: 6 bits run like 8 on
Blackwell and like 4 on CDNA 4."""


def figure(device: Device, name: str) -> float:
    """A figure of the device. Raises `RateUnknown` when nobody published or measured it."""
    value = getattr(device, name)
    if value is None:
        raise RateUnknown(
            f"the time of a job on {device.name} needs its {name}, which the catalog does not have",
            place="target device",
            expected="state the device's figures in the catalog, or measure them with a benchmark",
        )
    return float(value)


def kernel_gap(device: Device) -> float:
    """Seconds between the work of two kernels: measured, or the prior."""
    return KERNEL_GAP_SECONDS if device.kernel_gap_seconds is None else device.kernel_gap_seconds


def rate_key(device: Device, low_precision: LowPrecision | None) -> str:
    """Entry of `Device.gemm_tflops` that tells the rate of a format: its own, else one of the same matrix units.

    Raises `RateUnknown` when the device does not have the format or nobody measured its rate.
    """
    rates = device.gemm_tflops
    key = "bf16" if low_precision is None else low_precision.value
    if not device.offers(low_precision):
        raise RateUnknown(
            f"{device.name} has no matrix units for {key}",
            place="target device",
            expected=f"a format whose rate is known there ({_known(rates)}), or another GPU",
        )
    if key in rates:
        return key
    own = device.peak_tflops[peak_format(low_precision)]
    for other in () if low_precision is None else _STAND_INS.get(low_precision, ()):
        if other.value in rates and device.peak_tflops.get(peak_format(other)) == own:
            return other.value
    raise RateUnknown(
        f"no rate of {key} GEMMs is known on {device.name}",
        place="target device",
        expected=f"known are {_known(rates)}",
    )


def _known(rates: Mapping[str, float]) -> str:
    return ", ".join(sorted(rates)) or "none"


def gemm_rate(device: Device, low_precision: LowPrecision | None) -> float:
    """FLOP/s that large GEMMs of a format sustain in training; raises as `rate_key`."""
    return device.gemm_tflops[rate_key(device, low_precision)] * TERA * training_factor(device)


def assumed_rates(device: Device, low_precision: LowPrecision | None) -> dict[str, str]:
    """Figures that time in a format rests on and that no published run of the device checks, each with its reason."""
    names = {f"gemm_tflops.{rate_key(device, each)}" for each in (None, low_precision)}
    names |= {"attention_forward_tflops", "attention_backward_tflops", "elementwise_bytes_per_second"}
    found = {name: device.provenance[name].why for name in sorted(names) if device.assumed(name)}
    if low_precision is not None and (key := rate_key(device, low_precision)) != low_precision.value:
        found[f"gemm_tflops.{low_precision.value}"] = f"that of {key}, which runs on the same matrix units"
    return found


def best_gemm_rate(device: Device, low_precision: LowPrecision | None) -> float:
    """FLOP/s of a kernel that is limited by its tiles and not by power.

    That is the burst, else the achievable, else the sustained rate.
    """
    key = "bf16" if low_precision is None else low_precision.value
    sustained = gemm_rate(device, low_precision)
    best = device.gemm_burst_tflops.get(key, device.gemm_achievable_tflops.get(key, 0.0)) * TERA
    return max(best, sustained)


def peak_rate(device: Device, low_precision: LowPrecision | None) -> float:
    """Dense peak of the matrix units that a format uses, FLOP/s. Raises `RateUnknown` when the device has none."""
    key = peak_format(low_precision)
    if key not in device.peak_tflops:
        known = ", ".join(sorted(device.peak_tflops)) or "none"
        raise RateUnknown(
            f"no peak of {key} is known on {device.name}", place="target device", expected=f"known are {known}"
        )
    return device.peak_tflops[key] * TERA


def training_factor(device: Device) -> float:
    """What benchmark rates are multiplied with for training, 1 where no published run tells."""
    return 1.0 if device.training_factor is None else device.training_factor
