"""Values of a Primus module -> the parts of a `TrainingJob`."""

from dataclasses import replace
from typing import Any

import pytest

from projector.config.primus.facts import UnmodelledKey, framework_facts
from projector.errors import ConfigurationError, InputError, LayoutImpossible
from projector.job import (
    Attention,
    CrossEntropy,
    DenseMLP,
    Dialect,
    ExpertBackend,
    ExpertDispatch,
    LatentAttention,
    LowPrecision,
    MixtureOfExperts,
    NormKind,
    Optimizer,
    OptimizerKind,
    PositionKind,
    Precision,
    Recompute,
    RecomputeGranularity,
    RecomputeMethod,
    Schedule,
    Sharding,
    UnmodelledMixer,
)
from tests.config.builders import experiment_text, flat_text, llama_text, load

MOE: dict[str, Any] = {"num_experts": 8, "moe_ffn_hidden_size": 512, "moe_router_topk": 2}

PATTERNS: dict[str, tuple[object, int, list[int]]] = {
    "every layer": (1, 4, [1, 1, 1, 1]),
    "every layer, as text": ("1", 4, [1, 1, 1, 1]),
    "every second": (2, 5, [1, 0, 1, 0, 1]),
    "every second, as text": ("2", 5, [1, 0, 1, 0, 1]),
    "three dense, then experts": ("([0]*3+[1]*58)", 61, [0] * 3 + [1] * 58),
    "a list": ([0, 1, 1, 0], 4, [0, 1, 1, 0]),
    "a pattern cut for a proxy": ("([0]*3+[1]*58)", 4, [0, 0, 0, 1]),
    "unstated": (None, 3, [1, 1, 1]),
    "one layer": ("([0]*1)", 1, [0]),
}


@pytest.mark.parametrize(("freq", "layers", "want"), PATTERNS.values(), ids=PATTERNS.keys())
def test_experts_stand_in_the_layers_of_moe_layer_freq(freq: object, layers: int, want: list[int]) -> None:
    loaded = load(flat_text(**MOE, moe_layer_freq=freq, num_layers=layers))
    got = [int(isinstance(layer.feed_forward, MixtureOfExperts)) for layer in loaded.job.model.layers]
    assert got == want


@pytest.mark.parametrize(
    "freq", ["range(8)", "[1].append(0)", "([0]*3+[1]*4)", "[2]*8", 0, "every", 1.5, "[0.5]*8", True]
)
def test_a_pattern_that_is_none_is_refused(freq: object) -> None:
    with pytest.raises(ConfigurationError, match=r"exp\.yaml: moe_layer_freq"):
        load(flat_text(**MOE, moe_layer_freq=freq))


def test_a_cut_pattern_is_said() -> None:
    loaded = load(flat_text(**MOE, moe_layer_freq="[1]*61"))
    assert any("first 8 of 61 entries of moe_layer_freq" in note.what for note in loaded.assumed)


def test_what_no_file_states_takes_the_defaults_of_megatron() -> None:
    model = load(flat_text(ffn_hidden_size=None)).job.model
    assert model.norm is NormKind.LAYER
    assert model.position is PositionKind.LEARNED
    assert model.tied_embeddings
    attention = Attention(heads=16, key_value_heads=16, head_dim=64, bias_qkv=True, bias_output=True)
    assert model.layers[0].mixer == attention
    assert model.layers[0].feed_forward == DenseMLP(ffn=4096, gated=False, bias=True)


def test_the_catalog_s_llama_is_the_public_one() -> None:
    model = load(llama_text()).job.model
    assert (len(model.layers), model.hidden, model.vocabulary, model.tied_embeddings) == (32, 4096, 128256, False)
    assert model.layers[0].mixer == Attention(heads=32, key_value_heads=8, head_dim=128)
    assert model.layers[0].feed_forward == DenseMLP(ffn=14336)


def test_the_catalog_s_deepseek_v3_is_the_public_one() -> None:
    loaded = load(experiment_text({"config": "pre_trainer", "model": "deepseek_v3"}))
    model = loaded.job.model
    experts = [layer.feed_forward for layer in model.layers if isinstance(layer.feed_forward, MixtureOfExperts)]
    assert (len(model.layers), len(experts), model.multi_token_prediction_layers) == (61, 58, 1)
    assert experts[0].experts == 256
    assert experts[0].router_balance_bias
    assert model.layers[0].mixer == LatentAttention(
        heads=128,
        query_lora_rank=1536,
        key_value_lora_rank=512,
        query_key_nope_dim=128,
        query_key_rope_dim=64,
        value_dim=128,
    )
    assert loaded.job.parallelism.expert == 8, "the Primus preset of the model states it"


