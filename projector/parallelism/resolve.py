"""From stated degrees to a checked `Layout`."""

from collections.abc import Iterator
from dataclasses import replace

from projector.errors import InputError, LayoutImpossible
from projector.job import (
    Attention,
    DenseMLP,
    Dialect,
    LatentAttention,
    MixtureOfExperts,
    Parallelism,
    Sharding,
    Target,
    TrainingJob,
    UnmodelledMLP,
)
from projector.parallelism import batch
from projector.parallelism.layout import Layout, Stage
from projector.parallelism.stages import PENDING_PER_STAGE, V_SHAPED, place

_DEGREES = {
    "pipeline": "pipeline_model_parallel_size",
    "context": "context_parallel_size",
    "expert": "expert_model_parallel_size",
    "tensor": "tensor_model_parallel_size",
}
"""Degrees that a layout which is too large may shrink, and how they are written."""
_MOST_DEGREES = 4096
"""Larger degrees are not looked for; no run has them."""


def resolve(job: TrainingJob, target: Target) -> Layout:
    """Check the job's layout against model and cluster, and resolve every degree.

    Raises `LayoutImpossible` when something does not divide and `BatchIndivisible` when the batch does not.
    """
    _check_degrees(job)
    _check_cluster(job, target)
    for what, size, degree, name in _divisions(job):
        if size % degree:
            raise LayoutImpossible(
                f"{size} {what} do not divide over {degree}", place=name, expected=f"a divisor of {size}"
            )
    _check_key_value_heads(job)
    stages = place(job)
    layout = _assemble(job, target, stages)
    _check_schedule(job, layout)
    return layout


def _check_degrees(job: TrainingJob) -> None:
    degrees = job.parallelism
    stated = {
        "tensor_model_parallel_size": degrees.tensor,
        "pipeline_model_parallel_size": degrees.pipeline,
        "virtual_pipeline_model_parallel_size": degrees.virtual_pipeline,
        "expert_model_parallel_size": degrees.expert,
        "expert_tensor_parallel_size": batch.expert_tensor_degree(degrees),
        "context_parallel_size": degrees.context,
        "micro_batch_size": job.batch.micro,
        "seq_length": job.batch.sequence_length,
    }
    for name, value in stated.items():
        if value < 1:
            raise LayoutImpossible(f"{value} is not a size", place=name, expected="1 or more")
    # A block that is not modelled may route tokens to experts; the verdict is unknown anyway.
    unknown = any(isinstance(layer.feed_forward, UnmodelledMLP) for layer in job.model.distinct_layers)
    if degrees.expert > 1 and not job.model.expert_blocks and not unknown:
        raise LayoutImpossible(
            f"expert parallel {degrees.expert} for a model without experts",
            place="expert_model_parallel_size",
            expected="1",
        )


def _check_cluster(job: TrainingJob, target: Target) -> None:
    degrees = job.parallelism
    if target.nodes < 1 or target.devices_per_node < 1:
        raise LayoutImpossible(
            f"{target.nodes} node(s) with {target.devices_per_node} GPU(s)", place="nodes", expected="at least 1 each"
        )
    if degrees.devices is not None and target.devices != degrees.devices:
        raise LayoutImpossible(
            f"{target.devices} GPUs ({target.nodes} x {target.devices_per_node}), and the degrees multiply to"
            f" {degrees.devices}",
            place="nodes",
            expected=f"{_whole_nodes(degrees.devices, target.devices_per_node)}, or data_parallel_shard_degree -1,"
            " which takes what the cluster leaves",
        )
    dense = degrees.tensor * degrees.pipeline * degrees.context
    experts = batch.expert_tensor_degree(degrees) * degrees.expert * degrees.pipeline
    groups = [("TP x PP x CP", dense)]
    if job.model.expert_blocks:
        groups.append(("ETP x EP x PP", experts))
    for name, size in groups:
        if target.devices % size:
            given = f"{target.devices} GPUs ({target.nodes} x {target.devices_per_node})"
            wrong = f"are not a multiple of {name} = {size}"
            if target.devices < size:
                wrong = f"are fewer than {name} = {size}, which one copy of the model takes"
            raise LayoutImpossible(f"{given} {wrong}", place="nodes", expected=_near(job, target))


