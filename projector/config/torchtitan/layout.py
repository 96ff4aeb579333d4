"""Degrees, pipeline stages and schedule from TorchTitan's parallelism section."""

import re
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import pairwise
from math import ceil

from projector.config.notes import Notes
from projector.config.torchtitan.spelling import MICRO_BATCH, TitanKeys
from projector.errors import BatchIndivisible, ConfigurationError, LayoutImpossible
from projector.job import Parallelism, Schedule, Sharding

MAXIMUM_STAGES = 4096
"""Pipeline stages of one model."""
MAXIMUM_DEGREE = 10**6
"""No parallel degree reaches a million."""


class Needs(Enum):
    """What a schedule asks of the number of micro batches."""

    NOTHING = auto()
    STAGES = auto()
    """As many as stages."""
    ROUNDS = auto()
    """Rounds of the same length, each of as many as pipeline ranks or more, or one round of fewer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineSchedule:
    """One of PyTorch's schedules."""

    schedule: Schedule
    """The schedule here that is it, or stands in for it."""
    chunks: int
    """Model chunks per rank where nothing states the layers of a stage."""
    exact: bool = True
    """Whether it is the same schedule."""
    needs: Needs = Needs.NOTHING
    """What it asks of the number of micro batches."""


_SCHEDULES = {
    "1f1b": PipelineSchedule(schedule=Schedule.ONE_F_ONE_B, chunks=1, needs=Needs.STAGES),
    "gpipe": PipelineSchedule(schedule=Schedule.GPIPE, chunks=1),
    "interleaved1f1b": PipelineSchedule(schedule=Schedule.INTERLEAVED, chunks=2, needs=Needs.ROUNDS),
    "loopedbfs": PipelineSchedule(schedule=Schedule.LOOPED_BFS, chunks=2),
    "interleavedzerobubble": PipelineSchedule(schedule=Schedule.INTERLEAVED_ZERO_BUBBLE, chunks=2, needs=Needs.ROUNDS),
    "zbvzerobubble": PipelineSchedule(schedule=Schedule.ZBV_FORMATTED, chunks=2),
    "dualpipev": PipelineSchedule(schedule=Schedule.ZBV_FORMATTED, chunks=2, exact=False, needs=Needs.STAGES),
}
"""By PyTorch's names without case and underscores (torch/distributed/pipelining/schedules.py)."""
_IN_GROUPS = (Schedule.INTERLEAVED, Schedule.INTERLEAVED_ZERO_BUBBLE, Schedule.LOOPED_BFS)
"""Schedules over several chunks in a row, in rounds of micro batches; one round for breadth first."""
_TABLE = "parallelism.pipeline_parallel_schedule_csv"
"""A file with the events of a schedule of its own, which takes the place of a name."""
_OLD_SCHEDULES = {"flexibleinterleaved1f1b": "interleaved1f1b"}
_LAYER = re.compile(r"layers\.(\d{1,6})")


