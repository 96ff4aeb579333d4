"""Where the iteration's time goes."""

from itertools import groupby

from projector.projection import ChunkTime, PerformanceProjection, ScheduleResult
from projector.report.table import bar, columns, heading, paragraph
from projector.report.units import GIB, adding_up, percent, ranges

_BAR = 18
"""Columns of a bar."""
_ENDS = frozenset({"embedding", "multi-token prediction", "output and loss"})
"""Parts of a model chunk that are no decoder layers."""


def section(performance: PerformanceProjection) -> str:
    """Waterfall, kinds of layers, communication, stages and compared schedules."""
    parts = [heading("Time per iteration, ms"), _waterfall(performance)]
    for title, table in (
        ("interval of an iteration, ms", _interval(performance)),
        ("one micro batch, ms", _layers(performance)),
        ("one micro batch through a model chunk, ms: forward, backward to input and weight", _chunks(performance)),
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


def _interval(performance: PerformanceProjection) -> str:
    """What the interval of an iteration is made of."""
    below = [each.below_seconds * 1e3 for each in performance.uncertainties]
    above = [each.above_seconds * 1e3 for each in performance.uncertainties]
    figures = zip(performance.uncertainties, adding_up(below, digits=1), adding_up(above, digits=1), strict=True)
    rows = [("  because of", "less", "more")]
    rows += [(f"  {each.name}", f"{less:,.1f}", f"{more:,.1f}") for each, less, more in figures]
    rows.append(("= in all", f"{sum(below):,.1f}", f"{sum(above):,.1f}"))
    return columns(rows) if performance.uncertainties else ""


def _layers(performance: PerformanceProjection) -> str:
    rows = [("  layer", "count", "forward", "backward")]
    for each in performance.layer_times:
        times = (f"{each.forward_seconds * 1e3:,.2f}", f"{each.backward_seconds * 1e3:,.2f}")
        rows.append((f"  {each.name}", str(each.count), *times))
    return columns(rows) if performance.layer_times else ""


def _chunks(performance: PerformanceProjection) -> str:
    """Passes of one micro batch through each model chunk; equal ones of following stages stand in one line."""
    if not performance.chunks:
        return ""
    several = len({each.chunk for each in performance.chunks}) > 1
    rows = [("  stage", *(["chunk"] if several else []), "layers", "forward", "input", "weight", "ends")]
    ordered = sorted(performance.chunks, key=lambda each: (each.chunk, each.stage))
    for (chunk, *figures), run in groupby(ordered, key=_figures):
        stages_ = ranges([each.stage for each in run])
        rows.append((f"  {stages_}", *([str(chunk)] if several else []), *map(str, figures)))
    return columns(rows)


def _figures(chunk: ChunkTime) -> tuple[object, ...]:
    """What makes two chunks equal for a reader, as it is printed."""
    passes = (chunk.forward_seconds, chunk.backward_input_seconds, chunk.backward_weight_seconds)
    ends = (part.name.removesuffix(" and loss") for part in chunk.parts if part.name in _ENDS)
    times = (f"{seconds * 1e3:,.2f}" for seconds in passes)
    return chunk.chunk, len(chunk.layer_ids), *times, ", ".join(ends) or "-"


def _communication(performance: PerformanceProjection) -> str:
    if not performance.communication:
        return ""
    rows: list[tuple[str, ...]] = [("  for", "collective", "MiB", "ms", "hidden", "exposed")]
    lines = [
        (f"  {each.purpose or each.group}", each.collective, each.message_bytes, each.seconds, each.hidden_seconds)
        for each in performance.communication
    ]
    for purpose, collective, size, seconds, hidden in lines:
        times = (f"{time * 1e3:,.1f}" for time in (seconds, hidden, seconds - hidden))
        rows.append((purpose, collective, f"{size / 2**20:,.0f}", *times))
    sums = (sum(line[3] for line in lines), sum(line[4] for line in lines))
    total = (f"{time * 1e3:,.1f}" for time in (*sums, sums[0] - sums[1]))
    rows.append(("= all", "", f"{sum(line[2] for line in lines) / 2**20:,.0f}", *total))
    again = sum(each.repeated_seconds for each in performance.communication)
    note = f"{again * 1e3:,.1f} ms of the exposed belong to recomputation."
    return "\n".join([columns(rows, left=2), *([paragraph(note)] if round(again * 1e3, 1) else [])])


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
