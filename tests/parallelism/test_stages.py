"""Layers land on the stages that the frameworks put them on."""

import pytest

from projector.errors import LayoutImpossible
from projector.job import Parallelism, Schedule
from projector.parallelism import resolve
from tests.layers.builders import DENSE, job, model, target

SPLITS = {
    "61 layers on 4 stages spread the remainder": (61, Parallelism(pipeline=4), [16, 15, 15, 15]),
    "a shorter last stage": (61, Parallelism(pipeline=8, last_stage_layers=5), [8] * 7 + [5]),
    "the default of Megatron-MoE-ModelZoo": (
        61,
        Parallelism(pipeline=16, first_stage_layers=4, last_stage_layers=1),
        [4] * 15 + [1],
    ),
    "the embedding takes a layer's place": (
        31,
        Parallelism(pipeline=4, embedding_counts_as_layer=True),
        [7, 8, 8, 8],
    ),
    "embedding and loss take a layer's place each": (
        30,
        Parallelism(pipeline=4, embedding_counts_as_layer=True, loss_counts_as_layer=True),
        [7, 8, 8, 7],
    ),
    "a layout string": (43, Parallelism(pipeline=4, pipeline_layout="Et*10|t*12|t*12|t*9L"), [10, 12, 12, 9]),
    "a layout string with two chunks per stage": (
        60,
        Parallelism(pipeline=16, pipeline_layout="E(|tt)*30,|L"),
        [2] + [4] * 14 + [2],
    ),
}


@pytest.mark.parametrize(("layers", "layout", "expected"), SPLITS.values(), ids=SPLITS)
def test_layers_per_stage(layers: int, layout: Parallelism, expected: list[int]) -> None:
    resolved = resolve(job(model((DENSE,) * layers), global_=64, layout=layout), target(nodes=8))
    assert [len(stage.layer_ids) for stage in resolved.stages] == expected
    everyone = sorted(layer for stage in resolved.stages for layer in stage.layer_ids)
    assert everyone == list(range(layers))


def test_virtual_stages_go_around_the_ranks() -> None:
    layout = Parallelism(pipeline=4, virtual_pipeline=2)
    resolved = resolve(job(model((DENSE,) * 16), layout=layout), target())
    assert [chunk.layer_ids for chunk in resolved.stages[1].chunks] == [(2, 3), (10, 11)]
    assert [chunk.virtual_stage for chunk in resolved.stages[1].chunks] == [1, 5]


def test_a_v_shaped_schedule_brings_the_last_layers_back_to_the_first_rank() -> None:
    layout = Parallelism(pipeline=4, virtual_pipeline=2)
    resolved = resolve(job(model((DENSE,) * 16), layout=layout, schedule=Schedule.ZBV_FORMATTED), target())
    first = resolved.stages[0]
    assert [chunk.layer_ids for chunk in first.chunks] == [(0, 1), (14, 15)]
    assert [(chunk.embedding, chunk.output) for chunk in first.chunks] == [(True, False), (False, True)]


def test_first_and_last_stage_hold_embedding_and_output() -> None:
    resolved = resolve(job(layout=Parallelism(pipeline=4)), target())
    flags = [(stage.chunks[0].embedding, stage.chunks[0].output) for stage in resolved.stages]
    assert flags == [(True, False), (False, False), (False, False), (False, True)]


def test_prediction_layers_sit_where_the_layout_string_says() -> None:
    text = "Et|(tt|)*30m|L"
    architecture = model((DENSE,) * 61, multi_token_prediction_layers=1)
    resolved = resolve(
        job(architecture, global_=66, layout=Parallelism(pipeline=11, pipeline_layout=text)),
        target(nodes=11, devices_per_node=1),
    )
    assert resolved.virtual_pipeline == 3
    last = resolved.stages[-1].chunks[-1]
    assert (last.mtp_layers, last.output) == (0, True)
    assert resolved.stages[-2].chunks[-1].mtp_layers == 1


REFUSED = {
    "more stages than layers": (Parallelism(pipeline=8), 4, "4 layers .* pipeline 8"),
    "a remainder that Megatron-LM refuses": (Parallelism(pipeline=4, spread_remainder=False), 61, "61 layers"),
    "a rest that does not divide": (Parallelism(pipeline=4, first_stage_layers=5), 16, "11 layers .* 3 other stages"),
    "no layer for the stages between the ends": (
        Parallelism(pipeline=8, first_stage_layers=8, last_stage_layers=8),
        16,
        "0 layers .* 6 other stages",
    ),
    "more layers at the ends than there are": (
        Parallelism(pipeline=2, first_stage_layers=9, last_stage_layers=9),
        16,
        "-2 layers",
    ),
    "chunks that do not divide a stated stage": (
        Parallelism(pipeline=4, virtual_pipeline=2, first_stage_layers=1),
        16,
        "1 layers .* 2 chunks",
    ),
    "ends and accounted embedding together": (
        Parallelism(pipeline=4, first_stage_layers=4, embedding_counts_as_layer=True),
        16,
        "together with account_for",
    ),
    "one decoder layer too few in the string": (
        Parallelism(pipeline=4, pipeline_layout="Et*10|t*12|t*12|t*8L"),
        43,
        "42 decoder layers .* 43",
    ),
    "several losses": (
        Parallelism(pipeline=4, pipeline_layout="E(t|)*10|LL|LL"),
        10,
        r"4 loss \(L\) where the model has 1",
    ),
    "stages that do not go around": (Parallelism(pipeline=4, pipeline_layout="Et|tt|t|L|"), 4, "must start with E"),
    "a number of stages that is no multiple": (
        Parallelism(pipeline=4, pipeline_layout="Et|tt|L"),
        3,
        "3 stages, not a multiple of pipeline parallel 4",
    ),
    "a string and another number of chunks": (
        Parallelism(pipeline=2, virtual_pipeline=3, pipeline_layout="Et|t|t|tL"),
        4,
        "2 chunks per stage, 3 are stated",
    ),
}


@pytest.mark.parametrize(("layout", "layers", "complaint"), REFUSED.values(), ids=REFUSED)
def test_an_impossible_split_is_refused_with_the_numbers_that_clash(
    layout: Parallelism, layers: int, complaint: str
) -> None:
    with pytest.raises(LayoutImpossible, match=complaint):
        resolve(job(model((DENSE,) * layers), layout=layout), target())