VOCABULARIES: dict[str, tuple[dict[str, object], int, int]] = {
    "stated": ({"vocab_size": 1000}, 1000, 128),
    "stated for a null tokenizer": ({"vocab_size": 1000, "tokenizer_type": "NullTokenizer"}, 1001, 128),
    "padded by the person": ({"padded_vocab_size": 1024, "vocab_size": 1000}, 1024, 1),
    "of the tokenizer's model": ({"vocab_size": None, "tokenizer_model": "meta-llama/Llama-3.1-70B"}, 128256, 128),
    "of the tokenizer's type": ({"vocab_size": None, "tokenizer_type": "MixtralTokenizer"}, 32000, 128),
}


@pytest.mark.parametrize(("values", "vocabulary", "divisor"), VOCABULARIES.values(), ids=VOCABULARIES.keys())
def test_the_vocabulary_is(values: dict[str, object], vocabulary: int, divisor: int) -> None:
    job = load(flat_text(**values)).job
    assert (job.model.vocabulary, job.software.vocabulary_divisible_by) == (vocabulary, divisor)


def test_an_unknown_tokenizer_says_what_to_state() -> None:
    with pytest.raises(
        ConfigurationError, match=r"tokenizer_model: the vocabulary of 'me/mine' is not known; state vocab_size"
    ):
        load(flat_text(vocab_size=None, tokenizer_type="HuggingFaceTokenizer", tokenizer_model="me/mine"))


def test_where_the_vocabulary_comes_from_is_said() -> None:
    assert any("vocabulary 128256" in note.what for note in load(llama_text()).assumed)


PP: dict[str, Any] = {"pipeline_model_parallel_size": 4, "num_layers": 16}
CHUNKS: dict[str, tuple[dict[str, object], int]] = {
    "unstated": (PP, 1),
    "Primus's key": ({**PP, "virtual_pipeline_model_parallel_size": 2}, 2),
    "stages per rank": ({**PP, "num_virtual_stages_per_pipeline_rank": 4}, 4),
    "layers per stage": ({**PP, "num_layers_per_virtual_pipeline_stage": 2}, 2),
    "two spellings that agree": (
        {**PP, "num_virtual_stages_per_pipeline_rank": 2, "num_layers_per_virtual_pipeline_stage": 2},
        2,
    ),
    "without a pipeline": ({"num_virtual_stages_per_pipeline_rank": 4}, 1),
}


@pytest.mark.parametrize(("values", "want"), CHUNKS.values(), ids=CHUNKS.keys())
def test_model_chunks_per_stage_come_from_any_spelling(values: dict[str, object], want: int) -> None:
    assert load(flat_text(**values)).job.parallelism.virtual_pipeline == want


IMPOSSIBLE: dict[str, tuple[dict[str, object], str]] = {
    "contradiction": (
        {**PP, "num_virtual_stages_per_pipeline_rank": 2, "virtual_pipeline_model_parallel_size": 4},
        "contradict one another: .* gives 4, .* gives 2",
    ),
    "layers that do not divide": (
        {**PP, "num_layers_per_virtual_pipeline_stage": 3},
        "16 layers .* 4 stages x 3 layers",
    ),
    "heads that do not divide": ({"num_attention_heads": 15}, "hidden_size 1024 is not a multiple .* 15"),
}


