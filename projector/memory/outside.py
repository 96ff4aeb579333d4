"""What the device holds outside torch's allocator: the runtime's context, communicators, buffers of libraries.

Without a measurement the figures are the catalog's, which are estimates read from published logs. One training run on
one node measures the sum; then only the process groups and dispatch buffers in which a job differs are estimated.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from projector.catalog import Calibration, Device, OutsideMeasurement
from projector.job import TrainingJob
from projector.memory.communicators import communicator_bytes, groups_in_use
from projector.memory.dispatch_buffers import dispatch_buffer_bytes
from projector.memory.user_buffers import user_buffer_bytes
from projector.parallelism import Layout
from projector.projection import MemoryComponent, MemoryLevel
from projector.provenance import Assumption

CALIBRATED_UNCERTAINTY_BYTES = 2**30
"""Half width once it was measured: ranks of one node differ by up to 1 GiB in the same iteration (AMD-AGI/Primus,
raw logs of 8 MI355X, `total_r_used`)."""


@dataclass(frozen=True, kw_only=True)
class Outside:
    """Device memory outside torch's allocator."""

    parts: Mapping[str, int]
    """Expected bytes by name; figures that nobody knows count as 0 (`projector.memory.unmodelled.unknown_figures`)."""
    uncertainty_bytes: int
    """Half width of the interval around their sum."""

    @cached_property
    def components(self) -> tuple[MemoryComponent, ...]:
        """The same as parts of a stage's memory."""
        named = self.parts.items()
        return tuple(MemoryComponent(name=name, level=MemoryLevel.DEVICE, size_bytes=size) for name, size in named)

    @property
    def size_bytes(self) -> int:
        """All of it."""
        return sum(self.parts.values())


def outside_allocator(
    job: TrainingJob, layout: Layout, device: Device, calibration: Calibration | None = None
) -> Outside:
    """What a device of the job holds outside torch's allocator."""
    groups = groups_in_use(job, layout)
    parts = {
        "runtime context": device.context_bytes or 0,
        "communicators": communicator_bytes(groups, device),
        "eagerly created communicators": (device.eager_communicator_bytes or 0) * job.software.eager_communicators,
        "expert dispatch buffers": dispatch_buffer_bytes(job, layout),
        "tensor-parallel user buffers": user_buffer_bytes(job, layout),
    }
    uncertainty = device.outside_allocator_uncertainty_bytes or 0
    measured = calibration.outside_allocator if calibration else None
    if measured is not None:
        parts = _anchored(parts, measured, len(groups), device)
        uncertainty = min(CALIBRATED_UNCERTAINTY_BYTES, uncertainty or CALIBRATED_UNCERTAINTY_BYTES)
    return Outside(parts={name: size for name, size in parts.items() if size}, uncertainty_bytes=uncertainty)


def _anchored(parts: Mapping[str, int], measured: OutsideMeasurement, groups: int, device: Device) -> dict[str, int]:
    """The measured sum, with the process groups that the job has more or less and its own dispatch buffers."""
    more = 0 if measured.groups is None else groups - measured.groups
    fixed = measured.size_bytes - measured.dispatch_buffer_bytes + more * (device.communicator_bytes or 0)
    return {
        "context and communicators as measured": max(0, fixed),
        "expert dispatch buffers": parts["expert dispatch buffers"],
    }


def measured_outside(job: TrainingJob, layout: Layout, calibration: Calibration | None) -> tuple[Assumption, ...]:
    """What a measurement says, and how far the job differs from it, for the list of what the answer builds on."""
    measured = calibration.outside_allocator if calibration else None
    if measured is None:
        return ()
    groups = len(groups_in_use(job, layout))
    ran = "as many" if measured.groups is None else f"{measured.groups}"
    what = f"{measured.size_bytes / 2**30:.2f} GiB outside PyTorch's allocator"
    why = f"measured with {ran} process groups in use, this job uses {groups}: {measured.source}"
    return (Assumption(what=what, why=why),)
