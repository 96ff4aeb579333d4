"""What rows say of graphs, containers and the binding of processes becomes what the engine takes."""

from typing import Any

import pytest

from projector.job import GraphCapture
from tests.accuracy.containers import GUIDE, captures_iterations, containers
from tests.accuracy.rows import Row

EXPERTS = {"moe": {"experts": 128, "topk": 8, "expert_ffn": 768}}
PARTIAL = ("attn", "moe_router", "moe_preprocess")


def row(framework: str = "", **columns: Any) -> Row:  # noqa: ANN401 - any column
    usual: dict[str, Any] = {
        "id": "one",
        "source": "any",
        "group": "any",
        "use": "time",
        "score": None,
        "model": EXPERTS,
        "hardware": "GB200",
        "devices": 8,
        "parallel": {},
        "train": {},
        "measured": {},
        "peers": {},
    }
    return Row(framework=framework, **{**usual, **columns})


VERSIONS = {
    "stated": ("Megatron-LM 23e00ed0, TE 2.11, torch 2.10 (NGC 26.01)", "2.11"),
    "of the container's month": ("Megatron-Bridge, NeMo container 26.04.01", "2.14"),
    "of the year before": ("Megatron-Bridge, NeMo container 25.09", "2.7"),
    "by the date of the repository": ("Megatron-Bridge 2026-08", "2.18"),
    "older than version 2": ("NeMo 24.07-24.12 (NeMo 1)", None),
    "of the branch with HybridEP": ("Megatron-Core dev", "2.10"),
    "of another framework": ("Primus-Megatron v25.10, ROCm 7.1, torch 2.9", None),
}


def test_the_guide_merges_the_casts_of_experts_from_its_fused_swizzles_on() -> None:
    steps = ("+ process-to-NUMA binding", "+ PDL, swizzle fusion, shared expert in the graph", "+ HybridEP")
    found = [containers(row(source=GUIDE, notes=step), sync_free=False) for step in steps]
    assert [each["transformer_engine"] for each in found] == ["2.7", "2.8", "2.8"]


@pytest.mark.parametrize(("framework", "version"), VERSIONS.values(), ids=VERSIONS)
def test_a_container_has_a_version_of_transformer_engine(framework: str, version: str | None) -> None:
    assert containers(row(framework), sync_free=False)["transformer_engine"] == version


STATES: dict[str, tuple[Row, tuple[str, ...], bool]] = {
    "a recipe": (
        row(
            "Megatron-Bridge, NeMo container 26.04.01",
            recipe={
                "cuda_graph_impl": "transformer_engine",
                "cuda_graph_scope": '["attn", "moe_router", "moe_preprocess"]',
            },
        ),
        PARTIAL,
        True,
    ),
    "a scope that nobody captures": (
        row("Megatron-Bridge, NeMo container 26.04.01", recipe={"cuda_graph_scope": "[]"}),
        (),
        True,
    ),
    "words": (
        row("Megatron-Core dev", notes="TE CUDA graphs (attention, router, preprocess), forced balance"),
        PARTIAL,
        False,
    ),
    "words of the extra column": (
        row("Megatron-Bridge 2026-08", train={"extra": "HybridEP, CUDA graphs on router and preprocess"}),
        PARTIAL[1:],
        True,
    ),
    "the first step of the guide": (row(source=GUIDE, notes="recompute removed"), (), False),
    "its graphs": (row(source=GUIDE, notes="+ partial CUDA graphs"), PARTIAL, False),
    "its binding, which keeps the graphs": (row(source=GUIDE, notes="+ process-to-NUMA binding"), PARTIAL, True),
    "Primus's launch options": (row("Primus-Megatron", train={"features": "+launch options"}), (), True),
    "Primus before them": (row("Primus-Megatron", train={"features": "+DeepEP (cumulative)"}), (), False),
}


@pytest.mark.parametrize(("stated", "modules", "bound"), STATES.values(), ids=STATES)
def test_graphs_and_binding_are(stated: Row, modules: tuple[str, ...], bound: bool) -> None:  # noqa: FBT001 - a case
    found = containers(stated, sync_free=False)
    assert (found["graphed_modules"], found["processes_bound"]) == (modules, bound)


RECIPES = {
    "the first container with them": ("26.06", "qwen3_30b_a3b_pretrain_8gpu_gb200_fp8mx_config", True),
    "an earlier one": ("26.04.01", "qwen3_30b_a3b_pretrain_8gpu_gb200_fp8mx_config", False),
    "16 bits": ("26.06", "gpt_oss_120b_pretrain_64gpu_gb200_bf16_config", False),
    "another GPU": ("26.06", "gpt_oss_120b_pretrain_64gpu_b300_fp8mx_config", False),
    "another model": ("26.06", "kimi_k2_pretrain_256gpu_gb300_fp8mx_config", False),
}


@pytest.mark.parametrize(("container", "name", "whole"), RECIPES.values(), ids=RECIPES)
def test_recipes_capture_iterations(container: str, name: str, whole: bool) -> None:  # noqa: FBT001 - a case
    stated = row(f"Megatron-Bridge, NeMo container {container}", recipe={"name": name})
    assert captures_iterations(stated) is whole
    capture = containers(stated, sync_free=False).get("graph_capture", GraphCapture.TRANSFORMER_ENGINE)
    assert (capture is GraphCapture.FULL_ITERATION) is whole