@pytest.mark.parametrize(("values", "complaint"), IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_a_layout_that_contradicts_itself_is_refused(values: dict[str, object], complaint: str) -> None:
    with pytest.raises(LayoutImpossible, match=complaint):
        load(flat_text(**values))


def test_a_layout_string_is_handed_on_and_a_list_becomes_one() -> None:
    text = "Et*3|(tt|)*3,t*7|L"
    assert load(flat_text(**PP, pipeline_model_parallel_layout=text)).job.parallelism.pipeline_layout == text
    stages = [["embedding", "decoder"], ["decoder"], ["t"], ["decoder", "loss"]]
    assert load(flat_text(**PP, pipeline_model_parallel_layout=stages)).job.parallelism.pipeline_layout == "Et|t|t|tL"


SHARDING: dict[str, tuple[dict[str, object], Sharding]] = {
    "none": ({}, Sharding.NONE),
    "distributed optimizer": ({"use_distributed_optimizer": True}, Sharding.OPTIMIZER),
    "FSDP2": ({"use_torch_fsdp2": True, "use_distributed_optimizer": False}, Sharding.PARAMETERS),
    "Megatron-FSDP, ZeRO-2": (
        {"use_megatron_fsdp": True, "data_parallel_sharding_strategy": "optim_grads"},
        Sharding.GRADIENTS,
    ),
    "Megatron-FSDP, ZeRO-3": (
        {"use_custom_fsdp": True, "data_parallel_sharding_strategy": "optim_grads_params"},
        Sharding.PARAMETERS,
    ),
}


@pytest.mark.parametrize(("values", "want"), SHARDING.values(), ids=SHARDING.keys())
def test_sharding_is(values: dict[str, object], want: Sharding) -> None:
    assert load(flat_text(**values)).job.parallelism.sharding is want


NOTHING = Recompute()
FULL = RecomputeGranularity.FULL
RECOMPUTE: dict[str, tuple[dict[str, object], Recompute]] = {
    "nothing": ({}, NOTHING),
    "full of no layers": (
        {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 0},
        NOTHING,
    ),
    "block": (
        {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 2},
        Recompute(granularity=FULL, method=RecomputeMethod.BLOCK, layers=2),
    ),
    "uniform": (
        {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1},
        Recompute(granularity=FULL, method=RecomputeMethod.UNIFORM, layers=1),
    ),
    "no method": (
        {"recompute_granularity": "full", "recompute_num_layers": 3},
        Recompute(granularity=FULL, layers=3),
    ),
    "layers by text": (
        {"recompute_granularity": "full", "recompute_layer_ids": "0,3,7"},
        Recompute(granularity=FULL, layer_ids=(0, 3, 7)),
    ),
    "layers by list, some of a deeper model": (
        {"recompute_granularity": "full", "recompute_layer_ids": [3, 0, 60]},
        Recompute(granularity=FULL, layer_ids=(0, 3)),
    ),
    "one layer by text": (
        {"recompute_granularity": "full", "recompute_layer_ids": "5"},
        Recompute(granularity=FULL, layer_ids=(5,)),
    ),
    "selective": ({"recompute_granularity": "selective"}, Recompute(granularity=RecomputeGranularity.SELECTIVE)),
    "selective by flag": ({"recompute_activations": True}, Recompute(granularity=RecomputeGranularity.SELECTIVE)),
    "selective modules": (
        {"recompute_granularity": "selective", "recompute_modules": ["moe_act", "layernorm"]},
        Recompute(granularity=RecomputeGranularity.SELECTIVE, modules=("moe_act", "layernorm")),
    ),
    "counts without granularity": ({"recompute_method": "block", "recompute_num_layers": 2}, NOTHING),
}


@pytest.mark.parametrize(("values", "want"), RECOMPUTE.values(), ids=RECOMPUTE.keys())
def test_recomputation_is(values: dict[str, object], want: Recompute) -> None:
    assert load(flat_text(**values)).job.recompute == want


def test_full_recomputation_of_nothing_stated_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="recompute_granularity: full recomputation of no stated layers"):
        load(flat_text(recompute_granularity="full"))


PATCHED: dict[str, Any] = {**PP, "patch_zero_bubble": True, "enable_zero_bubble": True}
PRIMUS: dict[str, Any] = {**PP, "patch_primus_pipeline": True}
SCHEDULES: dict[str, tuple[dict[str, object], Schedule | None]] = {
    "enable_zero_bubble alone is nothing": ({**PP, "enable_zero_bubble": True}, None),
    "patched": (PATCHED, Schedule.ZERO_BUBBLE),
    "patched and not enabled": ({**PATCHED, "enable_zero_bubble": False}, None),
    "patched without a pipeline": ({**PATCHED, "pipeline_model_parallel_size": 1}, None),
    "V of half memory": ({**PATCHED, "zero_bubble_v_schedule": True}, Schedule.ZBV_GREEDY_HALF),
    "V of least memory": (
        {**PATCHED, "zero_bubble_v_schedule": True, "zero_bubble_v_schedule_mem_setup": "min"},
        Schedule.ZBV_GREEDY_MIN,
    ),
    "V": (
        {**PATCHED, "zero_bubble_v_schedule": True, "zero_bubble_v_schedule_mem_setup": "zb"},
        Schedule.ZBV_FORMATTED,
    ),
    "pp_algorithm alone is nothing": ({**PP, "pp_algorithm": "zbv-formatted"}, None),
    "Primus pipeline": ({**PRIMUS, "pp_algorithm": "zbv-formatted"}, Schedule.ZBV_FORMATTED),
    "Primus pipeline, heuristic": ({**PRIMUS, "pp_algorithm": "zero-bubble-heuristic"}, Schedule.ZERO_BUBBLE_HEURISTIC),
    "Primus pipeline, interleaved": (PRIMUS, None),
}


