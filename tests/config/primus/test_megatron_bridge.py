from typing import Any

import pytest

from projector import catalog
from projector.config import LoadedConfiguration, Source, read
from projector.config.primus.facts import framework_facts
from projector.errors import ConfigurationError, InputError, PresetUnknown
from projector.job import LowPrecision, RecomputeGranularity, Sharding
from tests.config.builders import experiment_text, load
from tests.config.primus_tree import ROOT, needs_tree

STATED: dict[str, Any] = {
    "tensor_model_parallel_size": 4,
    "pipeline_model_parallel_size": 1,
    "micro_batch_size": 1,
    "global_batch_size": 128,
    "seq_length": 2048,
}
"""What every public recipe states."""


def bridge_text(model: str = "qwen3_8b.yaml", **overrides: object) -> str:
    """A fine-tuning experiment for Megatron-Bridge, as the public recipes state it."""
    module = {
        "framework": "megatron_bridge",
        "config": "sft_trainer.yaml",
        "model": model,
        "overrides": {**STATED, **overrides},
    }
    return experiment_text(module, name="post_trainer")


def bridge(model: str = "qwen3_8b.yaml", **overrides: object) -> LoadedConfiguration:
    return load(bridge_text(model, **overrides))


MODELS = {
    "by its Hugging Face repository": ({}, "qwen3-8b"),
    "by the recipe function": ({"hf_path": None, "flavor": "llama31_70b_sft_config"}, "llama3.1-70b"),
    "by the function, for a copy of unknown name": ({"hf_path": "someone/qwen3-8b-copy"}, "qwen3-8b"),
    "by the longest beginning": ({"hf_path": None, "flavor": "deepseek_v2_lite_pretrain_config"}, "deepseek-v2-lite"),
}


@pytest.mark.parametrize(("overrides", "model"), MODELS.values(), ids=MODELS.keys())
def test_the_recipe_decides_the_model(overrides: dict[str, Any], model: str) -> None:
    loaded = bridge(**overrides, expert_model_parallel_size=1)
    assert loaded.job.model == catalog.model(model).architecture


def test_every_name_of_a_recipe_leads_to_the_catalog() -> None:
    for name in framework_facts("megatron_bridge").architectures.values():
        assert catalog.model(name).name == name


def test_arguments_are_those_of_megatron() -> None:
    job = bridge(
        peft="none",
        context_parallel_size=2,
        sequence_parallel=True,
        recompute_granularity="full",
        recompute_method="uniform",
        recompute_num_layers=1,
    ).job
    assert (job.parallelism.tensor, job.parallelism.context, job.parallelism.sequence_parallel) == (4, 2, True)
    assert (job.batch.micro, job.batch.global_, job.batch.sequence_length) == (1, 128, 2048)
    assert job.recompute.granularity is RecomputeGranularity.FULL
    assert job.parallelism.sharding is Sharding.OPTIMIZER
    assert job.precision.gradient_bytes == 4


def test_what_the_file_states_wins_over_what_recipes_set() -> None:
    loaded = bridge(use_distributed_optimizer=False, cross_entropy_loss_fusion=False)
    assert loaded.job.parallelism.sharding is Sharding.NONE
    assert loaded.values["use_distributed_optimizer"].source is Source.EXPERIMENT
    (note,) = [note for note in loaded.assumed if "recipe functions" in note.why]
    assert "use_distributed_optimizer" not in note.what
    assert "bf16 True" in note.what
    assert "no recomputation" in note.what


def test_a_function_of_the_presets_brings_its_own_values() -> None:
    loaded = bridge("qwen3_32b.yaml")
    assert loaded.job.recompute.granularity is RecomputeGranularity.FULL
    assert loaded.values["recompute_granularity"].source is Source.CATALOG
    mlperf = bridge("llama2_70b_lora_mxfp4.yaml", tensor_model_parallel_size=1)
    assert mlperf.job.precision.low_precision is LowPrecision.MXFP4
    assert bridge("qwen3_32b.yaml", recompute_granularity=None).job.recompute.granularity is RecomputeGranularity.NONE


ADAPTERS = {
    "stated": ({"peft": "lora", "peft_dim": 16}, 16),
    "of a fine-tuning function": ({}, 32),
    "of a function for adapters": ({"flavor": "qwen3_8b_peft_config"}, 32),
    "switched off by word": ({"peft": "none"}, None),
    "switched off by null": ({"peft": None}, None),
    "not in pre-training": ({"flavor": "qwen3_8b_pretrain_config"}, None),
    "not in full fine-tuning": ({"flavor": "qwen3_8b_sft_config"}, None),
}