def parallelism(keys: TitanKeys, notes: Notes, *, layers: int) -> tuple[Parallelism, Schedule | None]:
    """The layout as stated, and the schedule of a pipeline.

    Raises `LayoutImpossible` for stages that do not hold the layers, `ConfigurationError` for wrong values.
    """
    pipeline = _degree(keys, "parallelism.pipeline_parallel_degree")
    tensor = _degree(keys, "parallelism.tensor_parallel_degree")
    schedule, stages = _pipeline(keys, notes, layers=layers, pipeline=pipeline)
    context, expert = (
        _degree(keys, "parallelism.context_parallel_degree"),
        _degree(keys, "parallelism.expert_parallel_degree"),
    )
    sharding, shard, replicas = _sharding(keys, notes, context=context)
    layout = Parallelism(
        tensor=tensor,
        pipeline=pipeline,
        virtual_pipeline=max(1, len(stages) // pipeline) if stages else 1,
        pipeline_layout=_layout_string(stages) if stages else None,
        context=context,
        expert=expert,
        expert_tensor=_expert_tensor(keys, expert=expert, tensor=tensor),
        sequence_parallel=keys.boolean("parallelism.enable_sequence_parallel", default=True),
        sharding=sharding,
        shard_degree=shard,
        replicas=replicas,
        reshard_after_forward=_reshards(keys, pipeline=pipeline),
        context_communication=_context_communication(keys),
    )
    _note_loss(keys, notes, tensor=tensor)
    return layout, schedule


def grouped(layout: Parallelism, keys: TitanKeys, *, micro_batches: int) -> Parallelism:
    """The layout with the groups in which an interleaved schedule takes the micro batches of a run.

    Raises `BatchIndivisible` for a number that PyTorch refuses (torch/distributed/pipelining/schedules.py).
    """
    if layout.pipeline == 1:
        return layout
    known = _named(keys)
    stages = layout.pipeline * layout.virtual_pipeline
    rounds = max(1, micro_batches // layout.pipeline) if known.needs is Needs.ROUNDS else 1
    each, rest = divmod(micro_batches, rounds)
    place = keys.place(
        "parallelism.num_pp_microbatches" if keys.raw("parallelism.num_pp_microbatches") else MICRO_BATCH
    )
    if known.needs is Needs.STAGES and micro_batches < stages:
        message = f"{micro_batches} micro batches for {stages} pipeline stages"
        raise BatchIndivisible(message, place=place, expected=f"{stages} micro batches or more")
    if rest:
        message = f"{micro_batches} micro batches over {layout.pipeline} pipeline ranks are no {rounds} equal rounds"
        raise BatchIndivisible(message, place=place, expected=f"{each * rounds}, or a multiple of {layout.pipeline}")
    return replace(layout, micro_batch_group=each) if known.schedule in _IN_GROUPS else layout


def world(layout: Parallelism, *, shard: int | None) -> int | None:
    """Devices of the run, which TorchTitan compares with the product of all degrees; None where one is inferred."""
    if shard is None:
        return None
    return layout.tensor * layout.pipeline * layout.context * shard * layout.replicas


def stated_shards(keys: TitanKeys) -> int | None:
    """`data_parallel_shard_degree`, None for -1: what is left of the cluster."""
    key = "parallelism.data_parallel_shard_degree"
    value = keys.raw(key)
    if value is None or (value == -1 and not isinstance(value, bool)):
        return None
    return keys.integer(key, 1, minimum=1, maximum=MAXIMUM_DEGREE)


def _degree(keys: TitanKeys, key: str) -> int:
    return keys.integer(key, 1, minimum=1, maximum=MAXIMUM_DEGREE)


def _sharding(keys: TitanKeys, notes: Notes, *, context: int) -> tuple[Sharding, int | None, int]:
    """What data parallelism divides, over how many ranks if stated, in how many copies.

    Weights are sharded over data- and context-parallel ranks together (torchtitan/distributed/parallel_dims.py).
    """
    shards, replicas = stated_shards(keys), _degree(keys, "parallelism.data_parallel_replicate_degree")
    kind = keys.choice("training.data_parallel_type", "fsdp", ("fsdp", "ddp"))
    if kind == "ddp" or (shards == 1 and context == 1):
        return Sharding.NONE, None, replicas
    if replicas > 1 and shards is None:
        notes.assume(
            f"hybrid sharding with {replicas} copies",
            f"{keys.place('parallelism.data_parallel_replicate_degree')}; the shard degree is what is left of the GPUs",
        )
    return Sharding.PARAMETERS, None if shards is None else shards * context, replicas


def _expert_tensor(keys: TitanKeys, *, expert: int, tensor: int) -> int | None:
    """Tensor parallelism inside experts: 1 with expert parallelism unless stated, that of dense weights without."""
    key = "parallelism.expert_tensor_parallel_degree"
    stated = keys.integer(key, 1, minimum=1, maximum=MAXIMUM_DEGREE)
    if expert == 1:
        return None
    if stated not in {1, tensor}:
        raise LayoutImpossible(
            f"expert tensor parallel {stated} with tensor parallel {tensor}",
            place=keys.place(key),
            expected=f"1 or {tensor}",
        )
    return stated


def _reshards(keys: TitanKeys, *, pipeline: int) -> bool:
    """Whether weights are sharded again after forward; by default not with a pipeline (parallelize.py)."""
    policies = ("default", "always", "never")
    policy = keys.choice("parallelism.fsdp_reshard_after_forward", "default", policies)
    return pipeline == 1 if policy == "default" else policy == "always"


def _context_communication(keys: TitanKeys) -> str:
    methods = {"allgather": "all_gather", "alltoall": "p2p"}
    return methods[keys.choice("parallelism.context_parallel_rotate_method", "allgather", methods)]


def _note_loss(keys: TitanKeys, notes: Notes, *, tensor: int) -> None:
    if keys.boolean("parallelism.disable_loss_parallel") and tensor > 1:
        notes.not_modelled(
            "a loss over logits that every tensor-parallel rank holds whole",
            where=keys.place("parallelism.disable_loss_parallel"),
            effect=f"logits count as divided over {tensor} ranks",
            decides=True,
        )


def _pipeline(keys: TitanKeys, notes: Notes, *, layers: int, pipeline: int) -> tuple[Schedule | None, tuple[int, ...]]:
    """The schedule, and the decoder layers of each stage in the order of a forward pass; nothing without a pipeline."""
    known = _named(keys)
    stages = _stages(keys, layers=layers, pipeline=pipeline, chunks=known.chunks)
    if pipeline == 1:
        return None, ()
    if not known.exact:
        key = _TABLE if keys.text(_TABLE) else "parallelism.pipeline_parallel_schedule"
        notes.not_modelled(
            f"the pipeline schedule {keys.text(key)}",
            where=keys.place(key),
            effect=f"{known.schedule.value} stands in for it, whose bubbles and activations in flight differ",
            decides=True,
        )
    if len(stages) % pipeline:
        message = f"{len(stages)} stages do not divide over {pipeline} pipeline ranks"
        raise LayoutImpossible(message, place=keys.place("parallelism.pipeline_parallel_degree"))
    notes.assume(
        f"{len(stages)} pipeline stages of {', '.join(map(str, stages))} layers",
        "as TorchTitan of late 2025 splits a model: embedding and output layer count as layers of the first and last",
    )
    return known.schedule, stages


def _named(keys: TitanKeys) -> PipelineSchedule:
    """The schedule that the file names; raises `ConfigurationError` for one that is not known.

    One that a table of its own describes asks nothing, and interleaving stands in for a name that is not known.
    """
    key = "parallelism.pipeline_parallel_schedule"
    stated = keys.text(key, "1F1B")
    name = stated.lower().replace("_", "")
    known = _SCHEDULES.get(_OLD_SCHEDULES.get(name, name))
    if keys.text(_TABLE):
        return replace(known or _SCHEDULES["interleaved1f1b"], exact=False, needs=Needs.NOTHING)
    if known is None:
        raise ConfigurationError(
            f"{stated!r} is not known", place=keys.place(key), expected=f"one of {', '.join(_SCHEDULES)}"
        )
    return known


def _stages(keys: TitanKeys, *, layers: int, pipeline: int, chunks: int) -> tuple[int, ...]:
    """Decoder layers of each stage: as listed, from split points, or evenly."""
    parts = keys.raw("parallelism.module_fqns_per_model_part")
    points = keys.raw("parallelism.pipeline_parallel_split_points")
    weights = (
        keys.integer("parallelism.pipeline_parallel_first_stage_less_layers", 1, maximum=MAXIMUM_STAGES),
        keys.integer("parallelism.pipeline_parallel_last_stage_less_layers", 1, maximum=MAXIMUM_STAGES),
    )
    each = keys.integer("parallelism.pipeline_parallel_layers_per_stage", minimum=1, maximum=MAXIMUM_STAGES)
    if pipeline == 1:
        return ()
    if parts:
        return _listed(keys, parts, layers=layers)
    if points:
        return _between(keys, points, layers=layers)
    count = pipeline * chunks if each is None else ceil((layers + sum(weights)) / each)
    return _even(keys, count, layers=layers, weights=weights)


def _even(keys: TitanKeys, count: int, *, layers: int, weights: tuple[int, int]) -> tuple[int, ...]:
    """As `generate_llm_fqn_per_model_part` does: embedding and output layer weigh as much as some layers."""
    place = keys.place("parallelism.pipeline_parallel_degree")
    each, rest = divmod(layers + sum(weights), count)
    if count > MAXIMUM_STAGES or each < max(1, *weights):
        raise LayoutImpossible(
            f"{layers} layers do not fill {count} pipeline stages", place=place, expected="fewer stages"
        )
    sizes = [each + (number < rest) for number in range(count)]
    sizes[0] -= weights[0]
    sizes[-1] -= weights[1]
    return tuple(sizes)


def _listed(keys: TitanKeys, parts: object, *, layers: int) -> tuple[int, ...]:
    key = "parallelism.module_fqns_per_model_part"
    if not isinstance(parts, list) or not all(isinstance(part, list) for part in parts):
        keys.wrong(key, "a list of lists of module names")
    names = [[str(name) for name in part] for part in parts]
    indices = [[int(found.group(1)) for found in map(_LAYER.fullmatch, part) if found] for part in names]
    if [index for part in indices for index in part] != list(range(layers)):
        message = f"does not list the {layers} layers of the model once each, in order"
        raise LayoutImpossible(message, place=keys.place(key), expected=f"layers.0 to layers.{layers - 1}")
    return tuple(len(part) for part in indices)


def _between(keys: TitanKeys, points: object, *, layers: int) -> tuple[int, ...]:
    key = "parallelism.pipeline_parallel_split_points"
    stated = points.split(",") if isinstance(points, str) else points
    if not isinstance(stated, list) or len(stated) > MAXIMUM_STAGES:
        keys.wrong(key, "a list of module names, such as layers.8")
    ends = {"norm": layers, "output": layers}
    starts = []
    for point in stated:
        found = _LAYER.fullmatch(str(point).strip())
        start = int(found.group(1)) if found else ends.get(str(point).strip())
        if start is None or start > layers:
            raise ConfigurationError(
                f"{point!r} is no layer of the model", place=keys.place(key), expected="such as layers.8"
            )
        starts.append(start)
    bounds = [0, *starts, layers]
    if bounds != sorted(bounds):
        raise LayoutImpossible("the split points are not in order", place=keys.place(key))
    return tuple(after - before for before, after in pairwise(bounds))


def _layout_string(stages: tuple[int, ...]) -> str:
    """The stages in the notation of `Parallelism.pipeline_layout`."""
    return f"E{'|'.join(f't*{count}' if count else '' for count in stages)}L"
