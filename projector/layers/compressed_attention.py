"""DeepSeek-V4's way between the projections of attention: a norm of each query, compressed keys, and an indexer.

Queries see the keys of a sliding window and, where `compression_ratio` says so, one key for every so many tokens: all
of them, or those that an indexer chooses. Keys that an indexer chooses from are each made of two windows, its own and
the one before. Primus attends with one kernel for both kinds of keys (AMD-AGI/Primus
primus/backends/megatron/core/transformer/{deepseek_v4_attention,compressor,indexer}.py, v4_attention_kernels/).
"""

from collections.abc import Sequence
from dataclasses import replace

from projector.job import Attention, IndexerTraining
from projector.layers.attention import COMPONENT
from projector.layers.blocks import norm_weight, statistic_bytes
from projector.layers.shapes import Shapes
from projector.operations import (
    AttentionKernel,
    ElementWise,
    Gemm,
    GemmLayout,
    Operation,
    SavedTensor,
    Weight,
    Work,
)

FP32_BYTES, INDEX_BYTES = 4, 8
SCORE_TENSORS = 3
"""Tensors of a score per query, indexer head and compressed key that live side by side: the products, what is above
zero of them, and that times the weight of the head (`Indexer.forward`)."""
LOSS_PASSES = 3
"""Passes over the scores of queries and compressed keys of an indexer's loss: softmax, attention's own, and their
divergence (AMD-AGI/Primus primus/core/projection/module_profilers/attention.py); backward has twice as many."""


def query_norm(mixer: Attention, shapes: Shapes) -> Operation:
    """A norm without weights over each head of queries; step by step it keeps them in fp32 (`_per_head_rms_norm`)."""
    rows = shapes.tokens * mixer.heads // shapes.tensor
    elements = rows * mixer.head_dim
    stepwise = not shapes.software.fused_unweighted_norms
    narrow, wide = shapes.element * elements, FP32_BYTES * elements
    kept = SavedTensor(name="fp32_input", size_bytes=wide) if stepwise else SavedTensor(name="input", size_bytes=narrow)
    passing_forward = (wide,) if stepwise else ()
    passing_backward = (wide, wide) if stepwise else ()
    return Operation(
        name="self_attention.query_norm",
        component=COMPONENT,
        forward=(
            ElementWise(
                name="query_norm",
                bytes_read=narrow + 3 * sum(passing_forward),
                bytes_written=narrow + 3 * sum(passing_forward),
                kernels=6 if stepwise else 1,
            ),
        ),
        backward_input=(
            ElementWise(
                name="query_norm_backward",
                bytes_read=2 * narrow + 3 * sum(passing_backward),
                bytes_written=narrow + 2 * sum(passing_backward),
                kernels=12 if stepwise else 1,
            ),
        ),
        saves=(kept, SavedTensor(name="statistics", size_bytes=FP32_BYTES * rows)),
        passing_forward=passing_forward,
        passing_backward=passing_backward,
        scratch_forward_bytes=sum(passing_forward) + narrow,
        scratch_backward_bytes=sum(passing_backward) + shapes.residual_bytes + 2 * narrow,
    )


def compressed_keys(mixer: Attention, shapes: Shapes) -> tuple[Operation, ...]:
    """The operations that make compressed keys and choose among them; none where there are no such keys."""
    if mixer.compression_ratio is None:
        return ()
    made = _compressor("compressor", mixer.compression_ratio, mixer.head_dim, mixer, shapes)
    return (made, _indexer(mixer, mixer.compression_ratio, shapes)) if mixer.index_heads else (made,)


