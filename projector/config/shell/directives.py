"""`#SBATCH` lines, and the variables that Slurm sets from them (man pages of sbatch, Slurm 24.05)."""

import re
import shlex
from collections.abc import Mapping

_SHORT = {
    "N": "nodes",
    "n": "ntasks",
    "c": "cpus-per-task",
    "G": "gpus",
    "J": "job-name",
    "p": "partition",
    "A": "account",
    "t": "time",
    "o": "output",
    "e": "error",
    "w": "nodelist",
    "x": "exclude",
    "C": "constraint",
    "q": "qos",
    "d": "dependency",
    "D": "chdir",
    "a": "array",
    "m": "distribution",
}
_DIRECTIVE = re.compile(r"#SBATCH[ \t]+(.*)")
_COUNT = re.compile(r"(?:[A-Za-z][A-Za-z0-9_.-]*:)*([0-9]{1,6})(?:\([^)]*\))?")
_LEAST = re.compile(r"([0-9]{1,6})(?:-.*)?")
"""A count, or the lower end of a range of counts."""
_FLAGS = frozenset({"exclusive", "requeue", "no-requeue", "overcommit", "oversubscribe", "contiguous", "parsable"})


def directives(text: str) -> dict[str, str]:
    """The options of the `#SBATCH` lines in front of the first command, by long name without dashes."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            break
        if directive := _DIRECTIVE.match(stripped):
            found.update(_options(directive.group(1)))
    return found


def _options(line: str) -> dict[str, str]:
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        words = line.split()
    found: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, stated, value = word[2:].partition("=")
            found[name] = value
            name = "" if stated or name in _FLAGS else name
        elif word.startswith("-") and len(word) > 1:
            name = _SHORT.get(word[1], word[1])
            found[name] = word[2:].removeprefix("=")
            name = name if len(word) == len("-N") else ""
        elif name:
            found[name], name = word, ""
    return found


def counted(text: str) -> int | None:
    """A count of devices as Slurm writes it: `8`, `mi250:8`, `gpu:mi250:8` or `gpu:8(S:0-1)`; None for another."""
    found = _COUNT.fullmatch(text)
    return (int(found.group(1)) or None) if found else None


def least_nodes(options: Mapping[str, str]) -> int | None:
    """How many nodes the job has at least."""
    found = _LEAST.fullmatch(options.get("nodes", ""))
    return (int(found.group(1)) or None) if found else None


def tasks_per_node(options: Mapping[str, str]) -> int | None:
    """How many tasks a node runs, when the directives say so."""
    return counted(options.get("ntasks-per-node", options.get("tasks-per-node", "")))


def gpus_per_node(options: Mapping[str, str]) -> int | None:
    """How many GPUs a node has, when the directives say so: of a node, of its tasks, or of the job over its nodes."""
    of_node = options.get("gpus-per-node", "").split(",")
    of_node += [part for part in options.get("gres", "").split(",") if part.startswith("gpu:")]
    stated = next((count for part in of_node if (count := counted(part))), None)
    if stated is not None:
        return stated
    nodes, tasks = least_nodes(options), counted(options.get("ntasks", ""))
    each = counted(options.get("gpus-per-task", ""))
    here = tasks_per_node(options) or _share(tasks, nodes)
    return each * here if each and here else _share(counted(options.get("gpus", "")), nodes)


def _share(whole: int | None, nodes: int | None) -> int | None:
    """What one of the nodes has of the whole, when it divides."""
    return whole // nodes if whole and nodes and whole % nodes == 0 else None


def slurm_variables(options: Mapping[str, str]) -> dict[str, str]:
    """What Slurm sets inside the job, as far as the directives decide it."""
    found: dict[str, str] = {}

    def count(name: str) -> str | None:
        value = options.get(name, "")
        return value if value.isascii() and value.isdigit() and len(value) <= len("999999999") else None

    nodes, per_node, tasks = count("nodes"), count("ntasks-per-node"), count("ntasks")
    if nodes:
        found |= {"SLURM_NNODES": nodes, "SLURM_JOB_NUM_NODES": nodes}
    if per_node:
        found["SLURM_NTASKS_PER_NODE"] = per_node
    if tasks is None and nodes and per_node:
        tasks = str(int(nodes) * int(per_node))
    if tasks:
        found |= {"SLURM_NTASKS": tasks, "SLURM_NPROCS": tasks}
    if gpus := gpus_per_node(options):
        found["SLURM_GPUS_ON_NODE"] = str(gpus)
    stated = {
        "gpus-per-node": "SLURM_GPUS_PER_NODE",
        "cpus-per-task": "SLURM_CPUS_PER_TASK",
        "job-name": "SLURM_JOB_NAME",
        "partition": "SLURM_JOB_PARTITION",
        "account": "SLURM_JOB_ACCOUNT",
    }
    found |= {variable: options[name] for name, variable in stated.items() if options.get(name)}
    return found
