"""Attention whose projections are products of two smaller ones, as DeepSeek-V4 has them.

Queries come from a latent; one head of keys may serve as values too; the output of each group of heads is projected to
a few columns, and all groups together back to the residual stream (AMD-AGI/Primus
primus/backends/megatron/core/transformer/deepseek_v4_attention.py).
"""

from collections.abc import Sequence
from dataclasses import replace

from projector.job import Attention
from projector.layers.attention import COMPONENT
from projector.layers.blocks import Linear, kept_input, linear
from projector.layers.compressed_attention import attended, compressed_keys, prepared, query_norm
from projector.layers.latent_attention import latent_norm
from projector.layers.shapes import Shapes
from projector.operations import Operation, SavedTensor, Split


def factored(operations: Sequence[Operation], mixer: Attention, shapes: Shapes) -> tuple[Operation, ...]:
    """The operations of plain attention, its first and last projection factored where `mixer` has ranks for them."""
    first, *between, last = operations
    ahead = (first,) if mixer.query_lora_rank is None else _queries(mixer, mixer.query_lora_rank, first.saves, shapes)
    behind = (last,) if mixer.output_lora_rank is None else _output(mixer, mixer.output_lora_rank, last.saves, shapes)
    prepare, core = between
    keys = (*compressed_keys(mixer, shapes), prepared(prepare, mixer, shapes), attended(core, mixer, shapes))
    return (*ahead, *keys, *behind)


def _queries(mixer: Attention, rank: int, saves: tuple[SavedTensor, ...], shapes: Shapes) -> tuple[Operation, ...]:
    """Latent, its norm, queries; then keys and values from the same input, which the first of them keeps."""
    heads, groups = mixer.heads // shapes.tensor, max(1, mixer.key_value_heads // shapes.tensor)
    copies = 1 if mixer.shared_key_value else 2
    down = Linear(
        name="self_attention.linear_q_down_proj",
        component=COMPONENT,
        outputs=rank,
        inputs=shapes.hidden,
        full_elements=rank * shapes.hidden,
        split=Split.NONE,
        saves=saves,
        gradient_above_bytes=shapes.residual_bytes,
        tokens=shapes.local,
    )
    up = Linear(
        name="self_attention.linear_q_up_proj",
        component=COMPONENT,
        outputs=heads * mixer.head_dim,
        inputs=rank,
        full_elements=mixer.heads * mixer.head_dim * rank,
        split=Split.COLUMN,
        gradient_above_bytes=2 * shapes.residual_bytes,
    )
    keys = Linear(
        name="self_attention.linear_kv",
        component=COMPONENT,
        outputs=copies * groups * mixer.head_dim,
        inputs=shapes.hidden,
        full_elements=copies * mixer.key_value_heads * mixer.head_dim * shapes.hidden,
        split=Split.COLUMN,
        gradient_above_bytes=shapes.residual_bytes,
    )
    projected = (linear(down, shapes), latent_norm("q_layernorm", rank, shapes), linear(up, shapes))
    if not mixer.shared_key_value:
        return *projected, linear(keys, shapes)
    width = mixer.key_value_heads * mixer.head_dim
    normed = replace(latent_norm("kv_layernorm", width, shapes), recompute_module=None)
    # Nobody keeps the normed keys but attention.
    normed = replace(normed, saves=tuple(tensor for tensor in normed.saves if tensor.name != "output"))
    return *projected, query_norm(mixer, shapes), linear(keys, shapes), normed


def _output(mixer: Attention, rank: int, saves: tuple[SavedTensor, ...], shapes: Shapes) -> tuple[Operation, ...]:
    """Columns of each group of heads, then the way back to the residual stream."""
    inputs, columns = mixer.heads // shapes.tensor * mixer.head_dim, mixer.output_groups // shapes.tensor * rank
    inward = Linear(
        name="self_attention.linear_o_a",
        component=COMPONENT,
        outputs=rank,
        inputs=inputs,
        full_elements=mixer.heads * mixer.head_dim * rank,
        split=Split.NONE,
        saves=saves,
    )
    back = Linear(
        name="self_attention.linear_o_b",
        component=COMPONENT,
        outputs=shapes.hidden,
        inputs=columns,
        full_elements=mixer.output_groups * rank * shapes.hidden,
        split=Split.ROW,
        saves=(kept_input(shapes, shapes.tokens * columns),),
        gradient_above_bytes=shapes.residual_bytes,
    )
    # No rank gathers what the groups of heads on it are projected from.
    return replace(linear(inward, shapes), linear=None), linear(back, shapes)