def _compressor(name: str, ratio: int, width: int, mixer: Attention, shapes: Shapes) -> Operation:
    """Keys and scores of every token, softmax in fp32 over each window, and the weighted sum with its norm.

    It keeps keys and rounded weights by window, softmax's result, and the sums in front of the norm.
    """
    windows = 2 if mixer.index_heads else 1
    columns = windows * width
    elements, sums = shapes.tokens * columns, shapes.tokens // ratio * width
    narrow, wide = shapes.element * elements, FP32_BYTES * elements
    moved = 2 * narrow + wide
    gemm = Gemm(m=shapes.tokens, n=2 * columns, k=shapes.hidden)
    return Operation(
        name=f"self_attention.{name}",
        component=COMPONENT,
        forward=(gemm, ElementWise(name="compress", bytes_read=moved, bytes_written=moved, kernels=10)),
        backward_input=(
            ElementWise(name="compress_backward", bytes_read=2 * moved, bytes_written=moved, kernels=12),
            Gemm(m=shapes.tokens, n=shapes.hidden, k=2 * columns, layout=GemmLayout.NN),
        ),
        backward_weight=(Gemm(m=2 * columns, n=shapes.hidden, k=shapes.tokens, layout=GemmLayout.NT),),
        weights=_compressor_weights(name, ratio, width, columns, shapes),
        saves=(
            SavedTensor(name="windows", size_bytes=narrow),
            SavedTensor(name="window_weights", size_bytes=narrow),
            SavedTensor(name="softmax", size_bytes=wide),
            SavedTensor(name="sums", size_bytes=FP32_BYTES * sums + statistic_bytes(shapes) * sums // width),
        ),
        scratch_forward_bytes=moved,
        scratch_backward_bytes=shapes.residual_bytes + 2 * moved,
    )


def _compressor_weights(name: str, ratio: int, width: int, columns: int, shapes: Shapes) -> tuple[Weight, ...]:
    """Projections of keys and scores, an offset per place in a window, and the norm; on every rank whole."""
    projections = tuple(
        Weight(name=f"{name}.{part}.weight", shape=(columns, shapes.hidden), full_elements=columns * shapes.hidden)
        for part in ("wkv", "wgate")
    )
    places = Weight(name=f"{name}.ape", shape=(ratio * columns,), full_elements=ratio * columns)
    return *projections, places, *norm_weight(f"{name}.kv_norm", width, shapes)


def _indexer(mixer: Attention, ratio: int, shapes: Shapes) -> Operation:
    """Scores of every compressed key for every query by small heads, of which the highest are chosen.

    No gradient goes through a choice, so that it keeps nothing, and its weights have a gradient of zeros or none; a
    loss of its own trains them from what it computes again.
    """
    keys = _compressor("indexer.compressor", ratio, mixer.index_head_dim, mixer, shapes)
    heads, columns = mixer.index_heads, mixer.index_heads * mixer.index_head_dim
    compressed = shapes.sequence // ratio
    scores = shapes.element * shapes.tokens * heads * compressed
    rank = mixer.index_query_rank
    inputs = rank or mixer.query_lora_rank or shapes.hidden
    latent = () if rank is None else (_weight("indexer.w_dq", rank, shapes.hidden),)
    projections = (Gemm(m=shapes.tokens, n=rank, k=shapes.hidden),) if rank else ()
    passing = (scores,) * SCORE_TENSORS
    products = (
        *projections,
        Gemm(m=shapes.tokens, n=columns, k=inputs),
        Gemm(m=shapes.tokens, n=heads, k=shapes.hidden),
        Gemm(m=shapes.tokens * heads, n=compressed, k=mixer.index_head_dim),
    )
    weights = (
        *latent,
        _weight("indexer.w_iuq", columns, inputs),
        _weight("indexer.w_w", heads, shapes.hidden),
        *keys.weights,
    )
    frozen = shapes.software.indexer is IndexerTraining.FROZEN
    operation = Operation(
        name="self_attention.indexer",
        component=COMPONENT,
        forward=(
            *keys.forward,
            *products,
            ElementWise(name="choose", bytes_read=3 * scores, bytes_written=2 * scores, kernels=8),
        ),
        weights=tuple(replace(weight, frozen=frozen) for weight in weights),
        passing_forward=passing,
        scratch_forward_bytes=sum(passing) + shapes.element * shapes.tokens * columns,
    )
    if shapes.software.indexer is not IndexerTraining.TRAINED:
        return operation
    return _trained(operation, keys, products, pairs=shapes.tokens * compressed, shapes=shapes)


def _trained(
    operation: Operation, keys: Operation, products: Sequence[Gemm], *, pairs: int, shapes: Shapes
) -> Operation:
    """An indexer with its loss: each product has a gradient towards both factors, and it keeps its scores."""
    size = shapes.element * pairs
    moved = LOSS_PASSES * size // 2
    loss = ElementWise(name="indexer_loss", bytes_read=moved, bytes_written=moved, kernels=LOSS_PASSES)
    back = ElementWise(
        name="indexer_loss_backward", bytes_read=2 * moved, bytes_written=2 * moved, kernels=2 * LOSS_PASSES
    )
    towards_inputs = tuple(
        replace(product, n=product.k, k=product.n, layout=GemmLayout.NN) for product in reversed(products)
    )
    towards_weights = tuple(
        replace(product, m=product.n, n=product.k, k=product.m, layout=GemmLayout.NT) for product in products
    )
    return replace(
        operation,
        forward=(*operation.forward, loss),
        backward_input=(back, *towards_inputs, *keys.backward_input),
        backward_weight=(*towards_weights, *keys.backward_weight),
        saves=(*keys.saves, SavedTensor(name="index_scores", size_bytes=size)),
        scratch_backward_bytes=2 * size + shapes.residual_bytes,
    )


def _weight(name: str, outputs: int, inputs: int) -> Weight:
    return Weight(name=f"{name}.weight", shape=(outputs, inputs), full_elements=outputs * inputs)


def prepared(operation: Operation, mixer: Attention, shapes: Shapes) -> Operation:
    """Queries, keys and values as the kernel reads them.

    Where queries see all compressed keys, those stand behind the others in a tensor that repeats them for every head,
    once as keys and once as values; elsewhere the one head of keys is values too.
    """
    if not mixer.shared_key_value:
        return operation
    kept = [tensor for tensor in operation.saves if tensor.name not in ("key", "value")]
    row = shapes.element * mixer.head_dim * shapes.batch
    length = shapes.tokens // shapes.batch
    if mixer.compression_ratio is not None and not mixer.index_heads:
        size = row * (mixer.heads // shapes.tensor) * (length + length // mixer.compression_ratio)
        kept += [SavedTensor(name="key", size_bytes=size), SavedTensor(name="value", size_bytes=size)]
    else:
        kept.append(SavedTensor(name="key", size_bytes=row * length))
    return replace(operation, saves=tuple(kept))


def attended(operation: Operation, mixer: Attention, shapes: Shapes) -> Operation:
    """The kernel, which keeps its output by heads: what the projection reads is a copy by tokens.

    Its backward pass makes a gradient of keys and of values for every head (`_launch_v4_attention_bwd`); where keys are
    chosen, a second one of queries and the gradient of every query's choice of keys before they are added up by key
    (`_launch_v4_csa_attention_pool_bwd`, `dpool_partial`).
    """
    if not mixer.shared_key_value:
        return operation
    heads = shapes.element * shapes.tokens * mixer.heads // shapes.tensor * mixer.head_dim
    chosen = chosen_keys(mixer, shapes.sequence)
    choices = shapes.tokens * chosen if mixer.index_heads else 0
    passing = (heads, heads, *((heads, shapes.element * choices * mixer.head_dim) if choices else ()))
    others = tuple(tensor for tensor in operation.saves if tensor.name != "layout_copy")
    copy = SavedTensor(name="layout_copy", size_bytes=heads)
    kept = [SavedTensor(name="chosen_keys", size_bytes=INDEX_BYTES * choices)] if choices else []
    seen = _seen_keys(mixer, shapes.sequence)
    row = shapes.element * mixer.head_dim
    used = round(shapes.tokens * seen) * row
    forward, backward = _copies(mixer, choices * row, used, shapes) if choices else ((), ())
    if shapes.software.gathered_keys and choices:
        kept.append(SavedTensor(name="gathered_keys", size_bytes=choices * row))
    return replace(
        operation,
        forward=(*forward, *(_with_keys(work, seen) for work in operation.forward)),
        backward_input=(*(_with_keys(work, seen) for work in operation.backward_input), *backward),
        saves=(*others, copy, *kept),
        passing_backward=(*operation.passing_backward, *passing),
        scratch_backward_bytes=operation.scratch_backward_bytes + sum(passing),
    )


def chosen_keys(mixer: Attention, sequence: int) -> int:
    """Compressed keys that an indexer chooses for a query: no more than there are."""
    return min(mixer.index_top_k, sequence // (mixer.compression_ratio or 1))


def _seen_keys(mixer: Attention, sequence: int) -> float:
    """Compressed keys that a query sees, on average: those of its past, at most as many as are chosen."""
    if mixer.compression_ratio is None:
        return 0.0
    most = chosen_keys(mixer, sequence) if mixer.index_heads else sequence // mixer.compression_ratio
    return most * (1 - mixer.compression_ratio * most / (2 * sequence))


def _with_keys(work: Work, further: float) -> Work:
    return replace(work, further_keys=further) if isinstance(work, AttentionKernel) else work


def _copies(
    mixer: Attention, written: int, used: int, shapes: Shapes
) -> tuple[tuple[ElementWise, ...], tuple[ElementWise, ...]]:
    """Traffic of chosen keys, forward and backward: `written` bytes for all places of a choice, `used` of real ones.

    A kernel that reads the keys itself moves nothing forward; its backward pass writes a gradient for each place, which
    another kernel adds up by key. Step by step, forward writes a copy for each query, masks and reads it; backward
    masks again, and the gradient of a gather is added up in a tensor of every query and key
    (primus/backends/megatron/core/transformer/v4_attention_kernels/, deepseek_v4_attention.py `_csa_forward`).
    """
    if not shapes.software.gathered_keys:
        return (), (ElementWise(name="scatter_keys", bytes_read=used, bytes_written=written, kernels=2),)
    keys = shapes.sequence // (mixer.compression_ratio or 1)
    expanded = shapes.element * shapes.tokens * keys * mixer.head_dim
    gather = ElementWise(name="gather_keys", bytes_read=2 * written, bytes_written=2 * written, kernels=2)
    scatter = ElementWise(
        name="scatter_keys",
        bytes_read=written + 2 * used + expanded,
        bytes_written=2 * written + expanded,
        kernels=4,
    )
    return (gather,), (scatter,)
