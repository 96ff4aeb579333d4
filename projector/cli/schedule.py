"""The command `schedule`: a pipeline from a training configuration or from given chunk times, drawn and compared."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from projector.answer import stand_in
from projector.cli.export import write_file
from projector.cli.files import read_text
from projector.cli.parser import CommandLine
from projector.cli.question import Said
from projector.cli.row import UsageError
from projector.config.pipeline_file import PipelineCase, is_pipeline_file, read_pipeline_file
from projector.errors import InputError
from projector.job import Schedule
from projector.projection import ComparedSchedule, PipelinePhase, Projection
from projector.provenance import Assumption
from projector.report.schedule import ScheduleAnswer, Scheduled
from projector.report.table import WIDTH
from projector.report.trace import trace
from projector.schedule import (
    AVAILABLE,
    Replay,
    framework_schedule,
    grouped,
    named_schedule,
    planned_schedule,
    replay,
    scheduled,
    suits,
)

_OF_TIMES = frozenset(
    {"--config", "--pipeline-schedule-algorithm", "--output", "--trace", "--width", "--color", "--debug"}
)
"""Options that mean something for given chunk times."""


def given_times(line: CommandLine, said: Said) -> str | None:
    """The text of a file of given chunk times; None where `--config` names a training configuration.

    Raises `UsageError` for an option that such a file has no use for.
    """
    path: Path = said.switches["config"]
    if not path.is_file():
        return None
    text = read_text(path)
    if not is_pipeline_file(text):
        return None
    for row, _ in line.options:
        if row.name not in _OF_TIMES:
            expected = f"one of {', '.join(sorted(_OF_TIMES))}, or key=value of the file"
            raise UsageError(
                "concerns a training configuration, not given chunk times", place=row.name, expected=expected
            )
    return text


def of_times(text: str, said: Said) -> ScheduleAnswer:
    """The answer for given chunk times; raises `InputError` where a schedule cannot run over them."""
    name = str(said.switches["config"])
    read = read_pipeline_file(text, name=name, overrides=said.overrides)
    cases = read.cases
    stated = said.fields.get("schedule")
    if stated is not None:
        phases = dict.fromkeys(case.phase for case in cases)
        cases = tuple(PipelineCase(stated, stated, phase) for phase in phases)
    drawn: list[Scheduled] = []
    compared: list[Scheduled] = []
    assumed = list(read.assumed)
    for case in cases:
        found, notes = _all(case.phase) if case.schedule == "all" else _one(case)
        drawn += found[:1]
        compared += found
        assumed += notes
    compared.sort(key=lambda each: each.result.seconds)
    return ScheduleAnswer(
        source=name,
        drawn=tuple((each, _replayed(each)) for each in drawn),
        compared=tuple(compared) if len(compared) > 1 else (),
        assumed=tuple(dict.fromkeys(assumed)),
        ignored=(*read.ignored, *said.without_effect),
    )


def of_projection(projection: Projection, source: str) -> ScheduleAnswer:
    """The answer for a training configuration: the schedule that it was projected under."""
    performance = projection.performance
    if performance is None:
        message = "the time of an iteration is not known, so that there is nothing to draw"
        raise InputError(message, place=source)
    own = Scheduled(
        label=performance.schedule.name,
        result=performance.schedule,
        iteration_seconds=performance.iteration_seconds,
    )
    return ScheduleAnswer(
        source=source,
        drawn=((own, _replayed(own)),),
        compared=tuple(map(_compared, performance.compared_schedules)),
        projection=projection,
    )


def write_trace(answer: ScheduleAnswer, said: Said) -> None:
    """Write the trace where one was asked for; schedules of one name get numbers."""
    path = said.switches.get("trace")
    if path is None:
        return
    runs: dict[str, Replay] = {}
    for each, run in answer.drawn:
        name = each.label if each.label not in runs else f"{each.label} {len(runs)}"
        runs[name] = run
    write_file(path, trace(runs), inputs=said.files, place=f"--trace {path}")


def columns(said: Said) -> int:
    """How wide to draw."""
    stated = said.switches.get("width")
    if stated is not None:
        return int(stated)
    return os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else WIDTH


def coloured(said: Said, environment: Mapping[str, str]) -> bool:
    """Whether to colour: as said, else on a terminal that has colours, unless NO_COLOR (no-color.org) is set."""
    stated = said.switches.get("color", "auto")
    if stated != "auto":
        return bool(stated == "always")
    return sys.stdout.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def _one(case: PipelineCase) -> tuple[list[Scheduled], tuple[Assumption, ...]]:
    """A schedule that is named, or that the model chunks imply."""
    asked = named_schedule(case.schedule) or framework_schedule(case.phase.chunks_per_stage, None)
    phase, notes = _grouped(asked, case.phase)
    planned = planned_schedule(asked, phase.stages, phase.micro_batches)
    label = planned.value if case.name in {"auto", asked.value} else case.name
    notes = (*stand_in(asked, phase.stages, phase.micro_batches), *notes)
    return [Scheduled(label=label, result=scheduled(planned, phase))], notes


def _all(phase: PipelinePhase) -> tuple[list[Scheduled], tuple[Assumption, ...]]:
    """Every schedule that is possible, fastest first; raises what the last one raises where none is."""
    found: list[Scheduled] = []
    told: list[Assumption] = []
    refused: InputError | None = None
    for schedule in AVAILABLE:
        if not suits(schedule, phase.chunks_per_stage):
            continue
        if planned_schedule(schedule, phase.stages, phase.micro_batches) is not schedule:
            continue
        own, notes = _grouped(schedule, phase)
        try:
            result = scheduled(schedule, own)
        except InputError as error:  # the stated group does not suit; it keeps more micro batches than are replayed
            refused = error
            continue
        found.append(Scheduled(label=schedule.value, result=result))
        told += notes
    if refused is not None and not found:
        raise refused
    return sorted(found, key=lambda each: each.result.seconds), tuple(told)


_IN_GROUPS = frozenset({Schedule.INTERLEAVED, Schedule.INTERLEAVED_ZERO_BUBBLE})
"""Schedules that take micro batches in groups."""


def _grouped(schedule: Schedule, phase: PipelinePhase) -> tuple[PipelinePhase, tuple[Assumption, ...]]:
    """The phase with the groups of interleaving decided, and what was assumed for it."""
    if schedule not in _IN_GROUPS or phase.group is not None:
        return phase, ()
    decided = grouped(phase)
    if decided.group == phase.stages:
        return decided, ()
    what = f"interleaving takes micro batches in groups of {decided.group}"
    why = f"{phase.micro_batches} do not divide into groups of {phase.stages}; say micro_batch_group"
    return decided, (Assumption(what=what, why=why),)


def _replayed(each: Scheduled) -> Replay:
    return replay(Schedule(each.result.name), each.result.phase)


def _compared(one: ComparedSchedule) -> Scheduled:
    return Scheduled(
        label=one.name,
        result=one.result,
        iteration_seconds=one.iteration_seconds,
        peak_allocated_bytes=one.peak_allocated_bytes,
    )
