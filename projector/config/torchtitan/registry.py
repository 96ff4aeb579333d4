"""TorchTitan's command lines: a TOML file by name, or an entry of the Python registry that took the files' place.

Since February 2026 (pytorch/torchtitan #2386) configurations are Python functions, named with `--module llama3 --config
llama3_8b`; no file holds their values. Entries that the catalog knows are read with its values, which the answer lists
as assumed. For another the person has to export what the run resolves.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from projector.config.detection import is_titan_command
from projector.config.document import Document
from projector.config.nearest import nearest
from projector.config.overrides import parse_override
from projector.config.shell import Command, Word, read_script
from projector.config.torchtitan.facts import FILE, torchtitan_facts
from projector.config.torchtitan.launch import Launch
from projector.config.torchtitan.toml import parse_toml
from projector.config.tree import Tree, build, merge
from projector.errors import ConfigurationError, shown
from projector.provenance import Assumption, ConfigValue, Source

EXPORT = (
    "a resolved configuration: run it once with --debug.save_config_file=config.json (COMM_MODE=fake_backend needs no"
    " GPU) and give that file"
)
"""How a person gets at the values of an entry of the registry."""
_FILE_KEYS = ("job.config_file", "job_config_file")
_NUMBER = re.compile(r"[0-9]{1,6}")
_FLAG = re.compile(r"-+[A-Za-z_]")
"""Begins a name of an argument; `-1` is a value."""
_NAMES = frozenset({"module", "config"})
_ARGUMENTS = frozenset({"$@", "$*", "${@}", "${*}", "${@:2}"})
"""What a script was given itself, which nobody knows and which is mostly nothing."""
MAXIMUM_WORDS = 10_000
"""Words of one command that are looked at."""


def read_launch(document: Document) -> Launch:
    """Read a command line or run script.

    Raises `ConfigurationError` for one that names nothing whose values can be had, with what to bring instead.
    """
    text = document.text if isinstance(document.text, str) else document.text.decode("utf-8", "replace")
    script = read_script(text, name=document.name, variables=document.variables)
    command = next((command for command in script.commands if _is_launch(command)), None)
    if command is None:
        message = "no command here starts TorchTitan"
        expected = "a command with --module and --config, or with --job.config_file"
        raise ConfigurationError(message, place=document.name, expected=expected)
    place = f"{document.name}:{command.line}"
    flags = _flags([word for word in command.words[:MAXIMUM_WORDS] if word.text not in _ARGUMENTS], place=place)
    nodes, devices = _count(flags.get("nnodes")), _count(flags.get("nproc_per_node", flags.get("nproc-per-node")))
    own = _tree({key: value for key, value in flags.items() if "." in key and key not in _FILE_KEYS}, document)
    file = next((flags[key] for key in _FILE_KEYS if key in flags), None)
    if file is not None:
        return Launch(tree=merge(_named_file(str(file), document, place), own), nodes=nodes, devices=devices)
    below, note = _entry(flags, place=place)
    return Launch(tree=merge(below, own), assumed=(note,), registry=True, nodes=nodes, devices=devices)


def _is_launch(command: Command) -> bool:
    return is_titan_command(" ".join(word.text for word in command.words[:MAXIMUM_WORDS]))


def _count(value: object) -> int | None:
    """A count of torchrun; None for one that is no number, such as `gpu` or `1:4`."""
    text = value if isinstance(value, str) else ""
    return (int(text) or None) if _NUMBER.fullmatch(text) else None


def _flags(words: Sequence[Word], *, place: str) -> dict[str, str | bool | list[str]]:
    """Arguments by name; tyro's `--a.no-b` is false, several words are a list.

    Raises `ConfigurationError` for a value that nothing resolves.
    """
    flags: dict[str, str | bool | list[str]] = {}
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        name, assigned, value = word.text.removeprefix("--").partition("=")
        if not word.text.startswith("--") or not name:
            continue
        given = [word] if assigned else []
        while not assigned and index < len(words) and not _FLAG.match(words[index].text):
            given.append(words[index])
            index += 1
        if ("." in name or name in _NAMES) and any(each.unresolved for each in given):
            message = f"the value of --{name} ({given[0].text}) is not known"
            raise ConfigurationError(message, place=place, expected="give its variables beside the script")
        values = [value] if assigned else [each.text for each in given]
        flags[_key(name)] = values[0] if len(values) == 1 else values or _switch(name)
    return {_plain(name): value for name, value in flags.items()}


def _key(name: str) -> str:
    return name if "." not in name else name.replace("-", "_")


def _switch(name: str) -> bool:
    return not name.rpartition(".")[2].replace("-", "_").startswith("no_")


def _plain(name: str) -> str:
    """The key of a switch without its `no_`."""
    section, dot, last = name.rpartition(".")
    return f"{section}{dot}{last.removeprefix('no_')}" if dot else name


def _tree(flags: Mapping[str, str | bool | list[str]], document: Document) -> Tree:
    """Values that the command line states, nested by the parts of their names."""
    tree: Tree = {}
    for key, value in flags.items():
        parsed = parse_override(key, value).value if isinstance(value, str) else value
        patch: Tree | ConfigValue = ConfigValue(key=key, value=parsed, source=Source.EXPERIMENT, file=document.name)
        for part in reversed(key.split(".")):
            patch = {part: patch}
        assert isinstance(patch, dict)  # noqa: S101 - a key has at least one part; for the type checker
        tree = merge(tree, patch)
    return tree


def _named_file(name: str, document: Document, place: str) -> Tree:
    """The values of the TOML file that a command names; it may lie in the document's folder, nowhere else."""
    if document.files is None or not name.endswith(".toml"):
        message = f"the values stand in {shown(name)}"
        raise ConfigurationError(message, place=place, expected="give that file instead of the command")
    path = document.files.locate(name, beside=document.path, place=place)
    label = document.files.label(path)
    content = parse_toml(document.files.read(path), name=label)
    return build(content, source=Source.EXPERIMENT, file=label, variables=document.variables)


def _entry(flags: Mapping[str, object], *, place: str) -> tuple[Tree, Assumption]:
    """The values of an entry of the registry, and the note that they are assumed."""
    facts = torchtitan_facts()
    name, module = flags.get("config"), flags.get("module")
    if not isinstance(name, str):
        raise ConfigurationError("no --config names a configuration", place=place, expected=EXPORT)
    values = facts.registry.get(name)
    if values is None or (isinstance(module, str) and module.rpartition(".")[2] != values["model.name"]):
        message = f"{shown(name)} is a function of TorchTitan's Python registry; no file holds its values"
        near = nearest(name, facts.registry) if values is None else f"{name} of the module {values['model.name']}"
        raise ConfigurationError(message, place=place, expected=f"{EXPORT}; known without one: {near}")
    note = Assumption(
        what=f"the values of {name} in TorchTitan's registry",
        why=f"{facts.registry_source}; they change from version to version, so bring {EXPORT}",
    )
    return build(_nested(values), source=Source.CATALOG, file=f"catalog/{FILE.as_posix()}", variables={}), note


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in values.items():
        inner = nested
        *sections, last = key.split(".")
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[last] = value
    return nested
