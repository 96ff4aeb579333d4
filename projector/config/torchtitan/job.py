"""TorchTitan's values -> a `TrainingJob` with everything that has to be said beside it."""

from collections.abc import Mapping
from dataclasses import dataclass

from projector.config.notes import Notes
from projector.config.switches import left_over, note_switches
from projector.config.torchtitan.facts import torchtitan_facts
from projector.config.torchtitan.layout import parallelism, stated_shards, world
from projector.config.torchtitan.model import architecture
from projector.config.torchtitan.spelling import TitanKeys
from projector.config.torchtitan.training import batch, optimizer, precision, recompute, software
from projector.job import TrainingJob
from projector.provenance import Assumption, ConfigValue, LoadedConfiguration

_DEVICES_PER_NODE = 8
"""GPUs of a host where a file states how many it wants in all: OAM and HGX boards."""


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


def load(values: Values, *, format_: str) -> LoadedConfiguration:
    """Map the values of a file in the dialect `format_`.

    Raises `ConfigurationError` and its children, `LayoutImpossible`, `BatchIndivisible`, `NotAvailable`.
    """
    keys, notes = TitanKeys(values.values, file=values.file), Notes()
    model = architecture(keys, notes)
    layers = len(model.layers)
    layout, schedule = parallelism(keys, notes, layers=layers)
    job = TrainingJob(
        model=model,
        parallelism=layout,
        batch=batch(keys, stages=layout.pipeline * layout.virtual_pipeline),
        precision=precision(keys, notes),
        optimizer=optimizer(keys, notes),
        recompute=recompute(keys, notes, layers=layers, by_operation=values.registry),
        software=software(keys, notes, sharding=layout.sharding),
        schedule=schedule,
    )
    facts = torchtitan_facts()
    note_switches(keys, notes, facts.unmodelled)
    devices = world(layout, shard=stated_shards(keys))
    nodes, per_node = _cluster(devices, notes)
    return LoadedConfiguration(
        job=job,
        format=format_,
        nodes=nodes,
        devices_per_node=per_node,
        spelling=keys.spelling(),
        values=dict(sorted(values.values.items())),
        ignored=(*left_over(keys, notes, known=facts.known, file=values.file), *values.others),
        assumed=(*values.assumed, *notes.assumed),
        unmodelled=tuple(notes.unmodelled),
    )


def _cluster(devices: int | None, notes: Notes) -> tuple[int | None, int | None]:
    """Hosts, and GPUs of one, where the degrees fix how many GPUs the run takes."""
    if devices is None:
        return None, None
    per_node = min(devices, _DEVICES_PER_NODE)
    if devices % per_node:
        return None, None
    notes.assume(
        f"{devices} GPUs, {per_node} a host",
        "TorchTitan starts only on as many as its degrees multiply to; state data_parallel_shard_degree = -1 to leave"
        " it open",
    )
    return devices // per_node, per_node