@pytest.mark.parametrize(("values", "want"), SCHEDULES.values(), ids=SCHEDULES.keys())
def test_the_schedule_is_the_one_that_really_runs(values: dict[str, object], want: Schedule | None) -> None:
    assert load(flat_text(**values)).job.schedule is want


BF16 = Precision()
AWARE: dict[str, object] = {"use_precision_aware_optimizer": True}
NARROW: dict[str, object] = {"main_grads_dtype": "bf16", "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "fp8"}
PRECISIONS: dict[str, tuple[dict[str, object], Precision]] = {
    "bf16": ({}, BF16),
    "fp32": (
        {"bf16": False},
        replace(BF16, weight_bytes=4, master_weight_bytes=0, activation_bytes=4),
    ),
    "gradients reduced in bf16": ({"grad_reduce_in_bf16": True}, replace(BF16, gradient_bytes=2)),
    "FSDP2": ({"use_torch_fsdp2": True}, replace(BF16, gradient_bytes=2)),
    "precision-aware": (
        {**AWARE, **NARROW},
        replace(BF16, gradient_bytes=2, first_moment_bytes=2, second_moment_bytes=1),
    ),
    "narrow types without the precision-aware optimizer": (NARROW, BF16),
    "sgd": ({"optimizer": "sgd"}, replace(BF16, second_moment_bytes=0)),
    "fp8": ({"fp8": "hybrid"}, replace(BF16, low_precision=LowPrecision.FP8, low_precision_recipe="delayed")),
    "fp8 by blocks with fp8 weights": (
        {"fp8": "e4m3", "fp8_recipe": "blockwise", "fp8_param_gather": True},
        replace(
            BF16, low_precision=LowPrecision.FP8_BLOCK, low_precision_recipe="blockwise", low_precision_weights=True
        ),
    ),
    "mxfp8": (
        {"fp8": "e4m3", "fp8_recipe": "mxfp8"},
        replace(BF16, low_precision=LowPrecision.MXFP8, low_precision_recipe="mxfp8"),
    ),
    "mxfp4": (
        {"fp4": "e2m1", "fp4_recipe": "mxfp4"},
        replace(BF16, low_precision=LowPrecision.MXFP4, low_precision_recipe="mxfp4"),
    ),
    "a recipe without fp8": ({"fp8_recipe": "mxfp8"}, BF16),
}


@pytest.mark.parametrize(("values", "want"), PRECISIONS.values(), ids=PRECISIONS.keys())
def test_element_widths_are(values: dict[str, object], want: Precision) -> None:
    assert load(flat_text(**values)).job.precision == want


def test_the_optimizer_is() -> None:
    assert load(flat_text(optimizer="muon")).job.optimizer.kind is OptimizerKind.MUON
    offloaded = load(flat_text(optimizer_cpu_offload=True, optimizer_offload_fraction=0.5)).job.optimizer
    assert offloaded == Optimizer(offload_fraction=0.5)


TURBO: dict[str, Any] = {
    **MOE,
    "enable_primus_turbo": True,
    "use_turbo_deepep": True,
    "use_turbo_grouped_gemm": True,
    "turbo_sync_free_moe_stage": 1,
    "moe_grouped_gemm": True,
    "moe_token_dispatcher_type": "alltoall",
}


def test_turbo_features_are_on_with_the_master_switch_and_off_without() -> None:
    on = load(flat_text(**TURBO)).job.software
    assert (on.dialect, on.expert_dispatch, on.expert_backend, on.sync_free_stage) == (
        Dialect.PRIMUS_TURBO,
        ExpertDispatch.DEEPEP,
        ExpertBackend.GROUPED_FUSED,
        1,
    )
    loaded = load(flat_text(**TURBO), "enable_primus_turbo=false")
    off = loaded.job.software
    assert (off.dialect, off.expert_dispatch, off.expert_backend, off.sync_free_stage) == (
        Dialect.MEGATRON_TE,
        ExpertDispatch.ALL_TO_ALL,
        ExpertBackend.GROUPED_LOOP,
        0,
    )
    assert loaded.values["enable_primus_turbo"].value is False


LOSSES: dict[str, tuple[dict[str, object], CrossEntropy]] = {
    "unfused": ({"cross_entropy_fusion_impl": "te"}, CrossEntropy.UNFUSED),
    "native": ({"cross_entropy_loss_fusion": True}, CrossEntropy.NATIVE_FUSED),
    "te": ({"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "te"}, CrossEntropy.TRANSFORMER_ENGINE),
    "linear": ({"enable_fused_linear_ce": True}, CrossEntropy.LINEAR_FUSED),
}


@pytest.mark.parametrize(("values", "want"), LOSSES.values(), ids=LOSSES.keys())
def test_the_loss_is_computed(values: dict[str, object], want: CrossEntropy) -> None:
    assert load(flat_text(**values)).job.software.cross_entropy is want


MIXERS: dict[str, tuple[dict[str, object], str, list[int]]] = {
    "gated delta net": (
        {"experimental_attention_variant": "gated_delta_net", "linear_attention_freq": 4},
        "gated delta net",
        [1, 1, 1, 0, 1, 1, 1, 0],
    ),
    "Kimi linear pattern": (
        {"experimental_attention_variant": "kda", "linear_attention_freq": "([1]*3+[0])*2"},
        "kda",
        [1, 1, 1, 0, 1, 1, 1, 0],
    ),
    "short convolutions": (
        {"lfm_layer_types": ["conv", "full_attention"] * 4},
        "LFM2 short convolution",
        [1, 0] * 4,
    ),
    "mamba": ({"model_type": "mamba"}, "Mamba", [1] * 8),
    "a hybrid stack": ({"model_type": "mamba", "spec": ["m", "gdn_hybrid_stack_spec"]}, "GDN", [1] * 8),
    "DeepSeek-V4": ({"model_type": "deepseek_v4"}, "DeepSeek-V4", [1] * 8),
}


@pytest.mark.parametrize(("values", "name", "want"), MIXERS.values(), ids=MIXERS.keys())
def test_layers_that_cannot_be_modelled_are_named(values: dict[str, object], name: str, want: list[int]) -> None:
    mixers = [layer.mixer for layer in load(flat_text(**values)).job.model.layers]
    assert [int(isinstance(mixer, UnmodelledMixer)) for mixer in mixers] == want
    assert all(name in mixer.name for mixer in mixers if isinstance(mixer, UnmodelledMixer))


def test_lora_decides_and_is_silent_when_off() -> None:
    assert any("LoRA" in note.what and note.decides for note in load(llama_text(lora={"enabled": True})).unmodelled)
    assert load(llama_text(lora={"enabled": False, "dim": 3})).unmodelled == ()


@pytest.mark.parametrize("fact", framework_facts().unmodelled, ids=lambda fact: fact.key)
def test_a_key_that_is_not_modelled_is_silent_only_at_its_neutral_values(fact: UnmodelledKey) -> None:
    def notes(value: object) -> list[str]:
        tree: Any = value
        for part in reversed(fact.key.split(".")):
            tree = {part: tree}
        return [note.what for note in load(flat_text(**tree)).unmodelled if fact.what in note.what]

    for neutral in (*fact.neutral, None):
        assert notes(neutral) == []
    other: object = "custom" if fact.key == "fp8_recipe" else 7
    assert len(notes(other)) == 1


MISSING = ["num_layers", "hidden_size", "num_attention_heads", "micro_batch_size", "global_batch_size", "seq_length"]


@pytest.mark.parametrize("key", MISSING)
def test_a_size_that_nothing_states_is_asked_for(key: str) -> None:
    with pytest.raises(InputError, match=f"{key}: is missing"):
        load(flat_text(**{key: None}))
