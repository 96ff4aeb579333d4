"""What runs of Primus have in common that rows do not print, as fields of `Software`."""

from typing import Any

from projector.job import (
    CrossEntropy,
    ExpertBackend,
    ExpertDispatch,
    Recompute,
    RecomputeGranularity,
    RecomputeMethod,
)
from tests.accuracy.rows import Row

LOGS = "primus-raw-logs"
"""Logs that list every argument of the run. Those of MI300X are Primus's tests, with `cross_entropy_fusion_impl: te`,
`moe_router_force_load_balancing`, the all-to-all dispatcher and Turbo's grouped GEMM; that of MI355X is its recipe
examples/megatron/configs/MI355X/deepseek_v4_flash-BF16-pretrain.yaml with `--turbo_deepep_num_cu 80`. Turbo's experts
were a `GroupedMLP` then, with one weight for all; in May 2026, that of MI355X, they had one each, and DeepSeek-V4's
norms without weights ran step by step."""
RECIPE_DISPATCH_UNITS = 80
"""`turbo_deepep_num_cu` of Primus's recipes for one node of MI355X; its default is 32."""
DEFAULT_DISPATCH_UNITS = 32
RECIPE_PRECISION = "precision-aware optimizer, bf16 main grads and Adam moments"
"""What both recipes of DeepSeek-V4-Flash for MI355X state (examples/megatron/configs/MI355X/
deepseek_v4_flash-*-pretrain.yaml)."""
SCRIPT_LAYERS = 3
"""Layers of each stage that the script of the same model runs again, by blocks, up to the step that adds DeepEP
(AMD-AGI/Primus examples/deepseek-v4/run_deepseek_v4_flash.sh, `PRIMUS_OPT_LAYOUT=0`)."""

DEEP = 80
DEEP_RECIPE_LAYERS = {1: 30}
"""Layers that Primus's recipes of 70 billion parameters under FSDP2 compute again, by micro batch; of larger ones all
(examples/megatron/configs/MI355X/llama3.1_70B-BF16-pretrain.yaml, and the others there and of MI300X)."""


def primus(row: Row) -> dict[str, Any]:
    """Fields of `Software`; none for other frameworks.

    Primus has the data loader make an attention mask (primus/configs/modules/megatron/trainer_base.yaml); its recipes
    state `gradient_accumulation_fusion: false` but for those of 2026 with a precision-aware optimizer.
    """
    if "Primus" not in row.framework:
        return {}
    found: dict[str, Any] = {"attention_mask_tensor": True, "expert_dispatch_units": DEFAULT_DISPATCH_UNITS}
    aware = is_precision_aware(row)
    found["gradient_accumulation_fusion"] = aware
    if row.source != LOGS:
        return found
    found |= {"cross_entropy": CrossEntropy.TRANSFORMER_ENGINE}
    if aware:
        found["fused_unweighted_norms"] = False
        return found | {"expert_dispatch": ExpertDispatch.DEEPEP, "expert_dispatch_units": RECIPE_DISPATCH_UNITS}
    experts = {"expert_backend": ExpertBackend.GROUPED_FUSED, "stacked_experts": True}
    return found | experts | {"force_load_balancing": True}


def is_precision_aware(row: Row) -> bool:
    """Whether the run has Megatron-LM's precision-aware optimizer."""
    return "precision-aware" in stated_precision(row)


def stated_precision(row: Row) -> str:
    """What is stored in which format, by the row or by the recipe that it leaves it to."""
    stated = str(row.train.get("precision", ""))
    return f"{stated}, {RECIPE_PRECISION}" if _is_script(row) else stated


def recipe_recompute(row: Row) -> Recompute:
    """What a row recomputes that does not say so."""
    depth = row.model.get("layers", 0)
    if _is_script(row):
        layers = SCRIPT_LAYERS
    elif "Primus" in row.framework and depth == DEEP:
        layers = DEEP_RECIPE_LAYERS.get(row.train["mbs"], depth)
    else:
        return Recompute()
    return Recompute(granularity=RecomputeGranularity.FULL, method=RecomputeMethod.BLOCK, layers=layers)


def _is_script(row: Row) -> bool:
    """Whether a row is the script for DeepSeek-V4-Flash on four nodes, of which it prints layout and batch only."""
    described = "compressed" in row.model.get("note", "")
    return "Primus" in row.framework and described and "recompute" not in row.train