def _near(job: TrainingJob, target: Target) -> str:
    """The numbers of nodes around the target that the layout fits, and layouts that the target fits."""
    fewest = batch.minimum_nodes(job, target.devices_per_node)
    below = target.nodes // fewest * fewest
    counts = " or ".join(
        f"{nodes} node(s) ({nodes * target.devices_per_node} GPUs)" for nodes in (below, below + fewest) if nodes
    )
    told = f"a multiple of {fewest} node(s), such as {counts}"
    smaller = " or ".join(f"{name} {degree}" for name, degree in _smaller_degrees(job, target))
    return f"{told}; on {target.devices} GPUs {smaller} would do" if smaller else told


def _smaller_degrees(job: TrainingJob, target: Target) -> Iterator[tuple[str, int]]:
    """Single degrees, smaller than stated, with which the job would run on the target as it is."""
    for field, name in _DEGREES.items():
        stated: int = getattr(job.parallelism, field)
        for degree in range(min(stated - 1, _MOST_DEGREES), 0, -1):
            parallelism: Parallelism = replace(job.parallelism, **{field: degree})  # type: ignore[arg-type]
            changed = replace(job, parallelism=parallelism)
            if stated % degree or target.devices % batch.replica_devices(changed):
                continue
            try:
                resolve(changed, target)
            except InputError:
                continue
            yield name, degree
            break


def _whole_nodes(devices: int, devices_per_node: int) -> str:
    return f"{devices} GPUs" if devices % devices_per_node else f"{devices // devices_per_node} node(s)"


def _divisions(job: TrainingJob) -> Iterator[tuple[str, int, int, str]]:
    """What must divide: (what, size, degree, option) for each distinct layer and for the sequence."""
    degrees = job.parallelism
    tensor, tensor_name = degrees.tensor, "tensor_model_parallel_size"
    for layer in job.model.distinct_layers:
        if isinstance(layer.mixer, Attention | LatentAttention):
            yield "attention heads", layer.mixer.heads, tensor, tensor_name
        if isinstance(layer.mixer, Attention) and layer.mixer.output_lora_rank is not None:
            yield "groups of heads", layer.mixer.output_groups, tensor, tensor_name
        if isinstance(layer.feed_forward, DenseMLP):
            yield "MLP columns", layer.feed_forward.ffn, tensor, tensor_name
        if isinstance(layer.feed_forward, MixtureOfExperts):
            experts, expert_tensor = layer.feed_forward, batch.expert_tensor_degree(degrees)
            yield "experts", experts.experts, degrees.expert, "expert_model_parallel_size"
            yield "expert columns", experts.expert_ffn, expert_tensor, "expert_tensor_parallel_size"
            yield "shared expert columns", experts.shared_ffn, tensor, tensor_name
    if job.model.multi_token_prediction_layers:
        yield "hidden columns", job.model.hidden, tensor, tensor_name
    if degrees.context_exchange:
        name = "hierarchical_context_parallel_sizes, the first"
        yield "context-parallel ranks", degrees.context, degrees.context_exchange, name
    sequence = job.batch.sequence_length
    if degrees.context > 1:
        yield "tokens of a sequence", sequence, 2 * degrees.context, "context_parallel_size (x 2, load balanced)"
    if degrees.sequence_parallel:
        yield "tokens of a sequence", sequence // degrees.context, tensor, f"{tensor_name} (sequence parallel)"


def _check_key_value_heads(job: TrainingJob) -> None:
    """Fewer key/value heads than tensor ranks are replicated; both must divide one way or the other."""
    tensor = job.parallelism.tensor
    for layer in job.model.distinct_layers:
        if isinstance(layer.mixer, Attention):
            heads = layer.mixer.key_value_heads
            if heads % tensor and tensor % heads:
                raise LayoutImpossible(
                    f"{heads} key/value heads and tensor parallel {tensor}: neither divides the other",
                    place="tensor_model_parallel_size",
                    expected=f"a divisor or multiple of {heads}",
                )


