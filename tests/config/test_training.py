"""Element widths, optimizer and framework choices of a Primus module -> the parts of a `TrainingJob`."""

from dataclasses import replace
from typing import Any

import pytest

from projector.config.megatron.graphs import WHOLE_LAYER
from projector.errors import ConfigurationError
from projector.job import (
    CrossEntropy,
    Dialect,
    ExpertBackend,
    ExpertDispatch,
    GraphCapture,
    LowPrecision,
    Optimizer,
    OptimizerKind,
    Precision,
)
from tests.config.builders import MOE, flat_text, load

BF16 = Precision()
FP8 = Precision(low_precision=LowPrecision.FP8, delayed_scaling=True)
"""Transformer Engine's own recipe."""
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
        replace(BF16, gradient_bytes=2, master_weight_bytes=2, first_moment_bytes=2, second_moment_bytes=1),
    ),
    "precision-aware with whole master weights": (
        {**AWARE, "store_param_remainders": False},
        BF16,
    ),
    "precision-aware beside weights in fp8": (
        {**AWARE, "fp8": "e4m3", "fp8_param_gather": True},
        replace(FP8, low_precision_weights=True),
    ),
    "sgd": ({"optimizer": "sgd"}, replace(BF16, second_moment_bytes=0)),
    "fp8": ({"fp8": "hybrid"}, FP8),
    "fp8 by blocks with fp8 weights": (
        {"fp8": "e4m3", "fp8_recipe": "blockwise", "fp8_param_gather": True},
        replace(BF16, low_precision=LowPrecision.FP8_BLOCK, low_precision_weights=True),
    ),
    "mxfp8": (
        {"fp8": "e4m3", "fp8_recipe": "mxfp8"},
        replace(BF16, low_precision=LowPrecision.MXFP8),
    ),
    "mxfp4": (
        {"fp4": "e2m1", "fp4_recipe": "mxfp4"},
        replace(BF16, low_precision=LowPrecision.MXFP4),
    ),
    "a recipe without fp8": ({"fp8_recipe": "mxfp8"}, BF16),
}


@pytest.mark.parametrize(("values", "want"), PRECISIONS.values(), ids=PRECISIONS.keys())
def test_element_widths_are(values: dict[str, object], want: Precision) -> None:
    assert load(flat_text(**values)).job.precision == want


def test_the_optimizer_is() -> None:
    assert load(flat_text(optimizer="muon")).job.optimizer.kind is OptimizerKind.MUON
    aware = {"optimizer_cpu_offload": True, "use_precision_aware_optimizer": True}
    offloaded = load(flat_text(**aware, optimizer_offload_fraction=0.5)).job.optimizer
    assert offloaded == Optimizer(offload_fraction=0.5, master_in_state=True)


NOT_STARTED = {
    "an offloaded optimizer without the precision-aware one": (
        {"optimizer_cpu_offload": True},
        "optimizer_cpu_offload",
    ),
    **{
        f"{key} without the precision-aware optimizer": ({key: "bf16"}, key)
        for key in ("main_grads_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")
    },
    "fp16 master weights without the precision-aware optimizer": ({"main_params_dtype": "fp16"}, "main_params_dtype"),
    "experts under tensor parallelism without sequence parallelism": (
        {**MOE, "tensor_model_parallel_size": 2, "sequence_parallel": False},
        "sequence_parallel",
    ),
}


@pytest.mark.parametrize(("values", "place"), NOT_STARTED.values(), ids=NOT_STARTED.keys())
def test_what_megatron_asserts_against_is_refused_under_primus_too(values: dict[str, Any], place: str) -> None:
    with pytest.raises(ConfigurationError, match=place):
        load(flat_text(**values))


IDLE = {
    "use_turbo_deepep": ({"use_turbo_deepep": True, "enable_primus_turbo": True}, "the model has no experts"),
    "turbo_sync_free_moe_stage": ({"turbo_sync_free_moe_stage": 3}, "the model has no experts"),
    "use_turbo_deepep without Turbo": ({**MOE, "use_turbo_deepep": True}, "enable_primus_turbo is off"),
    "optimizer_offload_fraction": ({"optimizer_offload_fraction": 0.5}, "optimizer_cpu_offload is off"),
    "recompute_layer_ids": ({"recompute_layer_ids": [100]}, "no recompute_granularity"),
}


@pytest.mark.parametrize(("values", "why"), IDLE.values(), ids=IDLE.keys())
def test_what_has_no_effect_is_said(values: dict[str, Any], why: str) -> None:
    notes = [note for note in load(flat_text(**values)).assumed if note.what.endswith("has no effect")]
    assert [note.what.split()[0] for note in notes] == [key for key in values if key in ALONE]
    assert all(why in note.why for note in notes)


ALONE = ("use_turbo_deepep", "turbo_sync_free_moe_stage", "optimizer_offload_fraction", "recompute_layer_ids")
"""Keys that a case of `IDLE` states for nothing."""


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
    assert (on.dialect, on.expert_dispatch, on.expert_backend, on.permute_fusion) == (
        Dialect.PRIMUS_TURBO,
        ExpertDispatch.DEEPEP,
        ExpertBackend.GROUPED_FUSED,
        True,
    )
    loaded = load(flat_text(**TURBO), "enable_primus_turbo=false")
    off = loaded.job.software
    assert (off.dialect, off.expert_dispatch, off.expert_backend, off.permute_fusion) == (
        Dialect.MEGATRON_TE,
        ExpertDispatch.ALL_TO_ALL,
        ExpertBackend.GROUPED_LOOP,
        False,
    )
    assert loaded.values["enable_primus_turbo"].value is False


