"""The report of `projector schedule`: pictures, what every stage does, and the comparison."""

from dataclasses import dataclass
from typing import Any

from projector.document import schedule_document
from projector.projection import Projection, ScheduleResult
from projector.provenance import Assumption
from projector.report.sections import provenance, summary
from projector.report.sections.performance import stages
from projector.report.table import columns, heading, paragraph
from projector.report.text import printable
from projector.report.timeline import picture
from projector.report.units import GIB, duration, percent
from projector.schedule import Replay, too_few_micro_batches

_MS = 1e3
"""Milliseconds of a second."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scheduled:
    """A schedule that was computed."""

    label: str
    """What the person calls it."""
    result: ScheduleResult
    """What every stage does."""
    iteration_seconds: float | None = None
    """The iteration around it; None where only chunk times are given."""
    peak_allocated_bytes: int | None = None
    """Peak allocated of the worst stage, likewise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleAnswer:
    """The whole answer."""

    source: str
    """The file."""
    drawn: tuple[tuple[Scheduled, Replay], ...]
    """Schedules that were named, with one run through the pipeline."""
    compared: tuple[Scheduled, ...]
    """All schedules, fastest first; none where there is only one."""
    assumed: tuple[Assumption, ...] = ()
    """What nothing stated, of given chunk times."""
    ignored: tuple[str, ...] = ()
    """What changes nothing, of given chunk times."""
    projection: Projection | None = None
    """The projection of a training configuration; None for given chunk times."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know before running the job so."""
        if self.projection is not None and self.projection.performance is not None:
            return self.projection.performance.warnings
        few = ((each, too_few_micro_batches(each.result)) for each, _ in self.drawn)
        several = len(self.drawn) > 1
        return tuple((f"{each.label}: " if several else "") + found.told() for each, found in few if found)


def document(answer: ScheduleAnswer) -> dict[str, Any]:
    """The answer as JSON values: ratios 0-1, times in milliseconds, sizes in bytes."""
    projection = answer.projection
    assumed = answer.assumed if projection is None else projection.assumed
    return {
        "source": answer.source,
        "model": None if projection is None else projection.model,
        "device": None if projection is None else projection.target.device,
        "devices": None if projection is None else projection.target.devices,
        "schedules": [
            {
                "label": each.label,
                "micro_batches": each.result.phase.micro_batches,
                "runs": each.result.phase.runs,
                "drawn_micro_batches": run.order.micro_batches,
                "iteration_time_ms": None if each.iteration_seconds is None else each.iteration_seconds * _MS,
                "bubble_ratio": each.result.bubble_ratio,
                "peak_activation_bytes": _kept(each.result),
                **schedule_document(each.result),
            }
            for each, run in answer.drawn
        ],
        "compared_schedules": [
            {
                "label": each.label,
                "name": each.result.name,
                "time_ms": each.result.seconds * _MS,
                "iteration_time_ms": None if each.iteration_seconds is None else each.iteration_seconds * _MS,
                "bubble_ratio": each.result.bubble_ratio,
                "peak_in_flight": each.result.peak_in_flight,
                "peak_activation_bytes": _kept(each.result),
                "peak_allocated_bytes": each.peak_allocated_bytes,
            }
            for each in answer.compared
        ],
        "warnings": list(answer.warnings),
        "assumed": [{"what": each.what, "why": each.why} for each in assumed],
        "ignored": list(answer.ignored if projection is None else projection.ignored),
        "unmodelled": [
            {"what": each.what, "where": each.where, "effect": each.effect}
            for each in (() if projection is None else projection.unmodelled)
        ],
    }


def report(answer: ScheduleAnswer, *, width: int, colour: bool = False) -> str:
    """The answer as text; pictures are as wide as `width`, everything else as all reports."""
    projection = answer.projection
    head = paragraph(f"pipeline of {answer.source}") if projection is None else summary.section(projection)
    sections = [printable(head)]
    sections += [_drawn(each, run, width=width, colour=colour) for each, run in answer.drawn]
    if answer.compared:
        sections.append(f"{heading('Schedules compared')}\n{printable(_compared(answer.compared))}")
    notes = _notes(answer) if projection is None else list(provenance.sections(projection))
    return "\n\n".join([*sections, *map(printable, notes)]) + "\n"


def _drawn(each: Scheduled, run: Replay, *, width: int, colour: bool) -> str:
    """Title, picture and stages of a schedule."""
    phase = each.result.phase
    name = each.label if each.label == each.result.name else f"{each.label} ({each.result.name})"
    size = f"{phase.stages} stage{'s' * (phase.stages > 1)}, {phase.micro_batches:,} micro batches"
    if phase.chunks_per_stage > 1:
        size = f"{size}, {phase.chunks_per_stage} model chunks"
    facts = f"{size}: {duration(each.result.seconds)}, bubble {percent(each.result.bubble_ratio)}"
    if phase.runs > 1:
        facts += f", {phase.runs} runs through the pipeline together"
    parts = [printable(heading(name)), paragraph(facts), "", picture(run, width=width, colour=colour)]
    if run.order.micro_batches < phase.micro_batches:
        parts.append(paragraph(f"drawn with {run.order.micro_batches:,} of {phase.micro_batches:,} micro batches"))
    return "\n".join([*parts, "", stages(each.result)])


def _compared(compared: tuple[Scheduled, ...]) -> str:
    whole = any(each.iteration_seconds is not None for each in compared)
    sizes = any(_size(each) is not None for each in compared)
    rows = [("  schedule", *(["iteration ms"] if whole else []), "pipeline ms", "bubble", "in flight")]
    rows[0] += ("peak GiB",) if sizes else ()
    for each in compared:
        times = [f"{each.result.seconds * _MS:,.1f}", percent(each.result.bubble_ratio)]
        if whole:
            times.insert(0, f"{(each.iteration_seconds or 0) * _MS:,.1f}")
        size = _size(each)
        shown = () if not sizes else ("-" if size is None else f"{size / GIB:,.2f}",)
        rows.append((f"  {each.label}", *times, f"{each.result.peak_in_flight:,.1f}", *shown))
    return columns(rows)


def _size(each: Scheduled) -> float | None:
    """Bytes at the peak: all that is allocated, or what micro batches keep where only that is known."""
    return _kept(each.result) if each.peak_allocated_bytes is None else each.peak_allocated_bytes


def _kept(result: ScheduleResult) -> float | None:
    kept = [stage.peak_activation_bytes for stage in result.stages if stage.peak_activation_bytes is not None]
    return max(kept, default=None)


def _notes(answer: ScheduleAnswer) -> list[str]:
    """Sections beside the figures, where no projection has them."""
    assumed = tuple(f"{each.what}: {each.why}" for each in answer.assumed)
    notes = provenance.lists({"Warnings": answer.warnings, "Assumed": assumed})
    return [*notes, *provenance.without_influence(answer.ignored)]
