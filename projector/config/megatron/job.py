"""Megatron-LM's arguments -> a `TrainingJob` with everything that has to be said beside it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from projector.config.keys import Keys
from projector.config.megatron.adapters import adapters
from projector.config.megatron.architecture import architecture
from projector.config.megatron.compressed import compressed_choices
from projector.config.megatron.facts import VERSION_KEYS, megatron_facts
from projector.config.megatron.former import other_names
from projector.config.megatron.idle import note_idle
from projector.config.megatron.layout import parallelism, recompute, schedule
from projector.config.megatron.offload import activation_offload
from projector.config.megatron.starting import refuse_few_positions, refuse_what_does_not_start
from projector.config.megatron.training import batch, optimizer, precision, software
from projector.config.notes import Notes
from projector.config.switches import left_over, note_switches
from projector.errors import ConfigurationError
from projector.job import Attention, ModelArchitecture, TrainingJob
from projector.provenance import ConfigValue, LoadedConfiguration

_SETTINGS = {"model", "trainer_class", "extends", "world_size", *VERSION_KEYS}
"""Keys that say what is run, by which version and on how many devices, and are no values of the training."""


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
    stock: bool = False
    """Megatron-LM runs as NVIDIA publishes it: what it refuses or decides and Primus does not."""
    defaults: Mapping[str, object] = field(default_factory=dict)
    """Values of absent arguments that depend on Megatron-LM's version."""
    unusable: Mapping[str, ConfigurationError] = field(default_factory=dict)
    """Arguments whose value cannot be used, with the error for when they decide something."""


def load(arguments: Arguments, *, format_: str, model: ModelArchitecture | None = None) -> LoadedConfiguration:
    """Map the arguments of a file in the dialect `format_`.

    `model` stands for the arguments of the architecture where something else states it.

    Raises `ConfigurationError` and `LayoutImpossible` for values that cannot be right.
    """
    keys = Keys(arguments.values, defaults=arguments.defaults, unusable=arguments.unusable, file=arguments.file)
    notes = Notes()
    stated = model is None
    model = architecture(keys, notes, name=arguments.model) if model is None else model
    layout = parallelism(keys, notes, layers=len(model.layers), stock=arguments.stock)
    job = TrainingJob(
        model=model,
        parallelism=layout,
        batch=batch(keys, notes, stock=arguments.stock),
        precision=precision(keys, notes),
        optimizer=optimizer(keys),
        recompute=recompute(keys, notes, layers=len(model.layers)),
        offload=activation_offload(keys, notes),
        software=compressed_choices(keys, software(keys, notes)),
        adapters=adapters(keys, notes, model),
        schedule=schedule(keys, notes, pipeline=layout.pipeline, stock=arguments.stock),
    )
    if arguments.stock and stated:
        refuse_few_positions(job, keys)
    refuse_what_does_not_start(job, keys, stock=arguments.stock)
    note_idle(keys, notes, job)
    _note_shared_heads(job, notes)
    facts = megatron_facts()
    note_switches(keys, notes, facts.unmodelled)
    keys.read |= _SETTINGS
    known = facts.known.union(arguments.known, (each.key.rpartition(".")[0] for each in facts.unmodelled))
    ignored = left_over(keys, notes, known=known, file=arguments.file, spellings=other_names(), strict=arguments.stock)
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
