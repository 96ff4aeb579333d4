"""The door to Hugging Face configurations: text in, `LoadedConfiguration` out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from projector.config.document import Document
from projector.config.huggingface.beside import Beside, files_beside, setup_of, spelling
from projector.config.huggingface.facts import huggingface_facts
from projector.config.huggingface.megatron import MegatronRun, megatron_arguments, megatron_job
from projector.config.huggingface.model import MODEL, Described, Description, catalog_model
from projector.config.huggingface.setup import Engine, Setup, file_facts
from projector.config.huggingface.training import NAMES, eager_job
from projector.config.keys import Keys
from projector.config.nearest import nearest
from projector.config.notes import Notes
from projector.config.overrides import Override
from projector.config.overriding import overridden
from projector.config.safe_json import parse_json_or_yaml
from projector.config.shared_names import in_own_words
from projector.config.tree import build, flatten
from projector.errors import ConfigurationError
from projector.provenance import ConfigValue, LoadedConfiguration, Source

_CATALOG_NAMES = {"num_layers": "num_hidden_layers", "padded_vocab_size": "vocab_size"}
"""Shared names of what may be overridden of a model of the catalog."""
_CATALOG_KEYS = frozenset({MODEL, "hidden_size", "num_hidden_layers", "vocab_size", "tie_word_embeddings"})


@dataclass(frozen=True, kw_only=True, slots=True)
class _Routed:
    """Overrides by what they concern."""

    model: Sequence[Override]
    """The architecture."""
    files: Sequence[Override]
    """Files beside the config.json."""
    run: Sequence[Override]
    """The run."""


def read(document: Document) -> LoadedConfiguration:
    """Read a config.json, or `{"model": NAME}` for a model of the catalog, with the files beside it.

    Raises `ConfigurationError` and its children, and `LayoutImpossible`.
    """
    content = parse_json_or_yaml(document.text, name=document.name)
    files = files_beside(document)
    named = content.get(MODEL) if set(content) == {MODEL} else None
    description = None if named is not None else _description(content, document)
    shared = {**(_CATALOG_NAMES if description is None else description.spelling), **spelling(files)}
    known = _CATALOG_KEYS if description is None else description.known
    routed = _route(in_own_words(document.overrides, shared), known, files)
    files = [replace(file, tree=overridden(file.tree, _of(file, routed.files), known=_known(file))) for file in files]
    notes = Notes()
    if description is None:
        model = catalog_model(str(named), routed.model)
    else:
        model = description.described(routed.model, notes)
    setup, ignored = setup_of(files, notes)
    setup = _said(setup, routed.files)
    loaded = _loaded(document, model, setup, routed, notes, beside=bool(files))
    values = {key: value for file in files for key, value in flatten(file.tree).items()}
    return replace(
        loaded,
        spelling=shared,
        nodes=setup.nodes,
        devices_per_node=setup.devices_per_node,
        values=dict(sorted({**model.values, **values, **loaded.values}.items())),
        ignored=tuple(sorted({*model.ignored, *ignored, *loaded.ignored})),
        assumed=(*notes.assumed, *loaded.assumed),
        unmodelled=(*notes.unmodelled, *loaded.unmodelled),
    )


def _description(content: Mapping[str, Any], document: Document) -> Description:
    tree = build(content, source=Source.EXPERIMENT, file=document.name, variables=document.variables)
    return Description(tree, name=document.name)


def _route(overrides: Sequence[Override], model: set[str] | frozenset[str], files: Sequence[Beside]) -> _Routed:
    """Sort overrides by what they concern; what concerns neither model nor files concerns the run."""
    beside = {key for file in files for key in (*file.keys, *_known(file))}
    in_files = [override for override in overrides if override.key in beside and override.key not in NAMES]
    # `bf16` is a section of DeepSpeed's and a value of the Trainer's; what a person says is the value.
    values = {key for file in files for key in flatten(file.tree)}
    in_files += [override for override in overrides if override.key in NAMES and override.key in values]
    left = [override for override in overrides if override not in in_files]
    in_model = [override for override in left if override.key in model and override.key not in NAMES]
    return _Routed(model=in_model, files=in_files, run=[override for override in left if override not in in_model])


def _known(file: Beside) -> frozenset[str]:
    """Keys that a file of this kind may have, where the data name them."""
    return file_facts(file.kind).known


def _of(file: Beside, overrides: Sequence[Override]) -> list[Override]:
    return [override for override in overrides if override.key in {*file.keys, *_known(file)}]


def _said(setup: Setup, overrides: Sequence[Override]) -> Setup:
    """Without what a file says of the batch and a person replaced: the total, or the micro batches that make it."""
    said = {override.key for override in overrides}
    total, micro_batches = "train_batch_size" in said, "gradient_accumulation_steps" in said
    if total == micro_batches and "train_micro_batch_size_per_gpu" not in said:
        return setup
    if micro_batches or (setup.global_batch is not None and not total):
        return replace(setup, global_batch=None) if micro_batches else replace(setup, accumulation=None)
    return replace(setup, accumulation=None) if total else setup


def _loaded(  # noqa: PLR0913 - what decides a job, each found out on its own
    document: Document, model: Described, setup: Setup, routed: _Routed, notes: Notes, *, beside: bool
) -> LoadedConfiguration:
    stated = {item.key: _stated(item) for item in routed.run}
    if not beside or setup.engine is Engine.MEGATRON:
        _refuse_unknown(routed.run, megatron_arguments())
        return megatron_job(model.trained, setup, MegatronRun(values=stated, name=document.name))
    _refuse_megatron(routed.run)
    run = Keys({NAMES[key]: value for key, value in stated.items() if key in NAMES})
    trained, predictions = model.trained, model.trained.model.multi_token_prediction_layers
    if predictions:
        why = "Hugging Face's classes leave out the extra prediction layers that config.json states"
        notes.assume("no multi-token prediction", why)
        trained = replace(trained, model=replace(trained.model, multi_token_prediction_layers=0))
    job = eager_job(trained, setup, run, notes, name=document.name)
    return LoadedConfiguration(job=job, format="huggingface", values=stated)


def _stated(override: Override) -> ConfigValue:
    return ConfigValue(key=override.key, value=override.value, source=Source.OVERRIDE)


def _refuse_unknown(overrides: Sequence[Override], known: frozenset[str]) -> None:
    architecture = huggingface_facts().architecture_arguments
    for override in overrides:
        place = f"override {override.key}"
        if override.key in architecture:
            expected = "override the key of config.json that states it"
            raise ConfigurationError("config.json describes the model here", place=place, expected=expected)
        if override.key not in known:
            expected = f"a key of config.json or an argument of Megatron-LM; {nearest(override.key, known)}"
            raise ConfigurationError("is not a value of this configuration", place=place, expected=expected)


def _refuse_megatron(overrides: Sequence[Override]) -> None:
    """Under DeepSpeed or FSDP, Megatron-LM's arguments have no meaning beyond the names that are shared."""
    for override in overrides:
        if override.key in NAMES or (override.key in megatron_arguments() and _asks_for_nothing(override.value)):
            continue
        message = "is not a value of a run under DeepSpeed or FSDP"
        raise ConfigurationError(message, place=f"override {override.key}", expected=nearest(override.key, NAMES))


def _asks_for_nothing(value: object) -> bool:
    """Whether an argument of Megatron-LM is off or a degree of 1, as options state it to clear another."""
    return value is None or value is False or (type(value) is int and value in {0, 1})