@pytest.mark.parametrize(("overrides", "rank"), ADAPTERS.values(), ids=ADAPTERS.keys())
def test_adapters_are_those_of_the_recipe(overrides: dict[str, Any], rank: int | None) -> None:
    loaded = bridge(**overrides)
    adapters = loaded.job.adapters
    assert (None if adapters is None else adapters.rank) == rank
    assert "peft" not in loaded.ignored


@pytest.mark.parametrize(
    ("overrides", "what"), [({"peft": "dora"}, "DoRA"), ({"comm_overlap_config": "x"}, "comm_overlap_config 'x'")]
)
def test_what_a_recipe_adds_is_named(overrides: dict[str, Any], what: str) -> None:
    assert what in {note.what for note in bridge(**overrides).unmodelled}
    assert not {"DoRA", "comm_overlap_config None"} & {note.what for note in bridge().unmodelled}


@pytest.mark.parametrize(
    ("name", "low", "gradient"),
    [
        ("bf16_mixed", None, 4),
        ("bf16-mixed", None, 4),
        ("bf16_with_fp8_hybrid", LowPrecision.FP8, 4),
        ("bf16_with_mxfp8_mixed", LowPrecision.MXFP8, 4),
        ("bf16_with_fp8_subchannel_scaling_mixed", LowPrecision.FP8_BLOCK, 4),
        ("bf16_with_mxfp4_mixed", LowPrecision.MXFP4, 2),
    ],
)
def test_a_precision_is_what_its_name_stands_for(name: str, low: LowPrecision | None, gradient: int) -> None:
    precision = bridge(precision_config=name, peft="none").job.precision
    assert (precision.low_precision, precision.gradient_bytes) == (low, gradient)


REFUSED: dict[str, tuple[str, dict[str, object], type[InputError], str]] = {
    **{
        f"no {key}": ("qwen3_8b", {key: None}, ConfigurationError, f"{key}: is missing; state it: the recipe")
        for key in STATED
    },
    "no expert parallelism for a model of experts": (
        "qwen3_30b_a3b",
        {},
        ConfigurationError,
        "expert_model_parallel_size: is missing",
    ),
    "no recipe": ("qwen3_8b", {"flavor": None}, ConfigurationError, "flavor: is missing"),
    "a recipe of another model": (
        "qwen3_8b",
        {"hf_path": None, "flavor": "olmoe_7b_sft_config"},
        PresetUnknown,
        "flavor: the catalog has no model for the recipe 'olmoe_7b_sft_config'",
    ),
    "an unknown precision": (
        "qwen3_8b",
        {"precision_config": "bf16_mixd"},
        ConfigurationError,
        "precision_config: 'bf16_mixd' is not known; did you mean bf16_mixed",
    ),
    "an unknown adapter": ("qwen3_8b", {"peft": "loro"}, ConfigurationError, "peft: 'loro' is not known"),
    "a wrong degree": ("qwen3_8b", {"tensor_model_parallel_size": 0}, ConfigurationError, "an integer of at least 1"),
}


@pytest.mark.parametrize(("model", "overrides", "kind", "complaint"), REFUSED.values(), ids=REFUSED.keys())
def test_what_only_the_recipe_function_knows_is_asked_for(
    model: str, overrides: dict[str, object], kind: type[InputError], complaint: str
) -> None:
    with pytest.raises(kind, match=complaint):
        bridge(model, **overrides)


def test_keys_are_ignored_by_name_or_reported() -> None:
    loaded = bridge(finetune_lr=1.0e-4, packed_train_data_path="/data", seq_lenght=4096)
    assert {"finetune_lr", "packed_train_data_path"} <= set(loaded.ignored)
    (note,) = [note for note in loaded.unmodelled if note.what == "seq_lenght"]
    assert "did you mean seq_length" in note.effect


@needs_tree
@pytest.mark.parametrize("model", sorted(set(framework_facts("megatron_bridge").models) - {"mamba_130M"}))
def test_a_preset_of_the_tree_gives_the_job_of_the_catalog(model: str) -> None:
    text = bridge_text(model, expert_model_parallel_size=1)
    assert read(text, name="exp.yaml", primus_root=ROOT).job == load(text).job


@needs_tree
def test_the_catalog_has_every_preset_of_the_tree() -> None:
    files = {path.stem for path in (ROOT / "primus/configs/models/megatron_bridge").glob("*.yaml")}
    assert files == set(framework_facts("megatron_bridge").models)
