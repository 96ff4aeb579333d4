"""Memory by level for every stage, and by component for the stages that matter."""

from collections.abc import Sequence
from itertools import groupby

from projector.projection import MemoryComponent, MemoryLevel, MemoryProjection, StageMemory
from projector.report.table import columns, heading, paragraph
from projector.report.units import GIB, adding_up, ranges

_SHOWN = 4
"""Most stages that stand beside each other in 80 columns."""

_SUMS = {
    MemoryLevel.PERSISTENT: "= persistent",
    MemoryLevel.ALLOCATED: "= peak allocated",
    MemoryLevel.RESERVED: "= peak reserved",
    MemoryLevel.DEVICE: "= on the device",
}


def section(memory: MemoryProjection) -> str:
    """The tables of the memory half; GiB per device."""
    parts = [heading("Memory per GPU, GiB")]
    if len(memory.stages) > 1:
        parts += [_levels(memory), ""]
    parts.append(_components(memory))
    if note := _first_iteration(memory.worst):
        parts += ["", paragraph(note)]
    if memory.worst.uncertainties:
        parts += ["", _interval(memory.worst)]
    return "\n".join(parts)


def _interval(stage: StageMemory) -> str:
    """What the interval of a stage is made of."""
    below = [each.below_bytes for each in stage.uncertainties]
    above = [each.above_bytes for each in stage.uncertainties]
    names = [each.name for each in stage.uncertainties]
    figures = zip(names, adding_up(below, GIB), adding_up(above, GIB), strict=True)
    rows = [(f"Interval of stage {stage.stage}, GiB", "less", "more")]
    rows += [(f"  {name}", f"{less:,.2f}", f"{more:,.2f}") for name, less, more in figures if less or more]
    rows.append(("= in all", f"{sum(below) / GIB:,.2f}", f"{sum(above) / GIB:,.2f}"))
    return columns(rows)


def _first_iteration(stage: StageMemory) -> str:
    """By how much the first iteration is lower, where that shows."""
    if round(stage.first_step_effect_bytes / GIB, 2) <= 0:
        return ""
    first = (stage.level_bytes(MemoryLevel.ALLOCATED) - stage.first_step_effect_bytes) / GIB
    return (
        f"The first iteration of stage {stage.stage} peaks at {first:,.2f} GiB allocated: the optimizer's state comes"
        " with its first step."
    )


def _levels(memory: MemoryProjection) -> str:
    """One row per run of equal stages; the levels hold each other, from left to right."""
    rows: list[tuple[str, ...]] = [("stage", "layers", "persistent", "allocated", "reserved", "device", "range")]
    for _, run in groupby(memory.stages, key=_figures):
        stages = list(run)
        first = stages[0]
        mark = " *" if memory.worst.stage in {stage.stage for stage in stages} else ""
        levels = (f"{first.level_bytes(level) / GIB:,.2f}" for level in MemoryLevel)
        interval = f"{first.device_bytes_lower / GIB:,.1f}-{first.device_bytes_upper / GIB:,.1f}"
        layers = str(len(first.layers))
        rows.append((ranges([stage.stage for stage in stages]) + mark, layers, *levels, interval))
    note = paragraph(f"* needs most; {memory.device_capacity_bytes / GIB:,.2f} GiB are usable")
    return f"{columns(rows)}\n{note}"


def _figures(stage: StageMemory) -> tuple[object, ...]:
    """What makes two stages equal for a reader."""
    return stage.components, len(stage.layers), stage.device_bytes_lower, stage.device_bytes_upper


def _components(memory: MemoryProjection) -> str:
    stages = chosen(memory)
    title = "component" if len(memory.stages) > 1 else ""
    rows: list[tuple[str, ...]] = [(title, *(f"stage {stage.stage}" for stage in stages))] if title else []
    printed = [_printed(stage) for stage in stages]
    for level in MemoryLevel:
        names = dict.fromkeys(part.name for stage in stages for part in stage.components if part.level is level)
        rows += [(f"  {name}", *(_number(figures.get((level, name))) for figures in printed)) for name in names]
        rows.append((_SUMS[level], *(f"{stage.level_bytes(level) / GIB:,.2f}" for stage in stages)))
    return columns(rows)


def chosen(memory: MemoryProjection) -> Sequence[StageMemory]:
    """All stages when they have room beside each other, else first, worst and last."""
    if len(memory.stages) <= _SHOWN:
        return memory.stages
    return sorted(
        {each.stage: each for each in (memory.stages[0], memory.worst, memory.stages[-1])}.values(), key=_rank
    )


def _rank(stage: StageMemory) -> int:
    return stage.stage


def _printed(stage: StageMemory) -> dict[tuple[MemoryLevel, str], float]:
    """GiB of each part, in hundredths that add up to the printed levels."""
    ordered: list[MemoryComponent] = [part for level in MemoryLevel for part in stage.components if part.level is level]
    figures: dict[tuple[MemoryLevel, str], float] = {}
    for part, number in zip(ordered, adding_up([part.size_bytes for part in ordered], GIB), strict=True):
        key = (part.level, part.name)
        figures[key] = figures.get(key, 0.0) + number
    return figures


def _number(gibibytes: float | None) -> str:
    return "-" if gibibytes is None else f"{gibibytes:,.2f}"
