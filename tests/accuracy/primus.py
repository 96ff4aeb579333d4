"""What runs of Primus have in common that rows do not print, as fields of `Software`."""

from typing import Any

from projector.job import CrossEntropy, ExpertBackend, ExpertDispatch
from tests.accuracy.rows import Row

LOGS = "primus-raw-logs"
"""Logs that list every argument of the run. Those of MI300X are Primus's tests, with `cross_entropy_fusion_impl: te`,
`moe_router_force_load_balancing`, the all-to-all dispatcher and Turbo's grouped GEMM; that of MI355X is its recipe
examples/megatron/configs/MI355X/deepseek_v4_flash-BF16-pretrain.yaml with `--turbo_deepep_num_cu 80`. Turbo's experts
were a `GroupedMLP` then, with one weight for all; in May 2026, that of MI355X, they had one each."""
RECIPE_DISPATCH_UNITS = 80
"""`turbo_deepep_num_cu` of Primus's recipes for one node of MI355X; its default is 32."""
DEFAULT_DISPATCH_UNITS = 32


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
        return found | {"expert_dispatch": ExpertDispatch.DEEPEP, "expert_dispatch_units": RECIPE_DISPATCH_UNITS}
    experts = {"expert_backend": ExpertBackend.GROUPED_FUSED, "stacked_experts": True}
    return found | experts | {"force_load_balancing": True}


def is_precision_aware(row: Row) -> bool:
    """Whether the run has Megatron-LM's precision-aware optimizer."""
    return "precision-aware" in str(row.train.get("precision", ""))
