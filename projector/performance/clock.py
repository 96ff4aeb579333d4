"""The clock that a chip settles at: idle stretches buy power for the rest of the step.

Power grows with about the cube of the clock. With a share u of the step outside matrix products and attention, at which
the chip draws a share r of its limit, the rest may draw (1 - r u) / (1 - u) of it.
"""

from collections.abc import Mapping
from dataclasses import replace

from projector.catalog import Device
from projector.performance.passes import RECOMPUTE, WORKING

_HIGHEST = 1.25
"""Clock gain at which the chip meets its highest frequency whatever power is left (prior, from published B200 runs)."""


def settled(device: Device, parts: Mapping[str, float]) -> Device:
    """The device at the clock that a step of these waterfall parts lets it hold; itself where no law is known."""
    if device.idle_power_share is None:
        return device
    total = sum(parts.values())
    working = sum(seconds for name, seconds in parts.items() if name in WORKING or name == RECOMPUTE)
    idle = 1.0 - working / total
    gain = min(_HIGHEST, ((1 - device.idle_power_share * idle) / max(1e-6, 1 - idle)) ** (1 / 3))
    return replace(device, training_factor=(device.training_factor or 1.0) * gain)
