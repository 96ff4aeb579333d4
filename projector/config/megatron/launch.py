"""Which command of a launch script starts Megatron-LM, with which arguments, on how many devices.

Sources of the launchers' options: PyTorch torch/distributed/run.py, Slurm sbatch(1) and srun(1), DeepSpeed
deepspeed/launcher/runner.py, Open MPI mpirun(1), accelerate's `launch`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from projector.config.megatron.argument_list import is_flag
from projector.config.megatron.flags import find_flag
from projector.config.shell import Command, Script, Word

_NODES = ("nnodes", "num_nodes", "num_machines", "nodes", "N")
_DEVICES = ("nproc_per_node", "num_gpus", "gpus_per_node", "gpus_per_task", "npernode")
_PROCESSES = ("np", "num_processes", "ntasks", "n")
_TASKS = ("ntasks_per_node", "tasks_per_node")
_PRINTING = {"echo", "printf", "cat", ":"}
"""Commands that only show their words."""
_COUNT = re.compile(r"\d{1,6}", re.ASCII)
MAXIMUM_WORDS = 20_000
"""Words of a launch that are looked at; the longest public launch has fewer than 1,000."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """How many devices a launch states."""

    nodes: int | None = None
    """Hosts."""
    devices_per_node: int | None = None
    """Processes, hence GPUs, of a host."""
    unknown: tuple[str, ...] = ()
    """What is stated and cannot be resolved, such as `--nnodes ${WORLD_SIZE} (line 12)`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """A command that starts training."""

    program: str
    """The Python file, such as `pretrain_gpt.py`; empty where only arguments are given."""
    words: tuple[Word, ...]
    """What stands behind it."""
    line: int
    """Where the command begins."""
    cluster: Cluster = field(default_factory=Cluster)
    """What its launcher states."""
    undecided: tuple[str, ...] = ()
    """Conditions on which it depends whether this command runs."""


def launches(script: Script) -> list[Launch]:
    """The commands that hand Megatron-LM arguments, else one made of all argument lists that the script assigns."""
    found = [launch for command in script.commands if (launch := _launch(command, script)) is not None]
    if found:
        return found
    loose = [word for command in script.commands if is_flag(command.words[0].text) for word in command.words]
    if not loose:
        lists = [_assigned(words) for words in script.assignments.values()]
        loose = [word for words in lists if words and is_flag(words[0].text) for word in words]
    if not any(_is_known(word) for word in loose):
        return []
    return [Launch(program="", words=tuple(loose[:MAXIMUM_WORDS]), line=loose[0].line, cluster=_directives(script))]


def _assigned(words: Sequence[Word]) -> Sequence[Word]:
    """The words of an array, or of a list that is one text."""
    if len(words) != 1:
        return words
    whole = words[0]
    return [
        Word(text=piece, line=whole.line, unresolved=tuple(name for name in whole.unresolved if name in piece))
        for piece in whole.text.split()
    ]


def _launch(command: Command, script: Script) -> Launch | None:
    words = command.words[:MAXIMUM_WORDS]
    if words[0].text in _PRINTING:
        return None
    start = next((index for index, word in enumerate(words) if word.text.endswith(".py")), None)
    if start is None:
        # A wrapper such as `bash run.sh --num-layers 2`, or a list of arguments without any program.
        start = next((index - 1 for index, word in enumerate(words) if _is_known(word)), None)
        if start is None or start < 0:
            return None
    behind = words[start + 1 :]
    if not any(_is_known(word) for word in behind) and not _hands_over(behind):
        return None
    return Launch(
        program=words[start].text.rpartition("/")[2] if words[start].text.endswith(".py") else "",
        words=behind,
        line=command.line,
        cluster=_cluster(command, words[:start], script),
        undecided=command.undecided,
    )


def _is_known(word: Word) -> bool:
    return word.text.startswith("--") and find_flag(word.text.partition("=")[0]) is not None


def _hands_over(words: Sequence[Word]) -> bool:
    """Whether the arguments come from variables that nobody has given."""
    return any(word.unresolved and not is_flag(word.text) for word in words[:1])


def _cluster(command: Command, launcher: Sequence[Word], script: Script) -> Cluster:
    """What the launcher's own options say, else the commands around it, else the batch directives."""
    options = _options(launcher)
    outer = command.within
    while outer is not None:
        options = {**_options(outer.words), **options}
        outer = outer.within
    torchrun = any("nproc_per_node" in name or "nnodes" in name for name in options)
    below = _directives(script, tasks=not torchrun)
    nodes, devices, processes = (_first(options, names) for names in (_NODES, _DEVICES, _PROCESSES))
    if devices is None and not torchrun:
        devices = _first(options, _TASKS)
    counted, per_node = _count(nodes), _count(devices)
    if counted is None:
        counted = below.nodes
    if per_node is None:
        per_node = below.devices_per_node
    world = _count(processes)
    if world is not None and per_node is not None and counted is None and world % per_node == 0:
        counted = world // per_node
    unknown = [
        _shown(word) for word, count in ((nodes, counted), (devices, per_node)) if word is not None and count is None
    ]
    return Cluster(nodes=counted, devices_per_node=per_node, unknown=tuple(unknown) or below.unknown)


def _options(words: Sequence[Word]) -> dict[str, tuple[str, Word]]:
    """Options of launchers by name with underscores: the value, and the word it stands in."""
    found: dict[str, tuple[str, Word]] = {}
    for index, word in enumerate(words):
        if not is_flag(word.text):
            continue
        name, equals, value = word.text.lstrip("-").partition("=")
        behind = words[index + 1] if index + 1 < len(words) and not is_flag(words[index + 1].text) else None
        found[name.replace("-", "_")] = (value, word) if equals or behind is None else (behind.text, behind)
    return found


def _first(options: Mapping[str, tuple[str, Word]], names: Sequence[str]) -> tuple[str, str, Word] | None:
    return next(((name, *options[name]) for name in names if name in options), None)


def _count(stated: tuple[str, str, Word] | None) -> int | None:
    return None if stated is None else _number(stated[1])


def _number(text: str) -> int | None:
    """A count: `8`, the least of `4:8` (an elastic launch), the last of `mi250:8` or `gpu:8`."""
    parts = text.split(":")
    chosen = parts[0] if _COUNT.fullmatch(parts[0]) else parts[-1]
    return int(chosen) or None if _COUNT.fullmatch(chosen) else None


def _shown(stated: tuple[str, str, Word]) -> str:
    name, value, word = stated
    return f"--{name.replace('_', '-')} {value} (line {word.line})"


def _directives(script: Script, *, tasks: bool = True) -> Cluster:
    """What the batch directives say; `tasks` counts the tasks of a host where no GPUs are stated."""
    stated = {name.replace("-", "_"): value for name, value in script.directives.items()}
    nodes = next((stated[name] for name in ("nodes", "N") if name in stated), None)
    names = ("gpus_per_node", "gres", *(_TASKS if tasks else ()))
    devices = next((stated[name] for name in names if name in stated), None)
    counts = [None if text is None else _number(text.partition("-")[0].partition(",")[0]) for text in (nodes, devices)]
    return Cluster(nodes=counts[0], devices_per_node=counts[1])
