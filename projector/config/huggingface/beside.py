"""Files beside a config.json: which kind each is, told from its content, and its values."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from projector.config.document import Document
from projector.config.huggingface import accelerate, deepspeed, fsdp
from projector.config.huggingface.setup import Engine, Kind, Setup, merged
from projector.config.keys import Keys
from projector.config.notes import Notes
from projector.config.safe_json import parse_json_or_yaml
from projector.config.tree import Tree, build, flatten
from projector.errors import ConfigurationError
from projector.provenance import Source

SHARED = {
    "micro_batch_size": ("train_micro_batch_size_per_gpu",),
    "global_batch_size": ("train_batch_size",),
    "gradient_accumulation_steps": ("deepspeed_config.gradient_accumulation_steps",),
}
"""Keys by which such files state what all dialects share."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """One such file."""

    name: str
    """What messages call it."""
    kind: Kind
    """What wrote it."""
    tree: Tree
    """Its values."""

    @property
    def keys(self) -> set[str]:
        """Every key that it states, dotted in full, and every section."""
        return {*flatten(self.tree), *self.tree}


def files_beside(document: Document) -> list[Beside]:
    """The files beside a document; raises `ConfigurationError` for one of another kind, and for two of one kind."""
    files: list[Beside] = []
    for name, text in document.companions.items():
        content = parse_json_or_yaml(text, name=name)
        kind = _kind(content.keys(), name=name)
        other = next((file for file in files if file.kind == kind), None)
        if other is not None:
            message = f"a second {kind} configuration beside {other.name}"
            raise ConfigurationError(message, place=name, expected="give one of the two")
        tree = build(content, source=Source.EXPERIMENT, file=name, variables=document.variables)
        files.append(Beside(name=name, kind=kind, tree=tree))
    return files


def spelling(files: Sequence[Beside]) -> dict[str, str]:
    """The files' own key for each name that all dialects share, where one of them states it."""
    stated = {key for file in files for key in file.keys}
    return {shared: key for shared, keys in SHARED.items() for key in keys if key in stated}


def setup_of(files: Sequence[Beside], notes: Notes) -> tuple[Setup, list[str]]:
    """What the files decide together, and their keys without influence.

    Raises `ConfigurationError` where they contradict one another or one that they refer to is missing.
    """
    readers = {
        Kind.DEEPSPEED: deepspeed.read_deepspeed,
        Kind.ACCELERATE: accelerate.read_accelerate,
        Kind.FSDP: fsdp.read_fsdp,
    }
    setups, ignored = [], []
    for file in files:
        setup, unused = readers[file.kind](Keys(flatten(file.tree)), notes, name=file.name)
        setups.append((file.name, setup))
        ignored += unused
    together = merged(setups)
    given = any(file.kind is Kind.DEEPSPEED for file in files)
    if together.deepspeed_file is not None and not given:
        message = f"{together.deepspeed_file!r} decides the run and was not given"
        raise ConfigurationError(message, place=files[0].name, expected="give that file too (--with FILE)")
    if together.engine is Engine.MEGATRON and len(files) > 1:
        raise ConfigurationError("says MEGATRON_LM beside another file", place=files[0].name, expected="one of the two")
    return together, ignored


def _kind(keys: Iterable[str], *, name: str) -> Kind:
    stated = set(keys)
    if stated & accelerate.MARKS:
        return Kind.ACCELERATE
    if stated & deepspeed.MARKS:
        return Kind.DEEPSPEED
    if {key.removeprefix(fsdp.PREFIX) for key in stated} & fsdp.MARKS:
        return Kind.FSDP
    expected = "DeepSpeed JSON (zero_optimization), accelerate YAML (distributed_type) or the Trainer's FSDP JSON"
    raise ConfigurationError("not a file that is known beside a config.json", place=name, expected=expected)
