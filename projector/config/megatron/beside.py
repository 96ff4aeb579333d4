"""Scripts given beside a file of `MODEL_ARGS`: the variables that they set and the arguments that they add.

They are read in the order in which they are given. Each sees what those before it set, as a script sees the files that
it sources; one that an earlier script starts sees that script's variables and gets its arguments.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from projector.config.megatron.argument_list import parse
from projector.config.megatron.launch import Cluster, launches
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


def read_beside(companions: Mapping[str, str], variables: Mapping[str, str]) -> Beside:
    """Read the scripts among the texts beside a file; `variables` come from outside and win over what a script sets.

    Raises `ConfigurationError` and its children when two launches would be different jobs.
    """
    strangers = [name for name in companions if PurePosixPath(name).suffix not in _SUFFIXES]
    if strangers:
        expected = f"shell scripts ({', '.join(sorted(_SUFFIXES))}) beside Megatron-LM's arguments"
        raise ConfigurationError("is no shell script by its name", place=strangers[0], expected=expected)
    started: dict[str, Sequence[Word]] = {}
    beside = Beside()
    for name, text in companions.items():
        arguments = started.get(PurePosixPath(name).name, ())
        numbered = {str(number): word.text for number, word in enumerate(arguments, start=1) if not word.unresolved}
        script = read_script(text, name=name, variables={**numbered, **beside.variables, **variables})
        others = {PurePosixPath(other).name for other in companions if other != name}
        calls = {id(command): found for command in script.commands if (found := _call(command, others)) is not None}
        started |= dict(calls.values())
        _take_variables(beside, script)
        own = tuple(command for command in script.commands if id(command) not in calls)
        _take_launches(beside, replace(script, commands=own), name)
    return beside


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
