"""What the launch scripts of all frameworks have in common: launchers' options, batch directives, open conditions.

Which command of a script starts training is for each dialect to say. Sources of the launchers' options: PyTorch
torch/distributed/run.py, Slurm sbatch(1) and srun(1), DeepSpeed deepspeed/launcher/runner.py, Open MPI mpirun(1),
accelerate's `launch`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from projector.config.allocator_settings import VARIABLES as ALLOCATOR_VARIABLES
from projector.config.cluster import Cluster, of_devices
from projector.config.notes import Notes
from projector.config.shell import Command, Script, Word
from projector.config.shell.directives import counted, gpus_per_node, least_nodes, tasks_per_node
from projector.config.switches import sections_of
from projector.errors import ConfigurationError, shown
from projector.provenance import ConfigValue

_NODES = ("nnodes", "num_nodes", "num_machines", "nodes", "N")
_DEVICES = ("nproc_per_node", "num_gpus", "gpus_per_node", "npernode")
_PROCESSES = ("np", "num_processes", "ntasks", "n")
_TASKS = ("ntasks_per_node", "tasks_per_node")
_SLURM = {
    "n": "ntasks",
    "ntasks": "ntasks",
    "N": "nodes",
    "nodes": "nodes",
    "ntasks_per_node": "ntasks-per-node",
    "gpus_per_task": "gpus-per-task",
    "gres": "gres",
    "gpus": "gpus",
    "G": "gpus",
}
"""Options of srun that mean what the directive of the same long name means."""
_MPI = frozenset({"mpirun", "mpiexec"})
"""Launchers whose `-N` is the number of processes of a host (Open MPI mpirun(1))."""
_OWN_WORLD = frozenset({"torchrun", "deepspeed", "accelerate", "torch.distributed.launch", "torch.distributed.run"})
"""Launchers that set `WORLD_SIZE` themselves."""
_WORLD = "WORLD_SIZE"
_COUNT = re.compile(r"\d{1,6}", re.ASCII)
_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+", re.ASCII)
"""What argparse takes for a number although it begins like a flag."""
_NAMED = 20
"""How many variables that nothing gives are named."""
PRINTING = frozenset({"echo", "printf", "cat", ":"})
"""Commands that only show their words."""
MAXIMUM_WORDS = 20_000
"""Words of a launch that are looked at; the longest public launch has fewer than 1,000."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """A command that starts training."""

    program: str
    """The Python file, such as `pretrain_gpt.py`; empty where none is named."""
    words: tuple[Word, ...]
    """The framework's own arguments."""
    line: int
    """Where the command begins."""
    cluster: Cluster = field(default_factory=Cluster)
    """What its launcher states."""
    undecided: tuple[str, ...] = ()
    """Conditions on which it depends whether this command runs."""
    environment: Mapping[str, Word] = field(default_factory=dict)
    """Variables of torch's allocator that it is started with."""


def is_flag(text: str) -> bool:
    """Whether a word begins a new argument; a negative number does not."""
    return (
        text.startswith("-") and len(text) > 1 and not _NEGATIVE.fullmatch(text) and " " not in text.partition("=")[0]
    )


def launch_cluster(command: Command, launcher: Sequence[Word], script: Script) -> Cluster:
    """What the options of the words before the program say, else the commands around it, else the directives."""
    words, options = [*launcher], _options(launcher)
    outer = command.within
    while outer is not None:
        words, options = [*words, *outer.words], {**_options(outer.words), **options}
        outer = outer.within
    programs = {word.text.rpartition("/")[2] for word in words}
    torchrun = any("nproc_per_node" in name or "nnodes" in name for name in options)
    if programs & _MPI and "N" in options:
        options["npernode"] = options.pop("N")
    own = {_SLURM[name]: value for name, (value, _) in options.items() if name in _SLURM}
    below = _directed({**script.directives, **own}, tasks=not torchrun)
    nodes, devices, processes = (_first(options, names) for names in (_NODES, _DEVICES, _PROCESSES))
    if devices is None and not torchrun:
        devices = _first(options, _TASKS)
    count, per_node = _count(nodes), _count(devices)
    stated = Cluster(
        nodes=below.nodes if count is None else count,
        devices_per_node=below.devices_per_node if per_node is None else per_node,
    )
    notes = Notes()
    if nodes is not None and ":" in nodes[1] and count is not None:
        notes.assume(f"{count} node(s)", f"the fewest that {_shown(nodes)} allows")
    world = None if torchrun else _count(processes) or counted(script.directives.get("ntasks", ""))
    if world is None and not torchrun and programs.isdisjoint(_OWN_WORLD):
        world = _world_variable(command, script)
    found = of_devices(world, notes, why="so many processes are stated, and not how many a host has", stated=stated)
    open_ = ((nodes, found.nodes), (devices, found.devices_per_node), (None if torchrun else processes, found.nodes))
    unknown = tuple(_shown(word) for word, number in open_ if word is not None and number is None)
    return replace(found, unknown=unknown or below.unknown, assumed=tuple(notes.assumed))


