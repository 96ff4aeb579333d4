"""Does it fit, and how far can that be trusted."""

from collections.abc import Sequence

from projector.catalog import Device, measured_modes
from projector.memory.interval import MARGIN
from projector.projection import Confidence, StageMemory, Verdict

LEAST_RUNS = 3
"""Held-back runs of a mode of which a median says something: of two, one may be right by chance."""
HIGH_PERCENT = 2
"""Largest median error of a mode's measured runs of which a job has high confidence."""
NARROW_PERCENT, WIDE_PERCENT = 5, 20
"""Half widths of the interval up to which confidence is high, and medium."""


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
    modes: Sequence[str], fullest: StageMemory, device: Device, *, understood: bool, complete: bool
) -> tuple[Confidence, tuple[str, ...]]:
    """How far the figures can be trusted, and why.

    High where runs with each of the job's `modes` were measured, half of them are projected within `HIGH_PERCENT`, at
    least `LEAST_RUNS` of them took no part in fitting, and the interval of the fullest stage is at most
    `NARROW_PERCENT` to either side; low where nobody measured a mode, the interval is wider than `WIDE_PERCENT`, or
    something is not understood or known.
    """
    gaps = {
        "something that decides was not understood": understood,
        f"nobody has published a figure of {device.name} that is needed": complete,
        f"memory outside the allocator is that of another GPU than {device.name}": not device.assumed("context_bytes"),
    }
    known = measured_modes()
    gaps |= {f"no measured run with {mode} is published": mode in known for mode in modes}
    width_percent = _half_width_percent(fullest)
    wide = f"the interval reaches {width_percent:.0f} % of what is expected to either side"
    gaps[wide] = width_percent <= WIDE_PERCENT
    if missing := tuple(why for why, given in gaps.items() if not given):
        return Confidence.LOW, missing
    doubts = {
        f"half of the measured runs with {mode} are projected within {known[mode].within_percent:g} %, the others less"
        " closely": known[mode].within_percent > HIGH_PERCENT
        for mode in modes
    }
    doubts |= {
        f"{known[mode].held_runs} measured run(s) with {mode} took no part in fitting, fewer than {LEAST_RUNS}": (
            known[mode].held_runs < LEAST_RUNS
        )
        for mode in modes
    }
    doubts[wide] = width_percent > NARROW_PERCENT
    if reasons := tuple(why for why, doubtful in doubts.items() if doubtful):
        return Confidence.MEDIUM, reasons
    measured = (
        f"runs with each of the job's modes were measured, and half of them are projected within {HIGH_PERCENT} %"
    )
    return Confidence.HIGH, (measured, wide)


def _half_width_percent(stage: StageMemory) -> float:
    """Half the width of the interval of device memory, as a share of what is expected."""
    parts = [each for each in stage.uncertainties if each.name != MARGIN]
    return 50 * sum(each.below_bytes + each.above_bytes for each in parts) / max(1, stage.device_bytes)
