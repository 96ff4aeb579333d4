"""Where the iteration's time goes."""

from projector.projection import PerformanceProjection, ScheduleResult
from projector.report.table import bar, columns, heading
from projector.report.units import GIB, adding_up, percent

_BAR = 18
"""Columns of a bar."""


def section(performance: PerformanceProjection) -> str:
    """Waterfall, kinds of layers, communication, stages and compared schedules."""
    parts = [heading("Time per iteration, ms"), _waterfall(performance)]
    for title, table in (
        ("one micro batch, ms", _layers(performance)),
        ("communication per iteration", _communication(performance)),
        (f"pipeline: {performance.schedule.name}, bubble {percent(performance.bubble_ratio)}", _stages(performance)),
        ("schedules compared", _compared(performance)),
    ):
        if table:
            parts += ["", title, table]
    return "\n".join(parts)


def _waterfall(performance: PerformanceProjection) -> str:
    total = performance.iteration_seconds
    rows = []
    printed = adding_up([step.seconds * 1e3 for step in performance.waterfall], digits=1)
    shares = adding_up([step.seconds for step in performance.waterfall], total, digits=3)
    start = 0.0
    for step, ms, share in zip(performance.waterfall, printed, shares, strict=True):
        end = start + step.seconds
        drawn = bar(start / total, end / total, _BAR)
        rows.append((f"  {step.name}", f"{ms:,.1f}", percent(share), f"{drawn:<{_BAR}}"))
        start = end
    rows.append(("= iteration", f"{total * 1e3:,.1f}", percent(1.0), " " * _BAR))
    return columns(rows)


def _layers(performance: PerformanceProjection) -> str:
    rows = [("  layer", "count", "forward", "backward")]
    for each in performance.layer_times:
        times = (f"{each.forward_seconds * 1e3:,.2f}", f"{each.backward_seconds * 1e3:,.2f}")
        rows.append((f"  {each.name}", str(each.count), *times))
    return columns(rows) if performance.layer_times else ""


def _communication(performance: PerformanceProjection) -> str:
    rows = [("  group", "collective", "MiB", "ms", "exposed ms")]
    for each in performance.communication:
        times = (f"{each.seconds * 1e3:,.1f}", f"{each.exposed_seconds * 1e3:,.1f}")
        rows.append((f"  {each.group}", each.collective, f"{each.message_bytes / 2**20:,.0f}", *times))
    return columns(rows, left=2) if performance.communication else ""


def _stages(performance: PerformanceProjection) -> str:
    return stages(performance.schedule) if len(performance.schedule.stages) > 1 else ""


def stages(schedule: ScheduleResult) -> str:
    """What every stage does during the pipeline phase."""
    kept = any(each.peak_activation_bytes is not None for each in schedule.stages)
    rows = [
        ("  stage", "busy ms", "sending ms", "waiting ms", "micro batches in flight", *(["GiB kept"] if kept else []))
    ]
    for each in schedule.stages:
        times = (each.busy_seconds, each.sending_seconds, each.bubble_seconds)
        size = [f"{(each.peak_activation_bytes or 0) / GIB:,.2f}"] if kept else []
        rows.append(
            (f"  {each.stage}", *(f"{time * 1e3:,.1f}" for time in times), f"{each.peak_in_flight:,.1f}", *size)
        )
    return columns(rows)


def _compared(performance: PerformanceProjection) -> str:
    rows = [("  schedule", "iteration ms", "bubble", "in flight", "peak allocated GiB")]
    for each in performance.compared_schedules:
        peak = f"{each.peak_allocated_bytes / GIB:,.2f}"
        times = (f"{each.iteration_seconds * 1e3:,.1f}", percent(each.bubble_ratio))
        rows.append((f"  {each.name}", *times, f"{each.result.peak_in_flight:,.1f}", peak))
    return columns(rows) if performance.compared_schedules else ""
