"""From what a person said, on the command line and in the environment, to a question for the engine."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from projector.api import Question
from projector.cli.files import read_text
from projector.cli.options import variables_of
from projector.cli.parser import CommandLine
from projector.cli.row import PROJECTIONS, TIMED, Effect, Fate, Row, UsageError
from projector.cli.tuning import settle
from projector.cli.variables import VARIABLES
from projector.config.overrides import split_overrides
from projector.errors import InputError, NotAvailable, PresetUnknown

_FILE_SUFFIXES = frozenset({".json", ".sh", ".slurm", ".toml", ".txt", ".yaml", ".yml"})
"""Endings of files, which no name of a model has."""

_WRITTEN = frozenset({"export", "trace"})
"""Switches that name a file to be written."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """What was said, understood."""

    fields: Mapping[str, Any]
    """Fields of the question by name."""
    overrides: Mapping[str, str]
    """Overrides of the configuration by name."""
    switches: Mapping[str, Any]
    """What concerns the command alone, by name."""
    without_effect: tuple[str, ...]
    """Options and variables that were given and change nothing, with the reason."""

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that were named to be read."""
        named = (value for name, value in self.switches.items() if name not in _WRITTEN)
        several = (value if isinstance(value, tuple | list) else (value,) for value in named)
        return tuple(value for values in several for value in values if isinstance(value, Path))


def understand(line: CommandLine, environment: Mapping[str, str]) -> Said:
    """Apply every row that was used.

    Raises `NotAvailable` for a row or value that is refused, `UsageError` where two words contradict each other, and
    `InputError` for a value that does not do.
    """
    spoken = [*line.options, *_variables(line, environment)]
    written = dict(split_overrides(line.rest))
    fields: dict[str, tuple[str, Any]] = {}
    overrides: dict[str, tuple[str, Any]] = {key: (f"the override {key}", text) for key, text in written.items()}
    switches: dict[str, Any] = {}
    knobs: dict[str, Any] = {}
    for row, text in spoken:
        effect = _effect(row, text)
        _merge(fields, effect.fields, row.name)
        _merge(overrides, effect.overrides, row.name)
        knobs |= effect.knobs
        for name, value in effect.switches.items():
            switches[name] = (*switches.get(name, ()), *value) if isinstance(value, tuple) else value
    settled = settle(knobs)
    return Said(
        fields={**{name: value for name, (_, value) in fields.items()}, **settled.fields},
        overrides={name: value for name, (_, value) in overrides.items()},
        switches=switches,
        without_effect=(
            *(_label(row, row.becomes) for row, _ in spoken if row.fate is Fate.NO_EFFECT),
            *settled.idle,
            *_concerning_others(line.command, environment),
        ),
    )


def ask(line: CommandLine, said: Said, environment: Mapping[str, str]) -> Question:
    """The question that was asked; raises `ConfigurationError` where a file that it names cannot be read."""
    path: Path = said.switches["config"]
    hardware: Path | None = said.switches.get("hardware")
    calibration: Path | None = said.switches.get("calibration")
    named = _model_text(path)
    gpu_files: tuple[Path, ...] = said.switches.get("gpu_files", ())
    question = Question(
        text=read_text(path) if named is None else named,
        name=str(path),
        directory=path.parent if named is None else None,
        companions={str(beside): read_text(beside) for beside in said.switches.get("with", ())},
        variables=dict(environment),
        overrides=said.overrides,
        memory=line.command in {"memory", "both"},
        performance=line.command in TIMED,
        gpu_files={str(gpu): read_text(gpu) for gpu in gpu_files},
        hardware=None if hardware is None else read_text(hardware),
        calibration=None if calibration is None else read_text(calibration),
    )
    return replace(question, **said.fields)


def _model_text(path: Path) -> str | None:
    """The text that stands for a model of the catalog, where the path is its name and leads nowhere; else None.

    Raises `PresetUnknown` for what looks like a name that was mistyped.
    """
    try:
        if path.exists() or path.suffix.lower() in _FILE_SUFFIXES:
            return None
    except (OSError, ValueError):  # a name too long, or with a zero byte
        return None
    import json  # noqa: PLC0415 - for this alone

    from projector import catalog  # noqa: PLC0415 - for this alone

    try:
        catalog.model(str(path))
    except PresetUnknown as error:
        if not error.expected.startswith("did you mean") or not path.parent.is_dir():
            return None
        message = "there is neither such a file nor such a model"
        raise PresetUnknown(message, place=str(path), expected=error.expected) from error
    return json.dumps({"model": str(path)})


def unused_variables(line: CommandLine, text: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Variables of the table that are set, work only through `${NAME}`, and that the file does not mention."""
    return tuple(
        f"{row.name} (environment: the file has no ${{{row.name}}})"
        for row in variables_of(line.command)
        if row.in_files and environment.get(row.name) and f"${{{row.name}" not in text
    )


def _variables(line: CommandLine, environment: Mapping[str, str]) -> list[tuple[Row, str]]:
    """The variables that are set and that no option speaks for; an empty one counts as not set."""
    options = {row.name for row, _ in line.options}
    return [
        (row, environment[row.name])
        for row in variables_of(line.command)
        if environment.get(row.name) and not row.in_files and options.isdisjoint(row.behind)
    ]


def _effect(row: Row, text: str) -> Effect:
    if row.fate is Fate.REFUSED:
        raise NotAvailable(str(Fate.REFUSED), place=row.name, expected=f"what works instead: {row.becomes}")
    if row.effect is None:
        return Effect()
    try:
        return row.effect(text)
    except InputError as error:
        raise type(error)(error.message, place=row.name, expected=error.expected) from error


def _merge(known: dict[str, tuple[str, Any]], new: Mapping[str, Any], speaker: str) -> None:
    """Add what `speaker` says; raises `UsageError` when somebody else said otherwise."""
    for name, value in new.items():
        other, before = known.setdefault(name, (speaker, value))
        if before != value:
            raise UsageError(
                f"{other} says {before}, {speaker} says {value}", place=name, expected="say one of the two"
            )


def _concerning_others(command: str, environment: Mapping[str, str]) -> Iterator[str]:
    """Variables that are set and play no part in this projection."""
    for row in VARIABLES:
        if command in PROJECTIONS and command not in row.commands and environment.get(row.name):
            *others, last = row.commands
            yield _label(row, f"concerns {', '.join(others)} and {last}" if others else f"concerns {last}")


def _label(row: Row, reason: str) -> str:
    return f"{row.name} ({'option' if row.is_option else 'environment'}: {reason})"
