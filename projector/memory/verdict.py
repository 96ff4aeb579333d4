"""Does it fit, and how far can that be trusted."""

from collections.abc import Sequence

from projector.catalog import Device
from projector.job import Dialect, RecomputeGranularity, TrainingJob
from projector.projection import Confidence, StageMemory, Verdict


def device_capacity(device: Device) -> int:
    """Memory as the runtime reports it, else as sold, else 0; what stands in is named by `unknown_figures`."""
    return device.memory_capacity_bytes or device.memory_size_bytes or 0


def verdict_of(stages: Sequence[StageMemory], device: Device, *, understood: bool, complete: bool) -> Verdict:
    """The verdict over all stages: `AtRisk` exactly when some stage's interval contains the capacity and none is above.

    There is none when something that decides was not `understood`. Where figures of the device are not `complete`, a
    job that is too large without them does not fit, and nothing more can be said.
    """
    capacity_bytes = device_capacity(device)
    if not understood or capacity_bytes == 0:
        return Verdict.UNKNOWN
    if any(stage.device_bytes_lower > capacity_bytes for stage in stages):
        return Verdict.DOES_NOT_FIT
    if not complete:
        return Verdict.UNKNOWN
    if any(stage.device_bytes_upper >= capacity_bytes for stage in stages):
        return Verdict.AT_RISK
    return Verdict.FITS


def confidence_of(job: TrainingJob, device: Device, *, understood: bool, complete: bool) -> Confidence:
    """High for deterministic dense bf16 jobs on measured hardware, low where something is not understood or known."""
    if not understood or not complete:
        return Confidence.LOW
    special = (
        job.precision.low_precision is not None
        or job.software.dialect is Dialect.TORCHTITAN
        or job.recompute.granularity is RecomputeGranularity.SELECTIVE
        or job.adapters is not None
    )
    return Confidence.MEDIUM if job.model.expert_blocks or special or device.vendor != "NVIDIA" else Confidence.HIGH
