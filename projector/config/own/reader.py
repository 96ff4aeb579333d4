"""The door to the project's own format: text in, `LoadedConfiguration` out.

Nothing is lenient here: a key that the format does not have, a value of another type or a choice that is none is an
error. What is absent or null takes the default of the job's field, and is shown as such.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from projector import catalog
from projector.catalog.facts import Facts
from projector.catalog.model_file import architecture
from projector.catalog.record import record
from projector.config.document import Document
from projector.config.nearest import nearest
from projector.config.overrides import Override
from projector.config.overriding import overridden
from projector.config.own.schema import (
    BLOCKS,
    CATALOG,
    MARK,
    NOTES,
    SPELLING,
    VERSION,
    Cluster,
    defaults,
    known_keys,
)
from projector.config.own.writing import model_mapping
from projector.config.safe_json import parse_json_or_yaml
from projector.config.shared_names import in_own_words
from projector.config.tree import Tree, build, flatten, merge, subtree
from projector.errors import ConfigurationError, InputError, shown
from projector.job import Batch, Schedule, TrainingJob
from projector.provenance import Assumption, ConfigValue, LoadedConfiguration, Source, Unmodelled

_Note = TypeVar("_Note", Assumption, Unmodelled)

_CLEARED = ("num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank")
"""Other spellings of model chunks, which an option clears by null; the format has one spelling and nothing to clear."""
_MEANT: Mapping[tuple[str, object], Override | None] = {
    ("use_turbo_deepep", True): Override(key="software.expert_dispatch", value="deepep"),
    ("enable_zero_bubble", True): Override(key="schedule", value=Schedule.ZERO_BUBBLE.value),
    ("patch_zero_bubble", True): None,
    **{(key, None): None for key in _CLEARED},
}
"""Overrides by which options speak and that are no key of the format: what they come to, None for nothing."""


def read(document: Document) -> LoadedConfiguration:
    """Read a file of the format.

    Raises `ConfigurationError` that names file, key and value for everything that the format does not have.
    """
    content = parse_json_or_yaml(document.text, name=document.name)
    _check_version(content, document.name)
    notes = {key: content.pop(key, None) for key in NOTES}
    tree, assumed = _effective(content, document)
    values = flatten(tree)
    _check_keys(values, known_keys(_blocks(tree)))
    try:
        facts = Facts(_plain(tree), place="")
        job = _job(facts)
        cluster = record(Cluster, facts.inner("cluster"))
        unmodelled = _notes(Unmodelled, notes)
        assumed += _notes(Assumption, notes)
    except ConfigurationError as error:
        place = _place(error.place.lstrip("."), values, document.name)
        raise type(error)(error.message, place=place, expected=error.expected) from error
    _check_batch(job.batch, values, document.name)
    return LoadedConfiguration(
        job=job,
        format="projector",
        nodes=cluster.nodes,
        devices_per_node=cluster.devices_per_node,
        spelling=SPELLING,
        values=values,
        assumed=assumed,
        unmodelled=unmodelled,
    )


def _check_version(content: Mapping[str, Any], name: str) -> None:
    version = content.get(MARK)
    if type(version) is not int or version != VERSION:
        expected = f"{VERSION}, the version of the format that this release reads"
        raise ConfigurationError(shown(version), place=f"{name}: {MARK}", expected=expected)


def _effective(content: Mapping[str, Any], document: Document) -> tuple[Tree, tuple[Assumption, ...]]:
    """Defaults, the catalog's model, the file and the overrides on top of one another; what to say of the model."""
    tree = build(content, source=Source.EXPERIMENT, file=document.name, variables=document.variables)
    overrides = _in_own_words(document.overrides)
    first = [override for override in overrides if override.key == f"model.{CATALOG}"]
    tree = overridden(tree, first, known=known_keys({}))
    base, assumed = _from_catalog(tree, document.name)
    empty = {key for key, value in tree.items() if isinstance(value, ConfigValue) and value.value is None}
    default = build(defaults(tree.keys() - empty), source=Source.DEFAULT, file=None, variables={})
    # A section that is empty states nothing; as a value it would hide what lies below.
    stated = {key: value for key, value in tree.items() if not (key in empty and isinstance(default.get(key), dict))}
    tree = merge(merge(default, base), stated)
    rest = [override for override in overrides if override not in first]
    return overridden(tree, rest, known=known_keys(_blocks(tree)) | SPELLING.keys()), assumed


