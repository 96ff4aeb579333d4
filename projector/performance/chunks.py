"""What each model chunk takes, by kind of layer, and what ranks send each other between chunks."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from projector.costs import CostModel
from projector.job import Sharding, TrainingJob
from projector.layers import shapes_of
from projector.operations import CollectiveKind, Group
from projector.parallelism import Layout
from projector.performance.blocks import BlockTime
from projector.performance.passes import HOST, Traffic
from projector.performance.stages import BlockTimes
from projector.projection import ChunkPart, ChunkTime, LayerTime

_PURPOSES = {
    Group.TENSOR: "tensor parallelism",
    Group.CONTEXT: "context parallelism",
    Group.CONTEXT_INNER: "context parallelism, heads among neighbours",
    Group.CONTEXT_OUTER: "context parallelism, keys and values in a ring",
    Group.EXPERT: "tokens to experts",
    Group.EXPERT_TENSOR: "tensor parallelism of experts",
    Group.PIPELINE: "sends between stages",
    Group.EMBEDDING: "gradient of the shared token table",
}
Runs: TypeAlias = Sequence[tuple[int, BlockTime]]
"""Blocks, each with the number of equal ones that follow one another."""
_NEVER = 1e-12
"""Seconds that are rounding alone."""


def purpose(group: Group, kind: CollectiveKind, sharding: Sharding) -> str:
    """What the calls of a collective over a group are for."""
    if group in _PURPOSES:
        return _PURPOSES[group]
    if kind is CollectiveKind.ALL_GATHER:
        return "weights of sharded layers" if sharding is Sharding.PARAMETERS else "updated weights"
    return "gradients"


def transfers(job: TrainingJob, layout: Layout, costs: CostModel) -> tuple[float, ...]:
    """Seconds of sending the residual streams from each rank to the next, the last to the first."""
    if layout.pipeline == 1:
        return (0.0,)
    message = shapes_of(job, layout).carried_bytes
    ranks = range(layout.pipeline)
    return tuple(costs.network.shift_seconds(message, layout.following(rank)) for rank in ranks)


def sent(layout: Layout, rank: int, *, carried_bytes: int, exposed_seconds: float, exposure: float) -> Traffic:
    """All sends of a pipeline rank in an iteration, of which a share `exposure` takes `exposed_seconds`."""
    holders = {chunk.virtual_stage: stage.rank for stage in layout.stages for chunk in stage.chunks}
    own = [chunk.virtual_stage for chunk in layout.stages[rank].chunks]
    messages = sum(holders.get(stage + step, rank) != rank for stage in own for step in (-1, 1))
    return Traffic(
        message_bytes=carried_bytes * messages * layout.micro_batches,
        seconds=exposed_seconds / exposure,
        exposed_seconds=exposed_seconds,
    )


def chunk_times(layout: Layout, blocks: BlockTimes, chunks: Sequence[Sequence[BlockTime]]) -> tuple[ChunkTime, ...]:
    """Every model chunk, by stage: the parts that make up its passes in `chunks`, by rank."""
    return tuple(
        ChunkTime(
            stage=stage.rank,
            chunk=chunk.index,
            layer_ids=chunk.layer_ids,
            parts=tuple(_parts(blocks.runs(chunk), chunks[stage.rank][chunk.index])),
        )
        for stage in layout.stages
        for chunk in stage.chunks
    )


def _parts(runs: Runs, whole: BlockTime) -> Iterator[ChunkPart]:
    for name, held in _by_name(runs).items():
        yield ChunkPart(
            name=name,
            count=sum(count for count, _ in held),
            forward_seconds=sum(count * block.forward.seconds for count, block in held),
            backward_input_seconds=sum(count * block.backward_input.seconds for count, block in held),
            backward_weight_seconds=sum(count * block.backward_weight.seconds for count, block in held),
        )
    waits = ChunkPart(
        name=HOST,
        count=1,
        forward_seconds=whole.forward.parts.get(HOST, 0.0),
        backward_input_seconds=whole.backward_input.parts.get(HOST, 0.0),
        backward_weight_seconds=whole.backward_weight.parts.get(HOST, 0.0),
    )
    if waits.seconds > _NEVER:
        yield waits


def layer_times(layout: Layout, blocks: BlockTimes) -> tuple[LayerTime, ...]:
    """By kind of layer; the average where some layers of a kind are recomputed and others are not."""
    runs = [run for stage in layout.stages for chunk in stage.chunks for run in blocks.runs(chunk) if run[1].counts]
    return tuple(_average(name, held) for name, held in _by_name(runs).items())


def _average(name: str, runs: Runs) -> LayerTime:
    count = sum(number for number, _ in runs)
    return LayerTime(
        name=name,
        count=count,
        forward_seconds=sum(number * block.forward.seconds for number, block in runs) / count,
        backward_seconds=sum(number * block.backward.seconds for number, block in runs) / count,
    )


def _by_name(runs: Runs) -> dict[str, list[tuple[int, BlockTime]]]:
    kinds: dict[str, list[tuple[int, BlockTime]]] = {}
    for count, block in runs:
        kinds.setdefault(block.name, []).append((count, block))
    return kinds
