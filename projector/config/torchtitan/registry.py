"""TorchTitan's command lines: a TOML file by name, or an entry of the Python registry that took the files' place.

Since February 2026 (pytorch/torchtitan #2386) configurations are Python functions, named with `--module llama3 --config
llama3_8b`; no file holds their values. Entries that the catalog knows are read with its values, which the answer lists
as assumed. For another the person has to export what the run resolves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from projector.config.allocator_settings import stated
from projector.config.detection import is_titan_command
from projector.config.document import Document
from projector.config.launching import (
    MAXIMUM_WORDS,
    PRINTING,
    Launch,
    is_flag,
    launch_cluster,
    launch_environment,
    note_launch,
    refuse_difference,
)
from projector.config.nearest import nearest
from projector.config.notes import Notes
from projector.config.overrides import parse_override
from projector.config.safe_yaml import MAXIMUM_DEPTH
from projector.config.shell import Command, Script, Word, read_script
from projector.config.torchtitan.facts import FILE, torchtitan_facts
from projector.config.torchtitan.run import Run
from projector.config.torchtitan.run_script import run_script
from projector.config.torchtitan.toml import parse_toml
from projector.config.tree import Tree, build, flatten, merge, nested
from projector.errors import ConfigurationError, ConfigurationTooLarge, shown
from projector.provenance import ConfigValue, Source

EXPORT = (
    "a resolved configuration: run it once with --debug.save_config_file=config.json (COMM_MODE=fake_backend needs no"
    " GPU) and give that file"
)
"""How a person gets at the values of an entry of the registry."""
_FILE_KEYS = ("job.config_file", "job_config_file")
_NAMES = frozenset({"module", "config", *_FILE_KEYS})
"""Arguments that name the values, and are none."""
_ARGUMENTS = frozenset({"$@", "$*", "${@}", "${*}", "${@:2}"})
"""What a script was given itself, which nobody knows and which is mostly nothing."""


def read_launch(document: Document) -> Run:
    """Read a command line or run script.

    Raises `ConfigurationError` for one that names nothing whose values can be had, with what to bring instead, and for
    several commands that start different jobs.
    """
    script = read_script(document.text, name=document.name, variables=document.variables)
    launches = [launch for command in script.commands if (launch := _launch(command, script, document)) is not None]
    if not launches:
        message = "no command here starts TorchTitan"
        expected = "a command with --module and --config, or with --job.config_file"
        raise ConfigurationError(message, place=document.name, expected=expected)
    naming = [launch for launch in launches if _names_values(launch)] or launches
    first, *others = ((launch, _run(launch, document)) for launch in naming)
    for other in others:
        compared = [(launch, flatten(run.tree)) for launch, run in (first, other)]
        refuse_difference(*compared, ignored=torchtitan_facts().ignored, name=document.name)
    launch, run = first
    notes = Notes(assumed=list(run.assumed))
    note_launch(script, launch, notes)
    texts = {name: word.text for name, word in launch.environment.items()}
    return replace(run, assumed=tuple(notes.assumed), environment=stated(texts, file=document.name))


def _launch(command: Command, script: Script, document: Document) -> Launch | None:
    """The launch that a command is; None for one that does not start TorchTitan."""
    words = command.words[:MAXIMUM_WORDS]
    if words[0].text in PRINTING:
        return None
    run = run_script(command, words, script, document.variables)
    if run is None and not is_titan_command(" ".join(word.text for word in words)):
        return None
    start = next(index for index, word in enumerate((*words, None)) if word is None or _begins(word.text))
    start = start if run is None else run.start
    cluster = launch_cluster(command, words[:start], script)
    return Launch(
        program="",
        words=words[start:] if run is None else (*run.arguments, *words[start:]),
        line=command.line,
        cluster=cluster if run is None else run.cluster(cluster),
        undecided=command.undecided,
        environment={**launch_environment(command, words[:start], script), **(run.environment if run else {})},
    )


def _begins(text: str) -> bool:
    """Whether a word is an argument of TorchTitan itself rather than of its launcher."""
    return text.startswith("--") and ("." in text.partition("=")[0] or _name(text) in _NAMES)


def _names_values(launch: Launch) -> bool:
    """Whether a launch says where its values stand, as a tool beside the training does not."""
    return any(word.text.startswith("--") and _name(word.text) in _NAMES for word in launch.words)


def _name(text: str) -> str:
    return text.partition("=")[0].removeprefix("--").replace("-", "_")


def _run(launch: Launch, document: Document) -> Run:
    """The values that a launch has: its own on top of those of what it names."""
    place, notes = f"{document.name}:{launch.line}", Notes()
    flags = _flags([word for word in launch.words if word.text not in _ARGUMENTS], notes, place=place)
    own = _tree({key: value for key, value in flags.items() if key not in _NAMES}, document)
    file = next((flags[key] for key in _FILE_KEYS if key in flags), None)
    if file is not None:
        tree = merge(_named_file(str(file), document, place), own)
    else:
        tree = merge(_entry(flags, notes, place=place), own)
    return Run(tree=tree, assumed=tuple(notes.assumed), registry=file is None, cluster=launch.cluster)


def _flags(words: Sequence[Word], notes: Notes, *, place: str) -> dict[str, str | bool | list[str]]:
    """Arguments by name; tyro's `--a.no-b` is false, several words are a list.

    Raises `ConfigurationError` for a value that nothing resolves, `ConfigurationTooLarge` for a name of too many parts.
    """
    flags: dict[str, str | bool | list[str]] = {}
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        name, assigned, value = word.text.removeprefix("--").partition("=")
        if not word.text.startswith("--") or not name:
            notes.assume(f"no arguments in {shown(word.text)}", f"{place} hands it over, and it begins no argument")
            continue
        if name.count(".") >= MAXIMUM_DEPTH:
            raise ConfigurationTooLarge(f"an argument of more than {MAXIMUM_DEPTH} parts", place=place)
        given = [word] if assigned else []
        while not assigned and index < len(words) and not is_flag(words[index].text):
            given.append(words[index])
            index += 1
        if any(each.unresolved for each in given):
            message = f"the value of --{name} ({given[0].text}) is not known"
            raise ConfigurationError(message, place=place, expected="give its variables beside the script")
        values = [value] if assigned else [each.text for each in given]
        flags[name.replace("-", "_")] = values[0] if len(values) == 1 else values or _switch(name)
    return {_plain(name): value for name, value in flags.items()}


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
        stated = ConfigValue(key=key, value=parsed, source=Source.EXPERIMENT, file=document.name)
        tree = merge(tree, nested(key, stated))
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


def _entry(flags: Mapping[str, object], notes: Notes, *, place: str) -> Tree:
    """The values of an entry of the registry, which are noted as assumed."""
    facts = torchtitan_facts()
    name, module = flags.get("config"), flags.get("module")
    if not isinstance(name, str):
        raise ConfigurationError("no --config names a configuration", place=place, expected=EXPORT)
    values = facts.registry.get(name)
    if values is None or (isinstance(module, str) and module.rpartition(".")[2] != values["model.name"]):
        message = f"{shown(name)} is a function of TorchTitan's Python registry; no file holds its values"
        near = nearest(name, facts.registry) if values is None else f"{name} of the module {values['model.name']}"
        raise ConfigurationError(message, place=place, expected=f"{EXPORT}; known without one: {near}")
    notes.assume(
        f"the values of {name} in TorchTitan's registry",
        f"{facts.registry_source}; they change from version to version, so bring {EXPORT}",
    )
    tree: Tree = {}
    for key, value in values.items():
        stated = ConfigValue(key=key, value=value, source=Source.CATALOG, file=f"catalog/{FILE.as_posix()}")
        tree = merge(tree, nested(key, stated))
    return tree
