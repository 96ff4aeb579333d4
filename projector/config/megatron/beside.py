"""Scripts given beside a file of `MODEL_ARGS`: the variables that they set and the arguments that they add.

They are read in the order in which they are given. Each sees what those before it set, as a script sees the files that
it sources; one that an earlier script starts sees that script's variables and gets its arguments.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from projector.config.cluster import Cluster
from projector.config.launching import PRINTING, is_flag
from projector.config.megatron.argument_list import parse
from projector.config.megatron.launch import launches
from projector.config.megatron.values import Collected
from projector.config.shell import Command, Script, Word, read_script
from projector.errors import ConfigurationError

_SUFFIXES = {".sh", ".bash", ".conf", ".sbatch", ".slurm"}


@dataclass(slots=True)
class Beside:
    """What the scripts say."""

    variables: dict[str, str] = field(default_factory=dict)
    """What they set, by name."""
    arguments: Collected | None = None
    """Those that a launch among them adds to the file's."""
    cluster: Cluster = field(default_factory=Cluster)
    """What that launch states."""
    positional: dict[str, str] = field(default_factory=dict)
    """The arguments with which they start the file itself, by `1`, `2` and so on."""


def read_beside(companions: Mapping[str, str], variables: Mapping[str, str], *, main: str) -> Beside:
    """Read the scripts among the texts beside the file `main`; `variables` from outside win over what a script sets.

    Raises `ConfigurationError` and its children when two launches would be different jobs.
    """
    strangers = [name for name in companions if PurePosixPath(name).suffix not in _SUFFIXES]
    if strangers:
        expected = f"shell scripts ({', '.join(sorted(_SUFFIXES))}) beside Megatron-LM's arguments"
        raise ConfigurationError("is no shell script by its name", place=strangers[0], expected=expected)
    started: dict[str, Sequence[Word]] = {}
    beside = Beside()
    for name, text in companions.items():
        numbered = _numbered(started.get(PurePosixPath(name).name, ()))
        script = read_script(text, name=name, variables={**numbered, **beside.variables, **variables})
        others = {PurePosixPath(other).name for other in (main, *companions) if other != name}
        calls = {id(command): found for command in script.commands if (found := _call(command, others)) is not None}
        started |= dict(calls.values())
        _take_variables(beside, script)
        own = tuple(command for command in script.commands if id(command) not in calls)
        _take_launches(beside, replace(script, commands=own), name)
    beside.positional = _numbered(started.get(PurePosixPath(main).name, ()))
    return beside


def started_script(script: Script) -> str:
    """The first script that the commands of another one start or read; empty when there is none."""
    for command in script.commands:
        if command.words[0].text not in PRINTING:
            found = (word.text for word in command.words if PurePosixPath(word.text).suffix in _SUFFIXES)
            if (name := next(found, "")) and not is_flag(name):
                return name
    return ""


def _numbered(arguments: Sequence[Word]) -> dict[str, str]:
    return {str(number): word.text for number, word in enumerate(arguments, start=1) if not word.unresolved}


def _call(command: Command, others: set[str]) -> tuple[str, Sequence[Word]] | None:
    """The script beside that a command starts, and with which arguments."""
    names = [word.text.rpartition("/")[2] for word in command.words]
    index = next((index for index, name in enumerate(names) if name in others), None)
    return None if index is None else (names[index], command.words[index + 1 :])


def _take_variables(beside: Beside, script: Script) -> None:
    for key, words in script.assignments.items():
        if len(words) == 1 and not words[0].unresolved:
            beside.variables[key] = words[0].text
    for command in script.commands:
        beside.variables |= {key: word.text for key, word in command.environment.items() if not word.unresolved}


def _take_launches(beside: Beside, script: Script, name: str) -> None:
    for launch in launches(script):
        parsed = parse(launch.words, name=name, reasons=script.reasons)
        if beside.arguments is not None and parsed.values != beside.arguments.values:
            message = f"line {launch.line} starts another job than the commands before it"
            raise ConfigurationError(message, place=name, expected="keep one of them")
        beside.arguments, beside.cluster = parsed, launch.cluster
