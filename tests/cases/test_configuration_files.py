"""Layout strings as launch commands hand them over, and how files of Primus are put together."""

import shlex
from typing import Any

import pytest

from projector.errors import InputError, LayoutImpossible
from projector.projection import Projection
from tests.cases.asking import RECIPES, experiment, memory_of, recipe, text
from tests.config.primus_tree import needs_tree

TINY = {
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "vocab_size": 32_000,
    "micro_batch_size": 1,
    "global_batch_size": 256,
    "seq_length": 1024,
    "max_position_embeddings": 1024,
}
"""Arguments of Megatron-LM."""


def laid_out(layout: str, *, layers: int, predictions: int, pipeline: int, chunks: int | None = None) -> Projection:
    asked = {
        **TINY,
        "num_layers": layers,
        "mtp_num_layers": predictions,
        "pipeline_model_parallel_size": pipeline,
        "pipeline_model_parallel_layout": shlex.quote(layout),
        **({} if chunks is None else {"num_virtual_stages_per_pipeline_rank": chunks}),
    }
    flags = [f"--{key.replace('_', '-')} {value}" for key, value in asked.items()]
    command = f"torchrun --nproc_per_node 8 pretrain_gpt.py --bf16 {' '.join(flags)}"
    return text(command, name="run.sh", device="H100", performance=False)


STRINGS: dict[str, tuple[str, dict[str, int], int, list[int]]] = {
    "cfg_02 61 layers": (
        "Et|(tt|)*30mL",
        {"layers": 61, "predictions": 1, "pipeline": 8},
        4,
        [7, 8, 8, 8, 8, 8, 8, 6],
    ),
    "cfg_12 60 layers": (
        "E(|tt)*30,|mL",
        {"layers": 60, "predictions": 1, "pipeline": 8},
        4,
        [6, 8, 8, 8, 8, 8, 8, 6],
    ),
    "cfg_12 80 layers": (
        "Et*2|(t*2|)*34,t*3|(t*2|)*3,tL",
        {"layers": 80, "predictions": 0, "pipeline": 8},
        5,
        [10, 10, 10, 11, 10, 10, 10, 9],
    ),
    "cfg_12 43 layers": (
        "Et*10|t*12|t*12|t*9mL",
        {"layers": 43, "predictions": 1, "pipeline": 4},
        1,
        [10, 12, 12, 9],
    ),
    "cfg_12 commas and spaces": (
        " E t*10 |, t*12 | t*12, | t*9 m L ",
        {"layers": 43, "predictions": 1, "pipeline": 4},
        1,
        [10, 12, 12, 9],
    ),
}


@pytest.mark.parametrize(("layout", "sizes", "chunks", "layers"), STRINGS.values(), ids=STRINGS.keys())
def test_cfg_02_and_cfg_12_layout_strings_are_read(
    layout: str, sizes: dict[str, int], chunks: int, layers: list[int]
) -> None:
    answer = laid_out(layout, **sizes)
    assert answer.layout.virtual_pipeline == chunks
    assert [len(stage.layers) for stage in memory_of(answer).stages] == layers


def test_cfg_12_several_loss_stages_are_named() -> None:
    with pytest.raises(LayoutImpossible, match=r"has 4 loss \(L\) where the model has 1"):
        laid_out("E|(t|)*10m|m|m|LL|LL", layers=10, predictions=3, pipeline=8)


def test_cfg_12_a_wrong_number_of_layers_is_refused() -> None:
    with pytest.raises(LayoutImpossible, match=r"80 decoder layers .* where the model has 79"):
        laid_out("Et*2|(t*2|)*34,t*3|(t*2|)*3,tL", layers=79, predictions=0, pipeline=8)


def test_cfg_02_the_string_is_checked_against_the_stated_chunks() -> None:
    layout = "Et|(tt|)*30mL"
    assert laid_out(layout, layers=61, predictions=1, pipeline=8, chunks=4).layout.virtual_pipeline == 4
    with pytest.raises(LayoutImpossible, match="gives 4 chunks per stage, 2 are stated"):
        laid_out(layout, layers=61, predictions=1, pipeline=8, chunks=2)


FLASH_V4 = "MI355X/deepseek_v4_flash-BF16-pretrain.yaml"


def values(variables: dict[str, str]) -> dict[str, Any]:
    answer = recipe(FLASH_V4, device="MI355X", variables=variables, performance=False)
    return {each.key: each.value for each in answer.values}


@needs_tree
def test_cfg_10_a_variable_counts_only_when_it_differs_from_its_default() -> None:
    recipe_text = (RECIPES / FLASH_V4).read_text(encoding="utf-8")
    name, _, default = recipe_text.partition("${PRIMUS_")[2].partition("}")[0].partition(":")
    assert default
    unset, stated = values({}), values({f"PRIMUS_{name}": default})
    assert unset == stated


@needs_tree
def test_cfg_10_another_value_is_reflected_with_its_type() -> None:
    plain, other = values({}), values({"PRIMUS_SEQ_LENGTH": "2048"})
    assert other["seq_length"] == 2048
    assert {key for key in plain if plain[key] != other[key]} >= {"seq_length"}


@needs_tree
def test_cfg_10_the_recipe_wins_over_its_model_which_wins_over_the_base() -> None:
    answer = recipe("MI300X/deepseek_v3-BF16-pretrain.yaml", device="MI300X", performance=False)
    where = {each.key: each.source.value for each in answer.values}
    assert where["micro_batch_size"] == "experiment file"
    assert where["num_layers"] == "model preset"


def test_cfg_10_a_variable_without_value_and_default_is_an_error_that_names_the_key() -> None:
    with pytest.raises(InputError, match="UNSET_ANYWHERE") as caught:
        experiment({**TINY, "num_layers": 8, "seq_length": "${UNSET_ANYWHERE}"}, device="H100")
    assert "seq_length" in str(caught.value)


def test_cfg_10_a_null_default_is_null() -> None:
    answer = experiment({**TINY, "num_layers": 8, "recompute_granularity": "${RECOMPUTE:null}"}, device="H100")
    assert {each.key: each.value for each in answer.values}["recompute_granularity"] is None
