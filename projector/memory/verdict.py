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


def confidence_of(
    job: TrainingJob, device: Device, *, understood: bool, complete: bool
) -> tuple[Confidence, tuple[str, ...]]:
    """How far the figures can be trusted, and why.

    High for deterministic dense 16-bit jobs on measured hardware, low where something is not understood or known.
    """
    gaps = {
        "something that decides was not understood": understood,
        f"nobody has published a figure of {device.name} that is needed": complete,
    }
    if missing := tuple(why for why, given in gaps.items() if not given):
        return Confidence.LOW, missing
    doubts = {
        "routing to experts, or the buffers of their dispatch, differ from run to run": bool(job.model.expert_blocks),
        "copies of low-precision values depend on the framework's version": job.precision.low_precision is not None,
        "FSDP2's memory depends on the timing of its streams": job.software.dialect is Dialect.TORCHTITAN,
        "what selective recomputation keeps depends on the framework's version": job.recompute.granularity
        is RecomputeGranularity.SELECTIVE,
        "few runs with adapters are published": job.adapters is not None,
        f"few runs on GPUs of {device.vendor} are published": device.vendor != "NVIDIA",
    }
    if reasons := tuple(why for why, doubtful in doubts.items() if doubtful):
        return Confidence.MEDIUM, reasons
    return Confidence.HIGH, ("a dense 16-bit job without special modes, as those that were measured most often",)
