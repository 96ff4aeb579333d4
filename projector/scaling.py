"""A job on other clusters than the target: the smallest that holds its degrees, and tables over ever more nodes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from projector.errors import InputError
from projector.job import Scaling, Target, TrainingJob
from projector.parallelism import Layout, minimum_nodes, resolve
from projector.parallelism.batch import expert_tensor_degree
from projector.projection import (
    LayoutDifference,
    PerformanceProjection,
    ScaledTime,
    ScalingRow,
    ScalingTable,
    SmallestLayout,
    Verdict,
)

Answer: TypeAlias = tuple[Layout, PerformanceProjection, Verdict | None]
"""Layout, time and, where memory is asked for, verdict on one target."""


def smallest_layout(job: TrainingJob, target: Target, layout: Layout) -> SmallestLayout:
    """The fewest nodes that hold the degrees of a job that runs on a target."""
    nodes, smallest = _smallest(job, target, layout)
    return SmallestLayout(
        nodes=nodes,
        devices=smallest.world,
        data=smallest.data,
        micro_batches=smallest.micro_batches,
        global_batch=smallest.global_batch,
        why=_products(job, layout),
        differences=tuple(_differences(target, nodes, smallest, layout)),
    )


def _smallest(job: TrainingJob, target: Target, layout: Layout) -> tuple[int, Layout]:
    """Nodes and layout of the smallest cluster; the target itself where no smaller one works."""
    step = minimum_nodes(job, target.devices_per_node)
    for nodes in range(step, target.nodes, step):
        try:
            return nodes, resolve(job, replace(target, nodes=nodes))
        except InputError:  # a number of GPUs or shards that the file fixes
            continue
    return target.nodes, layout


def _products(job: TrainingJob, layout: Layout) -> str:
    dense = layout.tensor * layout.pipeline * layout.context
    told = f"TP {layout.tensor} x PP {layout.pipeline} x CP {layout.context} = {dense}"
    if job.model.expert_blocks:
        expert_tensor = expert_tensor_degree(job.parallelism)
        experts = expert_tensor * layout.expert * layout.pipeline
        told += f" and ETP {expert_tensor} x EP {layout.expert} x PP {layout.pipeline} = {experts}"
    return f"whole nodes of {layout.devices_per_node} GPUs, a multiple of {told}"


def _differences(target: Target, nodes: int, smallest: Layout, layout: Layout) -> Iterator[LayoutDifference]:
    copies = "devices / (TP x PP x CP): further copies of the model"
    grows = f"{target.scaling} scaling: sequences per copy stay"
    if target.scaling is Scaling.STRONG:
        grows = "the configuration states micro batches per copy, not a global batch"
    shared = "the global batch divided by micro batch x DP: more copies share it"
    for what, before, after, why in (
        ("nodes", nodes, target.nodes, "the target"),
        ("GPUs", smallest.world, layout.world, f"{target.devices_per_node} on each node"),
        ("DP", smallest.data, layout.data, copies),
        ("micro batches", smallest.micro_batches, layout.micro_batches, shared),
        ("global batch", smallest.global_batch, layout.global_batch, grows),
    ):
        if before != after:
            yield LayoutDifference(what=what, smallest=before, target=after, why=why)


def scaling_tables(
    nodes: Sequence[int], job: TrainingJob, target: Target, answer: Callable[[Target], Answer]
) -> tuple[ScalingTable, ...]:
    """Strong and weak scaling over the given nodes; one number stands for all powers of two times the fewest up to it.

    There is no strong scaling of a job that states micro batches per rank: its batch grows with the cluster in the run.
    """
    listed = _doubling(minimum_nodes(job, target.devices_per_node), nodes[0]) if len(nodes) == 1 else sorted(set(nodes))
    kinds = (Scaling.WEAK,) if job.batch.global_ is None else (Scaling.STRONG, Scaling.WEAK)
    return tuple(
        ScalingTable(scaling=scaling, rows=_rows(listed, replace(target, scaling=scaling), answer)) for scaling in kinds
    )


def _doubling(fewest: int, most: int) -> list[int]:
    found = [fewest]
    while found[-1] * 2 < most:
        found.append(found[-1] * 2)
    return [*(nodes for nodes in found if nodes < most), most]


def _rows(listed: Iterable[int], target: Target, answer: Callable[[Target], Answer]) -> tuple[ScalingRow, ...]:
    rows: list[ScalingRow] = []
    first: float | None = None
    for nodes in listed:
        at = replace(target, nodes=nodes)
        try:
            layout, performance, verdict = answer(at)
        except InputError as error:
            rows.append(
                ScalingRow(
                    nodes=nodes, devices=at.devices, refusal="; ".join(filter(None, (error.message, error.expected)))
                )
            )
            continue
        rate = performance.tokens_per_second_per_device
        first = rate if first is None else first
        time = ScaledTime(
            data=layout.data,
            micro_batches=layout.micro_batches,
            global_batch=layout.global_batch,
            iteration_seconds=performance.iteration_seconds,
            iteration_seconds_lower=performance.iteration_seconds_lower,
            iteration_seconds_upper=performance.iteration_seconds_upper,
            tokens_per_second_per_device=rate,
            efficiency=rate / first,
            verdict=verdict,
        )
        rows.append(ScalingRow(nodes=nodes, devices=at.devices, time=time))
    return tuple(rows)
