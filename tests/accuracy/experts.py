"""The columns of a row that speak of its experts, as fields of `Software`."""

from collections.abc import Mapping
from typing import Any

from projector.job import ExpertBackend, ExpertDispatch
from tests.accuracy.architecture import known
from tests.accuracy.containers import GUIDE, captures_iterations
from tests.accuracy.rows import Row

CAPACITY_SOURCES: Mapping[str, float] = {"simumax-b200-v1.2": 1.0}
"""Sources whose launch script gives every expert a padded capacity: `--moe-expert-capacity-factor 1
--moe-pad-expert-input-to-capacity --moe-permute-fusion` of MooreThreads/SimuMax
simu_tools/megatron_scripts/scripts/run_pretrain_deepseekv2.sh."""

CI_SOURCE = "megatron-ci-golden"
"""Megatron-LM's functional tests, whose `model_config.yaml` of tests/functional_tests/test_cases state what rows do not
print: the all-gather dispatcher by default; `--moe-router-dtype: fp32` where experts have a width of their own; with it
`--moe-permute-fusion` where attention is latent."""


def experts(row: Row, *, modern: bool, sync_free: bool, deepep: bool) -> dict[str, Any]:
    """Fields of `Software`; `modern` frameworks fuse permutation and GEMMs, `sync_free` runs the permutation."""
    stated = row.model.get("moe") or {}
    own_width = row.source == CI_SOURCE and stated.get("expert_ffn") != row.model.get("ffn")
    latent = own_width and isinstance(row.model.get("mla"), Mapping)
    capacity = CAPACITY_SOURCES.get(row.source) if stated else None
    routing = str(row.train.get("moe_routing", row.train.get("routing", ""))).lower()
    overlapped = (row.train.get("flags") or {}).get("overlap-moe-expert-parallel-comm")
    return {
        "overlap_expert_parallel": bool(overlapped) or "all-to-all overlapped with the 1F1B" in row.notes,
        "expert_dispatch": _dispatch(row, deepep=deepep),
        "expert_backend": _backend(stated, modern=captures_iterations(row)),
        "permute_fusion": modern or sync_free or latent or capacity is not None or row.source == GUIDE,
        "router_in_fp32": own_width,
        "expert_capacity_factor": row.train.get("moe_capacity_factor", stated.get("capacity_factor", capacity)),
        "force_load_balancing": "balance" in routing,
        # Transformer Engine before 2.3, which caches no placeholders, comes with Megatron-Core before 0.12.
        "probabilities_after_experts": not row.train.get("identified", {}).get("placeholders", True),
    }


def _backend(stated: Mapping[str, Any], *, modern: bool) -> ExpertBackend:
    if modern:
        return ExpertBackend.GROUPED_FUSED
    return ExpertBackend.GROUPED_LOOP if stated.get("grouped_gemm", True) else ExpertBackend.SEQUENTIAL


def _dispatch(row: Row, *, deepep: bool) -> ExpertDispatch:
    stated = str(row.train.get("moe_dispatch", "") or row.train.get("extra", "")).lower()
    stated += row.recipe.get("moe_flex_dispatcher_backend", "")
    if "hybridep" in stated or captures_iterations(row):
        return ExpertDispatch.HYBRIDEP
    if deepep or "deepep" in stated:
        return ExpertDispatch.DEEPEP
    dispatchers = {each.value: each for each in ExpertDispatch}
    return known(dispatchers, (row.model.get("moe") or {}).get("dispatcher", "alltoall"), "dispatcher")
