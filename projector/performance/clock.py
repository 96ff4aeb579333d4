"""The clock that a chip settles at, or that somebody states: idle stretches buy power for the rest of the step.

Power grows with about the cube of the clock. With a share u of the step outside matrix products and attention, at which
the chip draws a share r of its limit, the rest may draw (1 - r u) / (1 - u) of it.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from projector.catalog import Device, peak_format
from projector.errors import ConfigurationError
from projector.identity import remembered
from projector.job import LowPrecision
from projector.performance.passes import RECOMPUTE, WORKING

_HIGHEST = 1.25
"""Clock gain at which the chip meets its highest frequency whatever power is left (prior, from published B200 runs)."""

_STEPS = 400
"""Parts of the sustained clock to which the gain is rounded, so that what is costed at one clock serves again."""
_ROUNDS = 8
"""Evaluations of the law until it agrees with itself: each one leaves less than a third of the error."""

_OPTION = "--gpu-clock-mhz"
_ATTENTION = ("attention_forward_tflops", "attention_backward_tflops", "latent_attention_backward_tflops")


def settled_gain(device: Device, parts: Mapping[str, float], gain: float) -> float:
    """The gain of the clock, over the sustained one, that a step lets the device hold; 1 where no law is known.

    `parts` are those of the step's waterfall at a `gain` that was tried. What works scales with the clock, what idles
    does not, so that the gain that agrees with itself is found at once; it is rounded to less than any figure
    here is known to.
    """
    if device.idle_power_share is None:
        return 1.0
    working = sum(seconds for name, seconds in parts.items() if name in WORKING or name == RECOMPUTE)
    idling = sum(parts.values()) - working
    found = gain
    for _ in range(_ROUNDS):
        idle = idling / (idling + working * gain / found)
        found = min(_HIGHEST, ((1 - device.idle_power_share * idle) / max(1e-6, 1 - idle)) ** (1 / 3))
    return round(found * _STEPS) / _STEPS


@remembered
def at_gain(device: Device, gain: float) -> Device:
    """The device with its clock a factor above the sustained one."""
    return device if gain == 1 else replace(device, training_factor=(device.training_factor or 1.0) * gain)


def at_clock(device: Device, clock_hz: float) -> Device:
    """The device held at a stated clock: arithmetic of GEMMs and attention scales, memory and links do not.

    The catalog's rates hold at the sustained clock. No rate exceeds the peak at the stated clock, and idle stretches no
    longer buy power. Raises `ConfigurationError` where the sustained clock is unknown, or the stated one is above what
    the chip has.
    """
    sustained, highest = device.sustained_clock_hz, device.clock_hz
    if sustained is None:
        raise ConfigurationError(
            f"nobody published the clock at which the rates of {device.name} were measured",
            place=_OPTION,
            expected="state sustained_clock_mhz of the GPU in a file for --gpu-file, or leave the clock out",
        )
    if highest is not None and clock_hz > highest:
        raise ConfigurationError(
            f"{clock_hz / 1e6:g}", place=_OPTION, expected=f"at most the {highest / 1e6:g} MHz of {device.name}"
        )
    gain = clock_hz / sustained
    ceiling = clock_hz / (highest or clock_hz)

    def scaled(rates: Mapping[str, float]) -> dict[str, float]:
        limits = ((name, device.peak_tflops.get(_peak_name(name), inf) * ceiling) for name in rates)
        return {name: min(rates[name] * gain, limit) for name, limit in limits}

    return replace(
        device,
        gemm_tflops=scaled(device.gemm_tflops),
        gemm_burst_tflops=scaled(device.gemm_burst_tflops),
        gemm_achievable_tflops=scaled(device.gemm_achievable_tflops),
        grouped_gemm_tflops=scaled(device.grouped_gemm_tflops),
        idle_power_share=None,
        **{name: rate * gain for name in _ATTENTION if (rate := getattr(device, name)) is not None},
    )


def _peak_name(name: str) -> str:
    """The peak that limits a rate: by its format, bf16 for passes of grouped products."""
    formats = {member.value: peak_format(member) for member in LowPrecision}
    return "bf16" if name in {"forward", "backward"} else formats.get(name, name)