@pytest.mark.parametrize(
    ("overrides", "stacked"),
    [
        pytest.param((), True, id="Turbo's grouped linear layers"),
        pytest.param(("enable_primus_turbo=false",), False, id="Transformer Engine's"),
        pytest.param(("enable_primus_turbo=false", "moe_use_legacy_grouped_gemm=true"), True, id="GroupedMLP"),
        pytest.param(
            ("enable_primus_turbo=false", "moe_use_legacy_grouped_gemm=true", "moe_grouped_gemm=false"),
            False,
            id="one linear layer an expert",
        ),
    ],
)
def test_one_weight_holds_all_experts_in(overrides: tuple[str, ...], stacked: bool) -> None:  # noqa: FBT001 - a case
    assert load(flat_text(**TURBO), *overrides).job.software.stacked_experts is stacked


@pytest.mark.parametrize(("turbo", "stage"), [("true", 3), ("false", 0)])
def test_sync_free_stages_are_turbos(turbo: str, stage: int) -> None:
    loaded = load(flat_text(**TURBO), f"enable_primus_turbo={turbo}", "turbo_sync_free_moe_stage=3")
    assert loaded.job.software.sync_free_stage == stage


LOSSES: dict[str, tuple[dict[str, object], CrossEntropy]] = {
    "unfused": ({"cross_entropy_fusion_impl": "te"}, CrossEntropy.UNFUSED),
    "native": ({"cross_entropy_loss_fusion": True}, CrossEntropy.NATIVE_FUSED),
    "te": ({"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "te"}, CrossEntropy.TRANSFORMER_ENGINE),
    "linear": ({"enable_fused_linear_ce": True}, CrossEntropy.LINEAR_FUSED),
}


@pytest.mark.parametrize(("values", "want"), LOSSES.values(), ids=LOSSES.keys())
def test_the_loss_is_computed(values: dict[str, object], want: CrossEntropy) -> None:
    assert load(flat_text(**values)).job.software.cross_entropy is want


ENGINE, LOCAL, ITERATION = GraphCapture.TRANSFORMER_ENGINE, GraphCapture.LOCAL, GraphCapture.FULL_ITERATION
GRAPHED: dict[str, tuple[dict[str, object], tuple[str, ...], GraphCapture]] = {
    "off": ({}, (), ENGINE),
    "captured by Megatron-LM itself": ({"cuda_graph_impl": "local", "cuda_graph_scope": "attn"}, ("attn",), LOCAL),
    "named modules": (
        {"cuda_graph_impl": "transformer_engine", "cuda_graph_modules": ["attn", "mlp"]},
        ("attn", "mlp"),
        ENGINE,
    ),
    "the older name, as a text": (
        {"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": "attn"},
        ("attn",),
        ENGINE,
    ),
    "the oldest switch, without modules": ({"external_cuda_graph": True}, WHOLE_LAYER, ENGINE),
    "the oldest switch of its own graphs": ({"enable_cuda_graph": True}, WHOLE_LAYER, LOCAL),
    "an iteration": ({"cuda_graph_impl": "full_iteration"}, WHOLE_LAYER, ITERATION),
    "an iteration, as the older scope": (
        {"cuda_graph_impl": "local", "cuda_graph_scope": "full_iteration"},
        WHOLE_LAYER,
        ITERATION,
    ),
}


@pytest.mark.parametrize(("keys", "modules", "capture"), GRAPHED.values(), ids=GRAPHED)
def test_modules_in_cuda_graphs_are(keys: dict[str, object], modules: tuple[str, ...], capture: GraphCapture) -> None:
    """Megatron-LM transformer_config.py `cuda_graph_impl`, `cuda_graph_modules`."""
    loaded = load(flat_text(**keys))
    assert (loaded.job.software.graphed_modules, loaded.job.software.graph_capture) == (modules, capture)
    unknown = [note.where for note in loaded.unmodelled if "CUDA graphs" in note.what]
    assert bool(unknown) is (bool(modules) and capture is not ENGINE)


SAMPLES: dict[str, tuple[dict[str, object], bool]] = {
    "nothing": ({}, False),
    "packed, attention across samples": ({"enable_packed_sequences": True}, False),
    "packed, attention inside them": ({"enable_packed_sequences": True, "use_packed_attention": True}, True),
    "Megatron-LM's SFT": ({"sft": True}, True),
    "documents of pre-training": ({"dataloader_inter_document_masking": True}, True),
}


@pytest.mark.parametrize(("keys", "masks"), SAMPLES.values(), ids=SAMPLES)
def test_attention_stays_inside_samples_with(keys: dict[str, object], *, masks: bool) -> None:
    assert load(flat_text(**keys)).job.batch.masks_samples is masks


def test_graphs_of_an_unknown_kind_are_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"cuda_graph_impl.*foo.*none, transformer_engine, local"):
        load(flat_text(cuda_graph_impl="foo"))
