"""What a row says of its host: CUDA graphs, the container, and the binding of processes.

NVIDIA's launchers bind every process with `numactl` (NVIDIA/NeMo and NVIDIA-NeMo/Megatron-Bridge scripts/performance,
executors.py). A row of Megatron-Bridge holds what the recipe of its name sets itself, at the snapshot of the file of
rows; helpers that recipes call set more, which stands here.
"""

import re
from typing import Any

from projector.job import GraphCapture
from tests.accuracy.rows import Row

BRIDGE, NEMO = "Megatron-Bridge", "NeMo"
KNOWN_RELEASE, KNOWN_MINOR = (26, 1), 11
"""Transformer Engine 2.11 lies in NVIDIA's containers of January 2026, 2.14 in those of April: a release a month."""
DEV, DEV_RELEASE = "Megatron-Core dev", (25, 12)
"""The branch of yanring/Megatron-MoE-ModelZoo's runs, and the month of core 0.15, the first release with what they name
(`moe_flex_dispatcher_backend: hybridep`)."""
FULL_ITERATION = re.compile(r"(deepseek_v3|gpt_oss|qwen3)_.*_(gb200|gb300)_fp8mx_config")
FULL_ITERATION_FROM = (26, 6)
"""Recipes that capture whole iterations and run all experts in one kernel, and the first container with them
(Megatron-Bridge 0.5.0 scripts/performance/configs and src/megatron/bridge/perf_recipes; 0.5.1 adds B200 and B300)."""
WHOLE_LAYER = ("attn", "mlp", "moe")
MODULE_WORDS = {"attention": "attn", "router": "moe_router", "preprocess": "moe_preprocess"}
"""Modules by the words of rows that speak of partial graphs."""

GUIDE = "megatron-dsv3-gb200-guide"
BINDING, MERGING = "process-to-NUMA binding", "swizzle fusion"
GUIDE_STEPS = ("partial CUDA graphs", BINDING, MERGING, "HybridEP", "host clean-up")
"""Steps of NVIDIA/Megatron-LM docs/discussions/deepseek-v3-gb200-optimization, by words of the rows; each keeps those
before it. Its graphs hold attention, router and the dispatcher's preparation; all rows fuse permutation and router."""
GUIDE_ENGINES = {False: "2.7", True: "2.8"}
"""Transformer Engine of the guide, which links the branch of 2.8, before and after scales are swizzled together."""
BINDING_WORDS = ("numa", "launch", "vpp", "sync-free 1 (", "all of the above")
"""Words of the steps of Primus's MoE package from the one on that binds processes."""


def release(row: Row) -> tuple[int, int] | None:
    """Year and month of the container, where the framework is NVIDIA's and names one."""
    if not row.framework.startswith((BRIDGE, NEMO)):
        return None
    found = re.search(r"\b(2[4-9])\.(0[1-9]|1[0-2])\b", row.framework) or re.search(r"20(2\d)-(\d\d)", row.framework)
    return (int(found[1]), int(found[2])) if found else None


def captures_iterations(row: Row) -> bool:
    """Whether one graph holds all passes of an iteration."""
    since = release(row)
    whole = FULL_ITERATION.fullmatch(row.recipe.get("name", "")) is not None
    return since is not None and since >= FULL_ITERATION_FROM and whole


def containers(row: Row, *, sync_free: bool) -> dict[str, Any]:
    """Fields of `Software`."""
    bridge = row.framework.startswith(BRIDGE)
    found: dict[str, Any] = {
        "transformer_engine": _transformer_engine(row),
        "processes_bound": release(row) is not None or _is_bound(row),
        # All recipes of mixtures fuse the router, and so does every sync-free stage.
        "router_fusion": sync_free or row.source == GUIDE or (bridge and bool(row.model.get("moe"))),
    }
    if captures_iterations(row):
        return found | {"graphed_modules": WHOLE_LAYER, "graph_capture": GraphCapture.FULL_ITERATION}
    return found | {"graphed_modules": _modules(row)}


def _transformer_engine(row: Row) -> str | None:
    if row.source == GUIDE:
        return GUIDE_ENGINES[_step(row) >= GUIDE_STEPS.index(MERGING)]
    stated = re.search(r"\bTE (\d+\.\d+)", row.framework)
    if stated:
        return stated[1]
    since = DEV_RELEASE if row.framework == DEV else release(row)
    if since is None:
        return None
    months = 12 * (since[0] - KNOWN_RELEASE[0]) + since[1] - KNOWN_RELEASE[1]
    return f"2.{KNOWN_MINOR + months}" if KNOWN_MINOR + months >= 0 else None


def _is_bound(row: Row) -> bool:
    if row.source == GUIDE:
        return _step(row) >= GUIDE_STEPS.index(BINDING)
    stated = str(row.train.get("features", "")).lower()
    return any(word in stated for word in BINDING_WORDS)


def _modules(row: Row) -> tuple[str, ...]:
    """Modules of partial graphs: of flags, of the recipe, or of what a row says in words."""
    if row.source == GUIDE:
        return tuple(MODULE_WORDS.values()) if _step(row) >= 0 else ()
    stated = (row.train.get("flags") or {}).get("cuda-graph-modules")
    if row.recipe.get("cuda_graph_impl"):
        stated = row.recipe.get("cuda_graph_scope")
    if stated:
        return tuple(re.findall(r"[a-z_]+", str(stated)))
    _, graphs, said = f"{row.train.get('extra', '')} {row.notes}".partition("CUDA graphs")
    return tuple(module for word, module in MODULE_WORDS.items() if graphs and word in said)


def _step(row: Row) -> int:
    """The last of the guide's steps that the row has; -1 for none."""
    return max((at for at, step in enumerate(GUIDE_STEPS) if step in row.notes), default=-1)
