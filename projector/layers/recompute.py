"""What recomputation does again: which whole layers, and which operations of a layer."""

from collections.abc import Sequence

from projector.job import Recompute, RecomputeGranularity, RecomputeMethod
from projector.operations import Operation

INNER_MODULES = {"moe": frozenset({"moe", "moe_act", "shared_experts"})}
"""Modules that lie inside another one by Megatron's names."""


def recomputed_layers(recompute: Recompute, layer_ids: Sequence[int]) -> frozenset[int]:
    """Layers of one model chunk that full recomputation does again, by global index.

    Uniform takes all, block and an absent method the first `layers` of the chunk (Megatron-LM transformer_block.py).
    """
    if recompute.granularity is not RecomputeGranularity.FULL:
        return frozenset()
    if recompute.layer_ids is not None:
        return frozenset(layer_ids) & frozenset(recompute.layer_ids)
    if recompute.method is RecomputeMethod.UNIFORM:
        return frozenset(layer_ids)
    return frozenset(layer_ids[: recompute.layers])


def uniform_group(recompute: Recompute) -> int:
    """Layers that share one kept input: `layers` with the uniform method, 1 otherwise."""
    uniform = recompute.granularity is RecomputeGranularity.FULL and recompute.method is RecomputeMethod.UNIFORM
    return max(1, recompute.layers) if uniform and recompute.layer_ids is None else 1


def recomputed_modules(recompute: Recompute) -> frozenset[str]:
    """Modules that selective recomputation does again, those inside others included."""
    if recompute.granularity is not RecomputeGranularity.SELECTIVE:
        return frozenset()
    return frozenset(inner for module in recompute.modules for inner in INNER_MODULES.get(module, {module}))


def is_recomputed(operation: Operation, modules: frozenset[str]) -> bool:
    """Whether selective recomputation of `modules` covers an operation."""
    return operation.recompute_module is not None and operation.recompute_module in modules
