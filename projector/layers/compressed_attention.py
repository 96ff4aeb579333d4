"""DeepSeek-V4's way between the projections of attention: a norm of each query, compressed keys, and an indexer.

Queries see the keys of a sliding window and, where `compression_ratio` says so, one key for every so many tokens: all
of them, or those that an indexer chooses. Keys that an indexer chooses from are each made of two windows, its own and
the one before. Primus attends with one kernel for both kinds of keys (AMD-AGI/Primus
primus/backends/megatron/core/transformer/{deepseek_v4_attention,compressor,indexer}.py, v4_attention_kernels/).
"""

from dataclasses import replace

from projector.job import Attention
from projector.layers.attention import COMPONENT
from projector.layers.blocks import norm_weight, statistic_bytes
from projector.layers.shapes import Shapes
from projector.operations import ElementWise, Gemm, GemmLayout, Operation, SavedTensor, Weight

FP32_BYTES, INDEX_BYTES = 4, 8
SCORE_TENSORS = 3
"""Tensors of a score per query, indexer head and compressed key that live side by side: the products, what is above
zero of them, and that times the weight of the head (`Indexer.forward`)."""


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

    No gradient goes through a choice, so that it keeps nothing, and its weights have a gradient of zeros.
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
    return Operation(
        name="self_attention.indexer",
        component=COMPONENT,
        forward=(
            *keys.forward,
            *projections,
            Gemm(m=shapes.tokens, n=columns, k=inputs),
            Gemm(m=shapes.tokens, n=heads, k=shapes.hidden),
            Gemm(m=shapes.tokens * heads, n=compressed, k=mixer.index_head_dim),
            ElementWise(name="choose", bytes_read=3 * scores, bytes_written=2 * scores, kernels=8),
        ),
        weights=(
            *latent,
            _weight("indexer.w_iuq", columns, inputs),
            _weight("indexer.w_w", heads, shapes.hidden),
            *keys.weights,
        ),
        passing_forward=passing,
        scratch_forward_bytes=sum(passing) + shapes.element * shapes.tokens * columns,
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
    keys = shapes.sequence // (mixer.compression_ratio or 1)
    choices = shapes.tokens * min(mixer.index_top_k, keys) if mixer.index_heads else 0
    passing = (heads, heads, *((heads, shapes.element * choices * mixer.head_dim) if choices else ()))
    others = tuple(tensor for tensor in operation.saves if tensor.name != "layout_copy")
    copy = SavedTensor(name="layout_copy", size_bytes=heads)
    indices = (SavedTensor(name="chosen_keys", size_bytes=INDEX_BYTES * choices),) if choices else ()
    return replace(
        operation,
        saves=(*others, copy, *indices),
        passing_backward=(*operation.passing_backward, *passing),
        scratch_backward_bytes=operation.scratch_backward_bytes + sum(passing),
    )