def _world_variable(command: Command, script: Script) -> int | None:
    """The number of processes that a program finds in its environment."""
    words = [command.environment[_WORLD]] if _WORLD in command.environment else script.assignments.get(_WORLD, ())
    resolved = len(words) == 1 and not words[0].unresolved and _COUNT.fullmatch(words[0].text)
    return (int(words[0].text) or None) if resolved else None


def directed_cluster(script: Script) -> Cluster:
    """What the batch directives say; the tasks of a host count where no GPUs are stated."""
    return _directed(script.directives, tasks=True)


def _directed(options: Mapping[str, str], *, tasks: bool) -> Cluster:
    devices = gpus_per_node(options)
    if devices is None and tasks:
        devices = tasks_per_node(options)
    return Cluster(nodes=least_nodes(options), devices_per_node=devices)


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
    """A count: `8`, the least of `4:8` (an elastic launch), or as Slurm writes it."""
    if stated is None:
        return None
    least = stated[1].partition(":")[0]
    return int(least) or None if _COUNT.fullmatch(least) else counted(stated[1])


def _shown(stated: tuple[str, str, Word]) -> str:
    name, value, word = stated
    return f"--{name.replace('_', '-')} {value} (line {word.line})"


def launch_environment(command: Command, before: Sequence[Word], script: Script) -> dict[str, Word]:
    """The allocator's variables as a command sees them, the nearest statement of each.

    `before` are the words in front of the program, where `env`, `mpirun -x` and `docker run -e` set variables.
    """
    found = {name: words[0] for name in ALLOCATOR_VARIABLES if len(words := script.assignments.get(name, ())) == 1}
    levels: list[tuple[Mapping[str, Word], Sequence[Word]]] = [(command.environment, before)]
    outer = command.within
    while outer is not None:
        levels.append((outer.environment, outer.words))
        outer = outer.within
    for environment, around in reversed(levels):
        found |= {name: environment[name] for name in ALLOCATOR_VARIABLES if name in environment}
        for word in around:
            name, equals, value = word.text.partition("=")
            if equals and name in ALLOCATOR_VARIABLES:
                found[name] = replace(word, text=value)
    return found


def note_launch(script: Script, launch: Launch, notes: Notes) -> None:
    """Say what nothing decides about the launch: whether it runs, and what its script's environment would give."""
    if launch.undecided:
        notes.assume(
            f"the command in line {launch.line} runs",
            f"it depends on {' and '.join(launch.undecided)}, which nothing decides",
        )
    notes.assumed += launch.cluster.assumed
    names = script.taken_as_unset[:_NAMED]
    if not names:
        return
    # The defaults that the script has for them are no statement about the run.
    why = "nothing gives them, so that the script's own defaults hold; set them in the environment or the variables"
    if launch.cluster.nodes is not None:
        why += f", or say --target-nodes or target.nodes where {launch.cluster.nodes} node(s) is wrong"
    notes.assume(f"unset: {', '.join(names)}", why)


def refuse_difference(
    first: tuple[Launch, Mapping[str, ConfigValue]],
    second: tuple[Launch, Mapping[str, ConfigValue]],
    *,
    ignored: frozenset[str],
    name: str,
) -> None:
    """Raise `ConfigurationError` when two launches with these values would not be the same job.

    Values of keys that are `ignored`, alone or by section, may differ; `name` is the script in the message.
    """
    its, others = first[1], second[1]
    for key in sorted({*its, *others}):
        values = [each[key].value if key in each else None for each in (its, others)]
        if values[0] == values[1] or not ignored.isdisjoint((key, *sections_of(key))):
            continue
        lines = f"lines {first[0].line} and {second[0].line} start different jobs"
        message = f"{lines}: {key} is {shown(values[0])} and {shown(values[1])}"
        conditions = [*first[0].undecided, *second[0].undecided]
        hint = f"set what {conditions[0]} asks for, or keep" if conditions else "keep"
        raise ConfigurationError(message, place=name, expected=f"{hint} one of them")
