"""What rows of frameworks that divide weights fully leave open: llm-foundry, MaxText, the Llama 3 paper."""

from collections.abc import Mapping
from typing import Any

from projector.job import AttentionBackend, Dialect, Recompute, RecomputeGranularity, Sharding
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


def recompute(row: Row) -> Recompute | None:
    """What a rematerialisation policy of MaxText computes again; None for other rows."""
    modules = REMAT_POLICIES.get(str(row.train.get("recompute")))
    return Recompute(granularity=RecomputeGranularity.SELECTIVE, modules=modules) if modules else None
