"""Megatron-LM's arguments -> a `TrainingJob` with everything that has to be said beside it."""

from collections.abc import Mapping
from dataclasses import dataclass

from projector.config.keys import Keys
from projector.config.megatron.architecture import architecture
from projector.config.megatron.facts import megatron_facts
from projector.config.megatron.layout import parallelism, recompute, schedule
from projector.config.megatron.training import batch, optimizer, precision, software
from projector.config.nearest import nearest
from projector.config.notes import Notes
from projector.job import Attention, ModelArchitecture, TrainingJob
from projector.provenance import ConfigValue, LoadedConfiguration

_SETTINGS = {"model", "trainer_class", "extends"}
"""Keys of a module that are names, not values of the training."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Arguments:
    """Megatron-LM's arguments, whoever stated them."""

    values: Mapping[str, ConfigValue]
    """Effective values by name, with underscores; dotted where a value lies in a mapping."""
    file: str
    """What messages call the place of a value that no file holds."""
    model: str = "model"
    """Name of the model, for reports."""
    others: tuple[str, ...] = ()
    """Keys beside the arguments, which the answer lists as ignored."""
    known: frozenset[str] = frozenset()
    """Names that the file's dialect knows beyond Megatron-LM's own."""


def load(arguments: Arguments, *, format_: str, model: ModelArchitecture | None = None) -> LoadedConfiguration:
    """Map the arguments of a file in the dialect `format_`.

    `model` stands for the arguments of the architecture where something else states it.

    Raises `ConfigurationError` and `LayoutImpossible` for values that cannot be right.
    """
    keys, notes = Keys(arguments.values), Notes()
    model = architecture(keys, notes, name=arguments.model) if model is None else model
    layout = parallelism(keys, notes, layers=len(model.layers))
    job = TrainingJob(
        model=model,
        parallelism=layout,
        batch=batch(keys),
        precision=precision(keys),
        optimizer=optimizer(keys),
        recompute=recompute(keys, notes, layers=len(model.layers)),
        software=software(keys),
        schedule=schedule(keys, notes, pipeline=layout.pipeline),
    )
    _note_shared_heads(job, notes)
    _switched_on(keys, notes)
    ignored = _left_over(keys, notes, arguments)
    return LoadedConfiguration(
        job=job,
        format=format_,
        values=dict(sorted(arguments.values.items())),
        ignored=(*ignored, *arguments.others),
        assumed=tuple(notes.assumed),
        unmodelled=tuple(notes.unmodelled),
    )


def _note_shared_heads(job: TrainingJob, notes: Notes) -> None:
    """Say that tensor ranks share key/value heads: only Megatron-Core 0.16 and newer start such a run."""
    tensor = job.parallelism.tensor
    heads = {layer.mixer.key_value_heads for layer in job.model.layers if isinstance(layer.mixer, Attention)}
    for fewer in sorted(count for count in heads if count < tensor):
        notes.assume(
            f"{fewer} key/value heads shared by tensor parallel {tensor}",
            "needs Megatron-Core 0.16 or newer; older versions refuse to start, since num_query_groups has to be a"
            " multiple of tensor_model_parallel_size there",
        )


def _switched_on(keys: Keys, notes: Notes) -> None:
    """Note the keys that switch on something that the engine does not model."""
    for fact in megatron_facts().unmodelled:
        stated = keys.values.get(fact.key)
        if stated is None or _is_off(stated, fact.neutral):
            continue
        notes.not_modelled(
            f"{fact.what} ({fact.key}: {stated.value})",
            where=keys.place(fact.key),
            effect=fact.effect,
            decides=fact.decides,
        )


def _is_off(stated: ConfigValue, neutral: tuple[object, ...]) -> bool:
    return stated.value is None or any(stated.value == value and type(stated.value) is type(value) for value in neutral)


def _left_over(keys: Keys, notes: Notes, arguments: Arguments) -> list[str]:
    """Keys that a person wrote and that nothing above has read: known ones have no influence, others are named."""
    facts = megatron_facts()
    known = facts.known | arguments.known
    switches = {fact.key for fact in facts.unmodelled}
    ignored: list[str] = []
    for key in keys.values:
        if key in keys.read or key in _SETTINGS or key in switches or not keys.stated_by_person(key):
            continue
        if key in known or key.partition(".")[0] in known or _is_detail(key, switches):
            ignored.append(key)
            continue
        notes.not_modelled(
            key,
            where=keys.values[key].file or arguments.file,
            effect=f"not a key that the project knows of; it has no influence here ({nearest(key, known)})",
            decides=False,
        )
    return sorted(ignored)


def _is_detail(key: str, switches: set[str]) -> bool:
    """Whether the key is a detail of a feature whose switch (`lora.enabled`) is already judged."""
    section = key.rpartition(".")[0]
    return bool(section) and f"{section}.enabled" in switches
