"""Reading a device's figures, with a refusal that names what is missing instead of a guess."""

from projector.catalog import Device, peak_format
from projector.errors import RateUnknown
from projector.job import LowPrecision

TERA = 1e12
"""FLOP/s of a TFLOP/s."""
KERNEL_GAP_SECONDS = 2e-6
"""Time between the work of two kernels of one stream: the first drains, the second fills. A prior: raw launches take
3 us on the host (tritonbench pull request 1017) and overlap with the kernel before."""

_SAME_UNITS = {LowPrecision.FP8_BLOCK: LowPrecision.FP8, LowPrecision.MXFP8: LowPrecision.FP8}
"""Formats that run on the matrix units of another; its rate stands in where their own was not measured."""


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


def gemm_rate(device: Device, low_precision: LowPrecision | None) -> float:
    """FLOP/s that large GEMMs of a format sustain in training.

    Raises `RateUnknown` when the device does not have the format or nobody measured its rate.
    """
    key = "bf16" if low_precision is None else low_precision.value
    rates = device.gemm_tflops
    if key not in rates and low_precision in _SAME_UNITS:
        key = _SAME_UNITS[low_precision].value
    if key not in rates:
        raise RateUnknown(
            f"no rate of {key} GEMMs is known on {device.name}",
            place="target device",
            expected=f"known are {', '.join(sorted(rates)) or 'none'}",
        )
    return rates[key] * TERA * training_factor(device)


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
