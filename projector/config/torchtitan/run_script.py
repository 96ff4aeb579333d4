"""TorchTitan's own run script, which takes from its environment what to run (`run_train.sh`, `run_llama_train.sh`).

It hands `CONFIG_FILE` to `--job.config_file`, or since the Python registry `MODULE` and `CONFIG` to the arguments of
these names, starts `NGPU` processes, and ends with its own arguments.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from projector.config.cluster import Cluster, of_devices
from projector.config.notes import Notes
from projector.config.shell import Command, Script, Word

_SCRIPTS = frozenset({"run_train.sh", "run_llama_train.sh"})
_NAMES = {"CONFIG_FILE": "--job.config_file", "MODULE": "--module", "CONFIG": "--config"}
"""Variables and the arguments that they become."""
_DEVICES, _DRY_RUN = "NGPU", "COMM_MODE"
_WANTED = (*_NAMES, _DEVICES, _DRY_RUN)
_GROWS = ("PYTORCH_ALLOC_CONF", "expandable_segments:True")
"""What the run script sets for its command (pytorch/torchtitan run_train.sh; as PYTORCH_CUDA_ALLOC_CONF until 2025)."""
_LONGEST_COUNT = 6
"""Digits of a number of processes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunScript:
    """A command that starts the run script."""

    start: int
    """Where its own arguments begin among the words of the command."""
    arguments: tuple[Word, ...]
    """What its environment makes arguments of TorchTitan."""
    processes: Word | None
    """How many it starts."""
    dry: bool
    """One process stands for all of them, on however many hosts."""
    environment: Mapping[str, Word]
    """Variables of torch's allocator that it sets."""

    def cluster(self, stated: Cluster) -> Cluster:
        """The cluster, where the rest of the command says `stated`."""
        if self.processes is None:
            return stated
        text = self.processes.text
        if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_COUNT and int(text)):
            return replace(stated, unknown=(*stated.unknown, f"{_DEVICES}={text} (line {self.processes.line})"))
        if self.dry:
            return of_devices(int(text), Notes(), why="", stated=stated)
        return replace(stated, devices_per_node=int(text))


def run_script(
    command: Command, words: Sequence[Word], script: Script, variables: Mapping[str, str]
) -> RunScript | None:
    """What a command of these `words` gives the run script; None for one that does not start it, or names no values.

    Variables stand before the command, in what the script assigns, or are those given from outside.
    """
    index = next((index for index, word in enumerate(words) if word.text.rpartition("/")[2] in _SCRIPTS), None)
    if index is None:
        return None
    environment = _environment(command, words[:index], script, variables)
    named = {_NAMES[name]: environment[name] for name in _NAMES if name in environment}
    if not named:
        return None
    if "--job.config_file" in named:
        named = {"--job.config_file": named["--job.config_file"]}
    return RunScript(
        start=index + 1,
        arguments=tuple(word for flag, value in named.items() for word in (replace(value, text=flag), value)),
        processes=environment.get(_DEVICES),
        dry=_DRY_RUN in environment,
        environment={_GROWS[0]: Word(text=_GROWS[1], line=command.line)},
    )


def _environment(
    command: Command, before: Sequence[Word], script: Script, variables: Mapping[str, str]
) -> dict[str, Word]:
    """The variables of interest that are set and not empty, the nearest statement of each."""
    found = {name: Word(text=variables[name], line=command.line) for name in _WANTED if name in variables}
    found |= {name: words[0] for name in _WANTED if len(words := script.assignments.get(name, ())) == 1}
    outer: Command | None = command
    levels: list[Mapping[str, Word]] = []
    while outer is not None:
        levels.append(outer.environment)
        outer = outer.within
    for level in reversed(levels):
        found |= {name: level[name] for name in _WANTED if name in level}
    for word in before:  # what `env` sets
        name, equals, value = word.text.partition("=")
        if equals and name in _WANTED:
            found[name] = replace(word, text=value)
    return {name: word for name, word in found.items() if word.text}
