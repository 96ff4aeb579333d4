"""TorchTitan's values -> a `TrainingJob` with everything that has to be said beside it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from projector.config.cluster import Cluster, of_devices
from projector.config.notes import Notes
from projector.config.switches import left_over, note_switches
from projector.config.torchtitan.facts import torchtitan_facts
from projector.config.torchtitan.layout import grouped, parallelism, stated_shards, world
from projector.config.torchtitan.model import architecture
from projector.config.torchtitan.spelling import TitanKeys
from projector.config.torchtitan.split_backward import check_split_backward
from projector.config.torchtitan.training import batch, optimizer, precision, recompute, software
from projector.job import TrainingJob
from projector.provenance import Assumption, ConfigValue, LoadedConfiguration

_AS_MANY = (
    "TorchTitan starts only on as many as its degrees multiply to; data_parallel_shard_degree = -1 leaves it open"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Values:
    """TorchTitan's values, whoever stated them."""

    values: Mapping[str, ConfigValue]
    """Effective values by dotted key, in the file's own spelling."""
    file: str
    """What messages call the place of a value that no file holds."""
    others: tuple[str, ...] = ()
    """Keys beside the values, which the answer lists as ignored."""
    assumed: tuple[Assumption, ...] = ()
    """What had to be assumed to get at the values."""
    registry: bool = False
    """They are of the generation that has a Python registry: selective checkpointing is by operation."""
    cluster: Cluster = field(default_factory=Cluster)
    """What the launcher says; the degrees may say the rest."""


def load(values: Values, *, format_: str) -> LoadedConfiguration:
    """Map the values of a file in the dialect `format_`.

    Raises `ConfigurationError` and its children, `LayoutImpossible`, `BatchIndivisible`, `NotAvailable`.
    """
    keys, notes = TitanKeys(values.values, file=values.file), Notes()
    model = architecture(keys, notes)
    layers = len(model.layers)
    layout, schedule = parallelism(keys, notes, layers=layers)
    devices = world(layout, shard=stated_shards(keys))
    sequences = batch(keys, stages=layout.pipeline * layout.virtual_pipeline)
    job = TrainingJob(
        model=model,
        parallelism=replace(grouped(layout, keys, micro_batches=sequences.micro_batches), devices=devices),
        batch=sequences,
        precision=precision(keys, notes),
        optimizer=optimizer(keys, notes),
        recompute=recompute(keys, notes, layers=layers, by_operation=values.registry),
        software=software(keys, notes, model=model, sharding=layout.sharding, registry=values.registry),
        schedule=schedule,
    )
    _note_compiled_casts(job, keys, notes)
    check_split_backward(job, keys, notes, registry=values.registry)
    facts = torchtitan_facts()
    note_switches(keys, notes, facts.unmodelled)
    cluster = of_devices(devices, notes, why=_AS_MANY, stated=values.cluster)
    return LoadedConfiguration(
        job=job,
        format=format_,
        nodes=cluster.nodes,
        devices_per_node=cluster.devices_per_node,
        cluster_hint=cluster.hint,
        spelling=keys.spelling(),
        values=dict(sorted(values.values.items())),
        ignored=(*left_over(keys, notes, known=facts.known, file=values.file), *values.others),
        assumed=(*values.assumed, *notes.assumed),
        unmodelled=tuple(notes.unmodelled),
    )


def _note_compiled_casts(job: TrainingJob, keys: TitanKeys, notes: Notes) -> None:
    """Say that nobody has compared what torchao's casts keep once they are compiled with the layers around them."""
    if job.precision.low_precision is not None and job.software.compiled_layers:
        notes.not_modelled(
            f"torch.compile of casts to {job.precision.low_precision}",
            where=keys.place("compile.enable"),
            effect="copies that it fuses away count as kept",
            decides=False,
            overstates=True,
        )
