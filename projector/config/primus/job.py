"""The values of a Primus module -> a `TrainingJob` with everything that has to be said beside it."""

from projector.config.nearest import nearest
from projector.config.primus.architecture import architecture
from projector.config.primus.experiment import Module
from projector.config.primus.facts import framework_facts
from projector.config.primus.keys import Keys
from projector.config.primus.layout import parallelism, recompute, schedule
from projector.config.primus.notes import Notes
from projector.config.primus.training import batch, optimizer, precision, software
from projector.job import Attention, TrainingJob
from projector.provenance import ConfigValue, LoadedConfiguration

_SETTINGS = {"model", "trainer_class", "extends"}
"""Keys of a module that are names, not values of the training."""


def load(module: Module, *, file: str) -> LoadedConfiguration:
    """Map a resolved module; raises `ConfigurationError` and `LayoutImpossible` for values that cannot be right."""
    keys, notes = Keys(module.values), Notes()
    model = architecture(module, keys, notes)
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
    ignored = _left_over(keys, notes, file=file)
    return LoadedConfiguration(
        job=job,
        values=dict(sorted(module.values.items())),
        ignored=(*ignored, *module.others),
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
    for fact in framework_facts().unmodelled:
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


def _left_over(keys: Keys, notes: Notes, *, file: str) -> list[str]:
    """Keys that a person wrote and that nothing above has read: known ones have no influence, others are named."""
    facts = framework_facts()
    switches = {fact.key for fact in facts.unmodelled}
    ignored: list[str] = []
    for key in keys.values:
        if key in keys.read or key in _SETTINGS or key in switches or not keys.stated_by_person(key):
            continue
        if key in facts.known or key.partition(".")[0] in facts.known or _is_detail(key, switches):
            ignored.append(key)
            continue
        notes.not_modelled(
            key,
            where=keys.values[key].file or file,
            effect=f"not a key that the project knows of; it has no influence here ({nearest(key, facts.known)})",
            decides=False,
        )
    return sorted(ignored)


def _is_detail(key: str, switches: set[str]) -> bool:
    """Whether the key is a detail of a feature whose switch (`lora.enabled`) is already judged."""
    section = key.rpartition(".")[0]
    return bool(section) and f"{section}.enabled" in switches
