"""Multi-head, grouped-query and multi-query attention, and the core that latent attention shares.

What is kept follows Transformer Engine 2.11 and Megatron-LM 23e00ed0 (fused qkv projection, packed result freed once
queries, keys and values are contiguous).
"""

from dataclasses import dataclass, replace

from projector.job import Attention, AttentionBackend, Dialect, PositionKind
from projector.layers.blocks import (
    STEPWISE_BYTES,
    Linear,
    kept_input,
    linear,
    norm_weight,
    norm_work,
    runs_stepwise,
    statistic_bytes,
)
from projector.layers.context import Passing, keeps_own_output, passing
from projector.layers.shapes import Shapes
from projector.operations import (
    AttentionKernel,
    Collective,
    CollectiveKind,
    ElementWise,
    Group,
    Operation,
    SavedTensor,
    Split,
    Weight,
    Work,
)

COMPONENT = "self_attention"
LOG_SUM_EXP_BYTES = 4
"""fp32 per token and head (FlashAttention-2, arXiv 2307.08691)."""
ROTARY_TABLE_TENSORS = 4
"""Unfused rotary keeps cosine and sine for queries and for keys, each sequence x rotary width in bf16
(Megatron-LM rotary_pos_embedding.py)."""
COMPLEX_ROTARY_BYTES = 10
"""Read, and written again, per element by a rotary embedding in complex numbers: a cast to fp32, the product, a cast
back (counted under torch 2.15)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Core:
    """Scaled-dot-product attention of one device, before context parallelism exchanges anything."""

    heads: int
    """Query heads on this device."""
    key_value_heads: int
    """Key and value heads on this device."""
    query_key_dim: int
    """Width of a query or key head."""
    value_dim: int
    """Width of a value head."""
    window: int | None = None
    """Sliding window in keys."""
    chunk: int | None = None
    """Keys of one chunk."""


def attention_operations(mixer: Attention, shapes: Shapes) -> tuple[Operation, ...]:
    """Operations from the qkv projection to the output projection, norms and residual excluded."""
    heads = mixer.heads // shapes.tensor
    groups = max(1, mixer.key_value_heads // shapes.tensor)
    core = Core(
        heads=heads,
        key_value_heads=groups,
        query_key_dim=mixer.head_dim,
        value_dim=mixer.head_dim,
        window=mixer.window,
        chunk=mixer.chunk,
    )
    return (
        _projection(mixer, heads, groups, shapes),
        _prepare(mixer, heads, groups, shapes),
        core_attention(core, shapes, sinks=mixer.heads if mixer.sinks else 0, gated=mixer.output_gate),
        output_projection(
            mixer.heads * mixer.head_dim,
            heads * mixer.head_dim,
            shapes,
            bias=mixer.bias_output,
            gated=mixer.output_gate,
        ),
    )


def _projection(mixer: Attention, heads: int, groups: int, shapes: Shapes) -> Operation:
    query_factor = 2 if mixer.output_gate else 1
    width = (query_factor * heads + 2 * groups) * mixer.head_dim
    full = (query_factor * mixer.heads + 2 * mixer.key_value_heads) * mixer.head_dim
    return linear(
        Linear(
            name="self_attention.linear_qkv",
            component=COMPONENT,
            outputs=width,
            inputs=shapes.hidden,
            full_elements=full * shapes.hidden,
            split=Split.COLUMN,
            bias=width if mixer.bias_qkv else 0,
            full_bias=full if mixer.bias_qkv else 0,
            saves=(kept_input(shapes, shapes.column_input_tokens * shapes.hidden),),
            gradient_above_bytes=shapes.residual_bytes,
            parts=(
                ("linear_q", query_factor * heads * mixer.head_dim),
                ("linear_k", groups * mixer.head_dim),
                ("linear_v", groups * mixer.head_dim),
            ),
        ),
        shapes,
    )


def rotary_tables(shapes: Shapes, width: int) -> tuple[SavedTensor, ...]:
    """Cosine and sine tensors that unfused rotary keeps per layer."""
    if shapes.software.rotary_fusion or shapes.position is not PositionKind.ROTARY:
        return ()
    rows = shapes.sequence // shapes.context
    size = ROTARY_TABLE_TENSORS * shapes.element * rows * round(width * shapes.rotary_share)
    return (SavedTensor(name="rotary_tables", size_bytes=size),)


def _prepare(mixer: Attention, heads: int, groups: int, shapes: Shapes) -> Operation:
    """Split the packed projection, norm queries and keys, rotate; keeps queries, keys and values."""
    query, key = heads * mixer.head_dim, groups * mixer.head_dim
    row = shapes.element * shapes.tokens
    repeated = shapes.software.repeated_key_values
    each_key = query if repeated else key
    packed = row * (query + 2 * each_key)
    saves = [
        SavedTensor(name="query", size_bytes=row * query),
        SavedTensor(name="key", size_bytes=row * each_key),
        SavedTensor(name="value", size_bytes=row * each_key),
        *rotary_tables(shapes, mixer.head_dim),
    ]
    normed = mixer.query_key_norm or mixer.query_key_norm_full
    rotated = shapes.position is PositionKind.ROTARY
    if normed:
        each = shapes.element + (STEPWISE_BYTES if _norms_stepwise(shapes) else 0)
        saves.append(SavedTensor(name="query_key_before_norm", size_bytes=each * shapes.tokens * (query + key)))
        rows = shapes.tokens * (2 if mixer.query_key_norm_full else heads + groups)
        saves.append(SavedTensor(name="query_key_statistics", size_bytes=statistic_bytes(shapes) * rows))
    if mixer.output_gate:
        saves.append(SavedTensor(name="gate", size_bytes=row * query))
    forward, backward = _prepare_work(mixer, heads, groups, shapes)
    return Operation(
        name="self_attention.rotary" if rotated else "self_attention.split",
        component=COMPONENT,
        forward=forward,
        backward_input=backward,
        weights=_query_key_norms(mixer, heads, groups, shapes) if normed else (),
        saves=tuple(saves),
        scratch_forward_bytes=packed,
        scratch_backward_bytes=shapes.residual_bytes + 2 * packed,
    )


def _norms_stepwise(shapes: Shapes) -> bool:
    return runs_stepwise(shapes, compiled=shapes.software.compiled_layers)


def _prepare_work(
    mixer: Attention, heads: int, groups: int, shapes: Shapes
) -> tuple[tuple[Work, ...], tuple[Work, ...]]:
    """Forward and backward work between projection and attention.

    TorchTitan's three projections need no split. Its eager rotary embedding goes through complex fp32 numbers, which
    torch.compile fuses (torchtitan/models/llama3/model/model.py `apply_rotary_emb`, `repeat_kv`).
    """
    row = shapes.element * shapes.tokens
    query, key = row * heads * mixer.head_dim, row * groups * mixer.head_dim
    moved = query + key
    works: list[tuple[Work, Work]] = []
    if shapes.software.dialect is not Dialect.TORCHTITAN:
        packed = query + 2 * key
        works.append((ElementWise(name="split_qkv", bytes_read=packed, bytes_written=packed),) * 2)
    if (mixer.query_key_norm or mixer.query_key_norm_full) and _norms_stepwise(shapes):
        works.append(norm_work(moved, shapes, stepwise=True))
    elif mixer.query_key_norm or mixer.query_key_norm_full:
        works.append((ElementWise(name="query_key_norm", bytes_read=moved, bytes_written=moved, kernels=2),) * 2)
    if shapes.position is PositionKind.ROTARY:
        passes, kernels = (COMPLEX_ROTARY_BYTES // shapes.element, 6) if shapes.eager else (1, 2)
        size = passes * moved
        works.append((ElementWise(name="rotary", bytes_read=size, bytes_written=size, kernels=kernels),) * 2)
    if shapes.software.repeated_key_values and key < query:
        few, many = 2 * key, 2 * query
        works.append(
            (
                ElementWise(name="repeat_key_values", bytes_read=few, bytes_written=many, kernels=2),
                ElementWise(name="repeat_key_values", bytes_read=many, bytes_written=few, kernels=2),
            )
        )
    return tuple(forward for forward, _ in works), tuple(backward for _, backward in works)


def _query_key_norms(mixer: Attention, heads: int, groups: int, shapes: Shapes) -> tuple[Weight, ...]:
    if not mixer.query_key_norm_full:
        return (
            *norm_weight("q_layernorm", mixer.head_dim, shapes),
            *norm_weight("k_layernorm", mixer.head_dim, shapes),
        )
    full_query, full_key = mixer.heads * mixer.head_dim, mixer.key_value_heads * mixer.head_dim
    return (
        *norm_weight("q_layernorm", heads * mixer.head_dim, shapes, full_width=full_query),
        *norm_weight("k_layernorm", groups * mixer.head_dim, shapes, full_width=full_key),
    )


def core_attention(core: Core, shapes: Shapes, *, sinks: int = 0, gated: bool = False) -> Operation:
    """Scores, softmax and weighted values, with the exchange that context parallelism needs.

    `sinks` counts learned sink logits of the whole model; `gated` multiplies a sigmoid gate onto the output.
    """
    output = shapes.element * shapes.tokens * core.heads * core.value_dim
    saves, exchange = list(_core_saves(core, shapes)), _exchange(core, shapes)
    forward: list[Work] = [*exchange, _kernel(core, shapes, backward=False)]
    backward: list[Work] = [*exchange, _kernel(core, shapes, backward=True), *exchange]
    if gated:
        saves.append(SavedTensor(name="before_gate", size_bytes=output))
        forward.append(ElementWise(name="gate", bytes_read=2 * output, bytes_written=output, kernels=2))
        backward.insert(0, ElementWise(name="gate", bytes_read=3 * output, bytes_written=2 * output, kernels=2))
    if not shapes.software.flash_attention:
        scores = shapes.element * _scores(core, shapes)
        forward.append(ElementWise(name="softmax", bytes_read=2 * scores, bytes_written=2 * scores, kernels=3))
        backward.append(ElementWise(name="softmax_backward", bytes_read=3 * scores, bytes_written=scores, kernels=3))
    weights = (Weight(name="sinks", shape=(core.heads,), full_elements=sinks),) if sinks else ()
    stored = 0 if shapes.software.flash_attention else shapes.element * _scores(core, shapes)
    packed = _packed_bytes(core, shapes)
    travelling = _travelling(core, shapes)
    return Operation(
        name="self_attention.core_attention",
        component=COMPONENT,
        forward=tuple(forward),
        backward_input=tuple(backward),
        weights=weights,
        saves=tuple(saves),
        scratch_forward_bytes=output + stored + sum(travelling.forward),
        passing_forward=travelling.forward,
        passing_backward=travelling.backward,
        scratch_backward_bytes=shapes.residual_bytes + output + packed + 2 * stored + sum(travelling.backward),
        costly_bytes=output + LOG_SUM_EXP_BYTES * shapes.tokens * core.heads,
        recompute_module="core_attn",
    )


def _scores(core: Core, shapes: Shapes) -> int:
    """Elements of the score matrix of one device."""
    return shapes.batch * core.heads * shapes.sequence * shapes.sequence // shapes.context


def _score_bytes(element: int, *, dropout: bool) -> int:
    """Kept per score without flash attention: softmax's output; with dropout also a mask byte and the dropped output.

    Korthikanti et al., arXiv 2205.05198, section 4.1, whose elements have 2 bytes.
    """
    return 2 * element + 1 if dropout else element


def _packed_bytes(core: Core, shapes: Shapes) -> int:
    width = core.heads * core.query_key_dim + core.key_value_heads * (core.query_key_dim + core.value_dim)
    return shapes.element * shapes.tokens * width


def _travelling(core: Core, shapes: Shapes) -> Passing:
    row = shapes.element * shapes.tokens
    return passing(
        query=row * core.heads * core.query_key_dim,
        key=row * core.key_value_heads * core.query_key_dim,
        value=row * core.key_value_heads * core.value_dim,
        output=row * core.heads * core.value_dim,
        shapes=shapes,
    )


def _core_saves(core: Core, shapes: Shapes) -> tuple[SavedTensor, ...]:
    software = shapes.software
    output = shapes.element * shapes.tokens * core.heads * core.value_dim
    if not software.flash_attention:
        each = _score_bytes(shapes.element, dropout=software.attention_dropout > 0)
        return (SavedTensor(name="scores", size_bytes=each * _scores(core, shapes)),)
    saves = [SavedTensor(name="log_sum_exp", size_bytes=LOG_SUM_EXP_BYTES * shapes.tokens * core.heads)]
    if keeps_own_output(shapes):
        saves.append(SavedTensor(name="exchanged_output", size_bytes=output))
    if _copies_output(shapes):
        saves.append(SavedTensor(name="layout_copy", size_bytes=output))
    if shapes.low_precision is not None:
        saves.append(SavedTensor(name="output", size_bytes=output))
    return tuple(saves)


def _copies_output(shapes: Shapes) -> bool:
    """Whether attention's output is copied into another layout for the projection behind it.

    Flash kernels put sequences of a batch first, as TorchTitan and transformers do all along; Megatron does not.
    """
    software = shapes.software
    flash = software.attention_backend is AttentionBackend.FLASH
    return flash and shapes.batch > 1 and software.dialect is not Dialect.TORCHTITAN


def _kernel(core: Core, shapes: Shapes, *, backward: bool) -> AttentionKernel:
    """The kernel of one device: context parallelism divides heads where it exchanges them, and queries elsewhere."""
    exchange = shapes.context_exchange
    heads, groups = (max(1, count // exchange) for count in (core.heads, core.key_value_heads))
    return AttentionKernel(
        batch=shapes.batch,
        heads=heads,
        key_value_heads=groups,
        query_length=shapes.sequence * exchange // shapes.context,
        key_length=shapes.sequence,
        query_key_dim=core.query_key_dim,
        value_dim=core.value_dim,
        window=core.window,
        chunk=core.chunk,
        packed=shapes.packed,
        backward=backward,
        flash=shapes.software.flash_attention,
        backend=shapes.software.attention_backend,
        deterministic=shapes.software.deterministic,
    )


def _exchange(core: Core, shapes: Shapes) -> tuple[Work, ...]:
    """Context-parallel traffic of one forward pass (Transformer Engine context_parallel.py).

    Under a2a+p2p a ring passes on keys and values of the heads that a rank has behind the exchange, over the tokens of
    its group: as many bytes as its own of all heads.
    """
    if shapes.context == 1:
        return ()
    key_value = shapes.element * shapes.tokens * core.key_value_heads * (core.query_key_dim + core.value_dim)
    exchanged = _packed_bytes(core, shapes) + shapes.element * shapes.tokens * core.heads * core.value_dim
    if shapes.context_communication == "a2a":
        return (_context(CollectiveKind.ALL_TO_ALL, exchanged),)
    if shapes.context_communication == "all_gather":
        return (_context(CollectiveKind.ALL_GATHER, key_value * shapes.context),)
    if shapes.context_exchange == 1:
        return (_context(CollectiveKind.SEND_RECV, key_value * (shapes.context - 1)),)
    inner = _context(CollectiveKind.ALL_TO_ALL, exchanged, Group.CONTEXT_INNER)
    ring = key_value * (shapes.context // shapes.context_exchange - 1)
    return inner, _context(CollectiveKind.SEND_RECV, ring, Group.CONTEXT_OUTER)


def _context(kind: CollectiveKind, message: int, group: Group = Group.CONTEXT) -> Collective:
    return Collective(kind=kind, group=group, message_bytes=message)


def _reads_own_output(shapes: Shapes, *, gated: bool) -> bool:
    """Whether attention's backward reads the very tensor that enters the output projection.

    Flash kernels read their output, which a gate, context parallelism or a change of layout makes another tensor.
    """
    software = shapes.software
    own = gated or _copies_output(shapes) or keeps_own_output(shapes)
    return software.flash_attention and not own


def _keeps_original(shapes: Shapes) -> bool:
    """Whether the output projection keeps the 16-bit output of attention instead of a low-precision copy.

    Megatron-LM asks for it because attention keeps that output anyway, unless scaling is delayed (core/transformer/
    attention.py and multi_latent_attention.py, `set_save_original_input`; from Transformer Engine 2.6 on).
    """
    return shapes.low_precision is not None and not shapes.delayed_scaling and shapes.transformer_engine


def output_projection(full_inputs: int, inputs: int, shapes: Shapes, *, bias: bool, gated: bool = False) -> Operation:
    """The row-parallel projection back to the residual stream; keeps the attention output."""
    shared = _reads_own_output(shapes, gated=gated)
    kept: tuple[SavedTensor, ...]
    if _keeps_original(shapes):
        # Where attention reads the same tensor, attention lists it.
        original = SavedTensor(name="input", size_bytes=shapes.element * shapes.tokens * inputs, only_for_weights=True)
        kept = () if shared else (original,)
    else:
        # Of a low-precision copy attention keeps the 16-bit original itself.
        lone = not shared or shapes.low_precision is not None
        kept = (replace(kept_input(shapes, shapes.tokens * inputs), only_for_weights=lone),)
    return linear(
        Linear(
            name="self_attention.linear_proj",
            component=COMPONENT,
            outputs=shapes.hidden,
            inputs=inputs,
            full_elements=full_inputs * shapes.hidden,
            split=Split.ROW,
            bias=shapes.hidden if bias else 0,
            full_bias=shapes.hidden if bias else 0,
            saves=kept,
            gradient_above_bytes=shapes.residual_bytes,
            input_kept=shared,
        ),
        shapes,
    )
