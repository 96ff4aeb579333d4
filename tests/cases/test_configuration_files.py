"""Files that people brought, as far as a Primus file can say what they say."""

from typing import Any

import pytest

from projector.errors import InputError, LayoutImpossible
from projector.projection import Projection, Verdict
from tests.cases.asking import RECIPES, experiment, memory_of, recipe
from tests.config.primus_tree import needs_tree

LUMI_71B = {
    "num_layers": 80,
    "hidden_size": 8192,
    "ffn_hidden_size": 28672,
    "num_attention_heads": 64,
    "group_query_attention": True,
    "num_query_groups": 8,
    "swiglu": True,
    "normalization": "RMSNorm",
    "position_embedding_type": "rope",
    "untie_embeddings_and_output_weights": True,
    "add_bias_linear": False,
    "vocab_size": 128_000,
    "seq_length": 5120,
    "micro_batch_size": 1,
    "global_batch_size": 1024,
    "tensor_model_parallel_size": 8,
    "pipeline_model_parallel_size": 8,
    "num_layers_per_virtual_pipeline_stage": 2,
    "sequence_parallel": True,
    "bf16": True,
    "recompute_activations": True,
    "use_distributed_optimizer": True,
    "attention_backend": "flash",
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
}
"""Arguments of LumiOpen/Megatron-LM-lumi e0ce1d99 launch_71B_1024N.sh; its vocabulary is not in the script."""


def lumi() -> Projection:
    return experiment(LUMI_71B, device="MI250X", nodes=1024, performance=False)


def test_cfg_01_layers_per_virtual_stage_are_no_number_of_stages() -> None:
    answer = lumi()
    assert (answer.layout.virtual_pipeline, answer.layout.data, answer.micro_batches) == (5, 128, 8)
    assert memory_of(answer).device_capacity_bytes == pytest.approx(64 * 2**30, rel=0.01)


@pytest.mark.xfail(
    strict=True, reason="nothing public says what the runtime and its communicators take of an MI250X die"
)
def test_cfg_01_a_71b_model_on_8192_dies_fits() -> None:
    assert memory_of(lumi()).verdict is Verdict.FITS


TINY = {
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "vocab_size": 32_000,
    "micro_batch_size": 1,
    "global_batch_size": 256,
    "seq_length": 1024,
    "bf16": True,
}


def laid_out(layout: str, *, layers: int, predictions: int, pipeline: int) -> Projection:
    asked = {
        **TINY,
        "num_layers": layers,
        "mtp_num_layers": predictions,
        "pipeline_model_parallel_size": pipeline,
        "pipeline_model_parallel_layout": layout,
    }
    return experiment(asked, device="H100", performance=False)


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


@pytest.mark.parametrize(("text", "sizes", "chunks", "layers"), STRINGS.values(), ids=STRINGS.keys())
def test_cfg_02_and_cfg_12_layout_strings_are_read(
    text: str, sizes: dict[str, int], chunks: int, layers: list[int]
) -> None:
    answer = laid_out(text, **sizes)
    assert answer.layout.virtual_pipeline == chunks
    assert [len(stage.layers) for stage in memory_of(answer).stages] == layers


def test_cfg_12_several_loss_stages_are_named() -> None:
    with pytest.raises(LayoutImpossible, match=r"has 4 loss \(L\) where the model has 1"):
        laid_out("E|(t|)*10m|m|m|LL|LL", layers=10, predictions=3, pipeline=8)


def test_cfg_12_a_wrong_number_of_layers_is_refused() -> None:
    with pytest.raises(LayoutImpossible, match=r"80 decoder layers .* where the model has 79"):
        laid_out("Et*2|(t*2|)*34,t*3|(t*2|)*3,tL", layers=79, predictions=0, pipeline=8)


def test_cfg_02_the_string_is_checked_against_the_stated_chunks() -> None:
    with pytest.raises(LayoutImpossible):
        experiment(
            {
                **TINY,
                "num_layers": 61,
                "mtp_num_layers": 1,
                "pipeline_model_parallel_size": 8,
                "virtual_pipeline_model_parallel_size": 2,
                "pipeline_model_parallel_layout": "Et|(tt|)*30mL",
            },
            device="H100",
        )


DEEPSEEK_V3_ON_H100 = {
    # yanring/Megatron-MoE-ModelZoo e8650517 best_practice/deepseek-v3/run_deepseek_v3_h100.sh and its benchmark model.
    "tensor_model_parallel_size": 2,
    "pipeline_model_parallel_size": 8,
    "expert_model_parallel_size": 64,
    "expert_tensor_parallel_size": 1,
    "sequence_parallel": True,
    "pipeline_model_parallel_layout": "Et|(tt|)*30mL",
    "mtp_num_layers": 1,
    "micro_batch_size": 1,
    "global_batch_size": 8192,
    "seq_length": 4096,
    "fp8": "e4m3",
    "fp8_recipe": "blockwise",
    "fp8_param_gather": True,
    "recompute_granularity": "selective",
    "recompute_modules": ["mla_up_proj", "mlp"],
    "use_precision_aware_optimizer": True,
    "main_grads_dtype": "fp32",
    "exp_avg_dtype": "bf16",
    "exp_avg_sq_dtype": "bf16",
    "moe_router_force_load_balancing": True,
    "moe_token_dispatcher_type": "flex",
    "moe_enable_deepep": True,
    "moe_permute_fusion": True,
    "cross_entropy_loss_fusion": True,
    "cross_entropy_fusion_impl": "te",
}


def test_cfg_02_deepseek_v3_on_1024_h100_runs() -> None:
    answer = experiment(DEEPSEEK_V3_ON_H100, model="deepseek_v3.yaml", device="H100", nodes=128, performance=False)
    assert (answer.layout.data, answer.micro_batches, answer.layout.virtual_pipeline) == (64, 128, 4)
    assert memory_of(answer).verdict is Verdict.FITS


FLASH_V4 = "MI355X/deepseek_v4_flash-BF16-pretrain.yaml"


def values(variables: dict[str, str]) -> dict[str, Any]:
    answer = recipe(FLASH_V4, device="MI355X", variables=variables, performance=False)
    return {each.key: each.value for each in answer.values}


@needs_tree
def test_cfg_10_a_variable_counts_only_when_it_differs_from_its_default() -> None:
    text = (RECIPES / FLASH_V4).read_text(encoding="utf-8")
    name, _, default = text.partition("${PRIMUS_")[2].partition("}")[0].partition(":")
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
