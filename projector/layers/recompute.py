"""What recomputation does again: which whole layers, and which operations of a layer."""

from collections.abc import Sequence
from dataclasses import replace

from projector.job import Recompute, RecomputeGranularity, RecomputeMethod
from projector.operations import AttentionKernel, Collective, CollectiveKind, Gemm, Operation, Work

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


def kept_outputs(
    operations: Sequence[Operation], *, products: bool, compiled: bool = False
) -> tuple[tuple[int, int], ...]:
    """What checkpointing by operation keeps of each operation of a layer: bytes of matrix products, and of others.

    Of the `products` every second one is kept, counted through the layer from the first, or none (TorchTitan
    torchtitan/distributed/activation_checkpoint.py, 5252bae3). A `compiled` layer keeps of them what its backward pass
    reads, so not the last product, which is only added to the residual stream (torch/_functorch/partitioners.py).
    """
    kept: list[tuple[int, int]] = []
    count = 0
    for operation in operations:
        numbered = enumerate(operation.product_bytes, start=count)
        sizes = [size for number, size in numbered if products and number % 2 == 0]
        count += len(operation.product_bytes)
        kept.append((sum(sizes), operation.costly_bytes))
    if compiled and len(operations) > 1 and operations[-2].product_bytes:
        kept[-2] = 0, 0
    return tuple(kept)


def repeated_work(operations: Sequence[Operation], *, products: bool) -> tuple[tuple[Work, ...], ...]:
    """Forward work that checkpointing by operation does again in backward, by operation."""
    repeated = []
    for operation, (kept, _) in zip(operations, kept_outputs(operations, products=products), strict=True):
        whole = sum(operation.product_bytes)
        share = 1 - kept / whole if whole else 1.0
        repeated.append(tuple(again for work in operation.forward if (again := _again(work, share)) is not None))
    return tuple(repeated)


def _again(work: Work, share: float) -> Work | None:
    """The part of a work that runs again, given the `share` of its operation's products that does."""
    if isinstance(work, AttentionKernel):
        return None
    if isinstance(work, Collective) and work.kind in {CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL}:
        return None
    if isinstance(work, Gemm) and share < 1:
        columns = round(work.n * share)
        return replace(work, n=columns) if columns else None
    return work
