"""What rows of frameworks that divide weights fully leave open: llm-foundry, MaxText, Primus, the Llama 3 paper."""

from collections.abc import Mapping
from typing import Any

from projector.job import AttentionBackend, Dialect, Recompute, RecomputeGranularity, RecomputeMethod, Sharding
from tests.accuracy.rows import Row

FOUNDRY = "llm-foundry"
MAXTEXT = "MaxText"
LLAMA_3 = "llama3-herd-2024"
REMAT_POLICIES: Mapping[str, tuple[str, ...]] = {
    "remat policy save_qkv_proj": ("layernorm", "core_attn", "mlp"),
}
"""What is computed again where a policy keeps the projections of queries, keys and values alone (MaxText
layers/models.py `get_remat_policy`); the output projection, a tenth of a layer, cannot be named."""


def software(row: Row) -> dict[str, Any]:
    """Fields of `Software`: MPT's layers run eagerly, with the Triton attention that ALiBi needs (mpt-7b.yaml)."""
    if not row.framework.startswith(FOUNDRY):
        return {}
    return {
        "dialect": Dialect.TORCHTITAN,
        "gradients_given_up": True,
        "attention_backend": AttentionBackend.TRITON,
    }


def parallelism(row: Row) -> dict[str, Any]:
    """Fields of `Parallelism`: Composer's FSDP waits for each layer; MaxText divides what its notes say.

    Llama 3's keeps weights whole until backward (arXiv 2407.21783, section 3.3.2).
    """
    if row.source == LLAMA_3:
        return {"reshard_after_forward": False}
    if row.framework.startswith(MAXTEXT):
        return {"sharding": Sharding.PARAMETERS}
    return {"prefetches_layers": not row.framework.startswith(FOUNDRY)}


PRIMUS_DEPTH = 80
PRIMUS_LAYERS = {1: 30}
"""Layers that Primus's recipes of 70 billion parameters under FSDP2 compute again, by micro batch; of larger ones all
(examples/megatron/configs/MI355X/llama3.1_70B-BF16-pretrain.yaml, and the others there and of MI300X)."""


def recompute(row: Row) -> Recompute | None:
    """What a rematerialisation policy of MaxText, or the recipe behind a row of Primus, computes again."""
    depth = row.model.get("layers", 0)
    if "Primus" in row.framework and depth == PRIMUS_DEPTH and "recompute" not in row.train:
        layers = PRIMUS_LAYERS.get(row.train["mbs"], depth)
        return Recompute(granularity=RecomputeGranularity.FULL, method=RecomputeMethod.BLOCK, layers=layers)
    modules = REMAT_POLICIES.get(str(row.train.get("recompute")))
    return Recompute(granularity=RecomputeGranularity.SELECTIVE, modules=modules) if modules else None