def _in_own_words(overrides: Sequence[Override]) -> list[Override]:
    meant = [
        each if isinstance(each.value, list | dict) else _MEANT.get((each.key, each.value), each) for each in overrides
    ]
    return list(in_own_words([each for each in meant if each is not None], SPELLING))


def _from_catalog(tree: Tree, name: str) -> tuple[Tree, tuple[Assumption, ...]]:
    """The model of the catalog that the file names, as a tree, and what has to be said of it."""
    value = (subtree(tree, "model") or {}).get(CATALOG)
    if not isinstance(value, ConfigValue) or value.value is None:
        return {}, ()
    place = _place(f"model.{CATALOG}", {value.key: value}, name)
    if not isinstance(value.value, str):
        raise ConfigurationError(shown(value.value), place=place, expected="the name of a model of the catalog")
    try:
        model = catalog.model(value.value)
    except InputError as error:  # not known, or refused with a reason
        raise type(error)(error.message, place=place, expected=error.expected) from error
    remarks = [remark for remark in (model.note, model.status.doubt) if remark]
    assumed = [Assumption(what=f"{model.name} as the catalog has it", why="; ".join(remarks))] if remarks else []
    content = {"model": model_mapping(model.architecture)}
    return build(content, source=Source.CATALOG, file=f"catalog/models/{model.name}.yaml", variables={}), tuple(assumed)


def _blocks(tree: Tree) -> dict[str, dict[str, str]]:
    """Names and kinds of the blocks of the model."""
    model = subtree(tree, "model") or {}
    return {
        group: {
            name: str(kind.value)
            if isinstance(block, dict) and isinstance(kind := block.get("kind"), ConfigValue)
            else ""
            for name, block in (subtree(model, group) or {}).items()
        }
        for group in BLOCKS
    }


def _check_keys(values: Mapping[str, ConfigValue], known: set[str]) -> None:
    for key in values:
        if key not in known:
            place = _place(key, values, "")
            raise ConfigurationError("is not a key of the format", place=place, expected=nearest(key, known))


def _check_batch(batch: Batch, values: Mapping[str, ConfigValue], name: str) -> None:
    """A batch that nobody states is not guessed."""
    stated = values.get("batch.micro_batches")
    if batch.global_ is None and (stated is None or stated.value is None or stated.source is Source.DEFAULT):
        expected = "sequences per iteration, or batch.micro_batches, the micro batches of each data-parallel rank"
        raise ConfigurationError("is missing", place=f"{name}: batch.global", expected=expected)


def _job(facts: Facts) -> TrainingJob:
    model = facts.inner("model")
    return record(TrainingJob, facts, model=architecture(model, model.required("name", str)))


def _notes(kind: type[_Note], notes: Mapping[str, object]) -> tuple[_Note, ...]:
    """What the reader of another dialect had to say, as the file keeps it."""
    key = "unmodelled" if kind is Unmodelled else "assumed"
    items = notes[key]
    if items is None:
        return ()
    if not isinstance(items, list):
        raise ConfigurationError(shown(items), place=key, expected="expected a list")
    found = []
    for index, item in enumerate(items):
        facts = Facts(item, place=f"{key}[{index}]")
        found.append(record(kind, facts))
        facts.finish()
    return tuple(found)


def _plain(tree: Tree) -> dict[str, Any]:
    return {key: _plain(value) if isinstance(value, dict) else value.value for key, value in tree.items()}


def _place(key: str, values: Mapping[str, ConfigValue], name: str) -> str:
    """Where a key stands, for messages."""
    stated = values.get(key)
    if stated is not None and stated.source is Source.OVERRIDE:
        return f"override {key}"
    file = name if stated is None or stated.file is None else stated.file
    return f"{file}: {key}"