def _assemble(job: TrainingJob, target: Target, stages: tuple[Stage, ...]) -> Layout:
    degrees = job.parallelism
    expert_tensor = batch.expert_tensor_degree(degrees)
    data = target.devices // (degrees.tensor * degrees.pipeline * degrees.context)
    copies = target.devices // (expert_tensor * degrees.expert * degrees.pipeline)
    expert_data = copies if job.model.expert_blocks else data
    shard, expert_shard = _shard_degrees(job, data * degrees.context, expert_data)
    total = batch.global_batch(job, target, data)
    micro_batches = batch.micro_batches(total, job.batch.micro, data)
    return Layout(
        world=target.devices,
        devices_per_node=target.devices_per_node,
        tensor=degrees.tensor,
        pipeline=degrees.pipeline,
        virtual_pipeline=len(stages[0].chunks),
        micro_batch_group=degrees.micro_batch_group or degrees.pipeline,
        pending_micro_batches=degrees.pending_micro_batches or PENDING_PER_STAGE * degrees.pipeline,
        expert=degrees.expert,
        expert_tensor=expert_tensor,
        context=degrees.context,
        context_exchange=degrees.context_exchange or 1,
        pipeline_before_data=degrees.pipeline_before_data,
        data=data,
        expert_data=expert_data,
        sequence_parallel=degrees.sequence_parallel and degrees.tensor > 1,
        sharding=degrees.sharding,
        shard=shard,
        expert_shard=expert_shard,
        micro_batch=job.batch.micro,
        global_batch=total,
        micro_batches=micro_batches,
        pipeline_runs=batch.pipeline_runs(job, micro_batches, data),
        stages=stages,
        tied_across_stages=job.model.tied_embeddings and _table_on_two_ranks(stages),
    )


def _table_on_two_ranks(stages: tuple[Stage, ...]) -> bool:
    """Whether embedding and output layer sit on different pipeline ranks."""
    holders = {stage.rank for stage in stages for chunk in stage.chunks if chunk.embedding or chunk.output}
    return len(holders) > 1


def _shard_degrees(job: TrainingJob, dense: int, experts: int) -> tuple[int, int]:
    """Ranks that share sharded state, dense and expert; all that hold the same weights unless hybrid sharding."""
    if job.parallelism.sharding is Sharding.NONE:
        return 1, 1
    stated, replicas = job.parallelism.shard_degree, job.parallelism.replicas
    if stated is None:
        if replicas < 1 or dense % replicas:
            raise LayoutImpossible(
                f"{replicas} copies do not divide the {dense} ranks with the same weights",
                place="data_parallel_replicate_degree",
                expected=f"a divisor of {dense}",
            )
        stated = dense // replicas
    if stated == dense:
        return dense, experts
    if stated < 1 or dense % stated:
        raise LayoutImpossible(
            f"shard degree {stated} does not divide the {dense} ranks with the same weights",
            place="data_parallel_shard_degree",
            expected=f"a divisor of {dense}",
        )
    copies = dense // stated
    return stated, experts // copies if experts % copies == 0 else experts


def _check_schedule(job: TrainingJob, layout: Layout) -> None:
    if layout.virtual_pipeline == 1 or job.schedule in V_SHAPED:
        return
    if layout.pipeline == 1:
        raise LayoutImpossible(
            f"{layout.virtual_pipeline} model chunks without pipeline parallelism",
            place="virtual_pipeline_model_parallel_size",
            expected="pipeline_model_parallel_size above 1",
        )
    # Megatron-LM does not start with a group that leaves stages empty; PyTorch does with a single one.
    fills = layout.micro_batch_group >= layout.pipeline or job.software.dialect is Dialect.TORCHTITAN
    if fills and batch.groups_suit(layout.pipeline, layout.run_micro_batches, layout.micro_batch_group):
        return
    grouped = layout.micro_batch_group != layout.pipeline
    place = "microbatch_group_size_per_vp_stage" if grouped else "virtual_pipeline_model_parallel_size"
    raise LayoutImpossible(
        f"{layout.run_micro_batches} micro batches with pipeline parallel {layout.pipeline} and"
        f" {layout.virtual_pipeline} model chunks" + (f" in groups of {layout.micro_batch_group}" if grouped else ""),
        place=place,
        expected=f"a multiple of {layout.pipeline} micro batches (interleaved schedule), or groups of at least as many"
        f" of which the last has {layout.pipeline} or more",
    )
