"""Layouts that divide neither model nor cluster are refused with place, value and remedy."""

from dataclasses import replace

import pytest

from projector.errors import LayoutImpossible
from projector.job import Dialect, ModelArchitecture, Parallelism, Schedule, Sharding
from projector.parallelism import resolve
from tests.layers.builders import DENSE, job, mixtral, model, target

THREE_GROUPS = model(
    (replace(DENSE, mixer=replace(DENSE.mixer, heads=12, key_value_heads=3)),) * 4  # type: ignore[type-var]
)

REFUSED: dict[str, tuple[ModelArchitecture, Parallelism, int, str]] = {
    "heads": (model(), Parallelism(tensor=3), 3, "64 attention heads do not divide over 3"),
    "key/value heads": (THREE_GROUPS, Parallelism(tensor=2), 2, "3 key/value heads and tensor parallel 2"),
    "experts": (mixtral(), Parallelism(expert=3), 3, "8 experts do not divide over 3"),
    "expert columns": (
        mixtral(),
        Parallelism(tensor=3, expert_tensor=3, sequence_parallel=False),
        3,
        "16384 expert columns do not divide over 3",
    ),
    "experts without experts": (model(), Parallelism(expert=2), 1, "expert parallel 2 for a model without experts"),
    "dense groups against the cluster": (
        model(),
        Parallelism(tensor=4, pipeline=4),
        1,
        r"8 GPUs \(1 x 8\) are fewer than TP x PP x CP = 16, .* multiple of 2 node.*, such as 2 node\(s\) \(16 GPUs\)",
    ),
    "expert groups against the cluster": (
        mixtral(),
        Parallelism(pipeline=4, expert=8),
        1,
        r"8 GPUs \(1 x 8\) are fewer than ETP x EP x PP = 32, .* multiple of 4 node.* as 4 node\(s\) \(32 GPUs\)",
    ),
    "dense groups against a larger cluster": (
        model(),
        Parallelism(tensor=4, pipeline=4),
        3,
        r"24 GPUs \(3 x 8\) are not a multiple of TP x PP x CP = 16; .*2 node\(s\) \(16 GPUs\) or 4 node.* \(32 GPUs\)",
    ),
    "what the cluster would hold": (
        model(),
        Parallelism(tensor=4, pipeline=4),
        1,
        "on 8 GPUs pipeline_model_parallel_size 2 or tensor_model_parallel_size 2 would do",
    ),
    "a degree beyond all clusters": (
        model(),
        Parallelism(tensor=1, pipeline=10**11),
        1,
        "8 GPUs .* fewer than TP x PP x CP = 100000000000",
    ),
    "sequence over context": (model(), Parallelism(context=8, sequence_parallel=False), 1, "4100 tokens .* over 16"),
    "chunks without stages": (model(), Parallelism(virtual_pipeline=2), 1, "2 model chunks without pipeline"),
    "interleaving with a partial group": (
        model(),
        Parallelism(pipeline=8, virtual_pipeline=2),
        1,
        "a multiple of 8 micro batches",
    ),
    "a degree of zero": (model(), Parallelism(tensor=0), 1, "0 is not a size"),
    "a shard that does not divide": (
        model(),
        Parallelism(sharding=Sharding.PARAMETERS, shard_degree=3),
        1,
        "shard degree 3 does not divide the 8 ranks",
    ),
}


@pytest.mark.parametrize(("architecture", "layout", "nodes", "complaint"), REFUSED.values(), ids=REFUSED)
def test_refused(architecture: ModelArchitecture, layout: Parallelism, nodes: int, complaint: str) -> None:
    sequence = 4100 if layout.context > 1 else 4096
    batch = 60 if layout.pipeline == 8 else 64
    with pytest.raises(LayoutImpossible) as caught:
        resolve(job(architecture, global_=batch, sequence=sequence, layout=layout), target(nodes=nodes))
    assert caught.value.place
    assert caught.match(complaint)


def test_megatron_takes_no_group_that_leaves_stages_empty() -> None:
    layout = Parallelism(pipeline=8, virtual_pipeline=2, micro_batch_group=4)
    megatron = job(model((DENSE,) * 16), global_=4, layout=layout)
    with pytest.raises(LayoutImpossible, match=r"4 micro batches with pipeline parallel 8 .* in groups of 4"):
        resolve(megatron, target())
    torch = replace(megatron, software=replace(megatron.software, dialect=Dialect.TORCHTITAN))
    assert resolve(torch, target()).micro_batch_group == 4


def test_a_v_shaped_schedule_needs_two_chunks() -> None:
    with pytest.raises(LayoutImpossible, match="2 chunks per stage"):
        resolve(job(layout=Parallelism(pipeline=8), schedule=Schedule.ZBV_GREEDY_MIN), target())


def test_fewer_key_value_heads_than_tensor_ranks_are_replicated() -> None:
    few = replace(DENSE.mixer, key_value_heads=2)  # type: ignore[type-var]
    layers = (replace(DENSE, mixer=few),) * 4
    assert resolve(job(model(layers), layout=Parallelism(tensor=8)), target()).tensor == 8
