"""What somebody measured on their own machine, which replaces estimates of the catalog."""

from typing import NamedTuple

from projector.catalog.rates import MeasuredRates


class OutsideMeasurement(NamedTuple):
    """Device memory that a training run held outside torch's allocator, on one node."""

    size_bytes: int
    """Memory in use as the device shows it, less what torch had reserved at the same time."""
    groups: int | None
    """Process groups that the run communicated in; None for as many as the job that is projected."""
    dispatch_buffer_bytes: int
    """Of it, buffers of a DeepEP dispatcher."""
    source: str
    """How it was measured, in the person's words."""


class Calibration(NamedTuple):
    """A calibration file."""

    device: str
    """The GPU it was measured on: a name or alias of the catalog."""
    outside_allocator: OutsideMeasurement | None = None
    """What lies outside torch's allocator."""
    rates: MeasuredRates = MeasuredRates()
    """What decides time."""
    without_effect: tuple[str, ...] = ()
    """Keys of the file that this engine has no use for."""
