"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), as Megatron-LM multi_latent_attention.py runs it.

Queries come from a latent of their own or straight from the residual stream; keys and values from one shared latent,
with one rotary key for all heads. Down-projections are held whole by every tensor-parallel rank.
"""

from projector.job import Dialect, LatentAttention
from projector.layers.attention import (
    COMPONENT,
    Core,
    core_attention,
    output_projection,
    rotary_tables,
)
from projector.layers.blocks import (
    STEPWISE_BYTES,
    Linear,
    kept_input,
    linear,
    norm_weight,
    runs_stepwise,
    statistic_bytes,
)
from projector.layers.shapes import Shapes
from projector.operations import ElementWise, Operation, SavedTensor, Split

ROTARY_KERNELS = {True: (4, 4), False: (29, 22)}
"""Launches between projections and attention, forward and backward, by `rotary_fusion` (read in Megatron-LM core 0.12
and 0.16: slices, rotation, concatenation, expansion of the shared key)."""
UP_PROJECTION = "mla_up_proj"
"""Megatron's selective-recompute module of the up-projections and rotary."""


def latent_attention_operations(mixer: LatentAttention, shapes: Shapes) -> tuple[Operation, ...]:
    """Operations from the down-projections to the output projection, norms of the residual stream excluded."""
    heads = mixer.heads // shapes.tensor
    core = Core(
        heads=heads,
        key_value_heads=heads,
        query_key_dim=mixer.query_key_nope_dim + mixer.query_key_rope_dim,
        value_dim=mixer.value_dim,
    )
    return (
        *_query(mixer, heads, shapes),
        *_key_value(mixer, heads, shapes),
        _assemble(mixer, heads, shapes),
        core_attention(core, shapes),
        output_projection(mixer.heads * mixer.value_dim, heads * mixer.value_dim, shapes, bias=False),
    )


def _query(mixer: LatentAttention, heads: int, shapes: Shapes) -> tuple[Operation, ...]:
    head = mixer.query_key_nope_dim + mixer.query_key_rope_dim
    rank = mixer.query_lora_rank
    if rank is None:
        return (_up("linear_q_proj", heads * head, mixer.heads * head, shapes.hidden, shapes),)
    return (
        _down("linear_q_down_proj", rank, shapes),
        latent_norm("q_layernorm", rank, shapes),
        _up("linear_q_up_proj", heads * head, mixer.heads * head, rank, shapes),
    )


def _key_value(mixer: LatentAttention, heads: int, shapes: Shapes) -> tuple[Operation, ...]:
    head = mixer.query_key_nope_dim + mixer.value_dim
    rank = mixer.key_value_lora_rank
    return (
        _down("linear_kv_down_proj", rank + mixer.query_key_rope_dim, shapes),
        latent_norm("kv_layernorm", rank, shapes, beside=mixer.query_key_rope_dim),
        _up("linear_kv_up_proj", heads * head, mixer.heads * head, rank, shapes),
    )


def _down(name: str, outputs: int, shapes: Shapes) -> Operation:
    """A down-projection; its input is the norm's output, which the norm lists."""
    return linear(
        Linear(
            name=f"self_attention.{name}",
            component=COMPONENT,
            outputs=outputs,
            inputs=shapes.hidden,
            full_elements=outputs * shapes.hidden,
            split=Split.NONE,
            gradient_above_bytes=shapes.residual_bytes,
            tokens=shapes.local,
        ),
        shapes,
    )


def _up(name: str, outputs: int, full_outputs: int, inputs: int, shapes: Shapes) -> Operation:
    """An up-projection to heads; its input is the latent norm's output, which that norm lists."""
    return linear(
        Linear(
            name=f"self_attention.{name}",
            component=COMPONENT,
            outputs=outputs,
            inputs=inputs,
            full_elements=full_outputs * inputs,
            split=Split.COLUMN,
            module=UP_PROJECTION,
            gradient_above_bytes=2 * shapes.residual_bytes,
        ),
        shapes,
    )


def latent_norm(name: str, rank: int, shapes: Shapes, *, beside: int = 0) -> Operation:
    """Norm of a latent; keeps its input and its output.

    Megatron-LM divides latents along the sequence like the residual stream; TorchTitan gathers before them. There the
    input is a view, which holds the columns `beside` it too (torchtitan/models/deepseek_v3/model/model.py).
    """
    titan = shapes.software.dialect is Dialect.TORCHTITAN
    rows = shapes.tokens if titan else shapes.local
    size = shapes.element * rows * rank
    stepwise = runs_stepwise(shapes, compiled=shapes.software.compiled_layers)
    wide = (SavedTensor(name="fp32_input", size_bytes=STEPWISE_BYTES * rows * rank),) if stepwise else ()
    held = shapes.element * rows * beside if titan and not stepwise else 0
    return Operation(
        name=f"self_attention.{name}",
        component=COMPONENT,
        forward=(ElementWise(name=f"{shapes.norm.value}_norm", bytes_read=size, bytes_written=size),),
        backward_input=(
            ElementWise(name=f"{shapes.norm.value}_norm_backward", bytes_read=2 * size, bytes_written=size, kernels=2),
        ),
        weights=norm_weight(name, rank, shapes),
        saves=(
            SavedTensor(name="input", size_bytes=size + held),
            SavedTensor(name="statistics", size_bytes=statistic_bytes(shapes) * rows),
            *wide,
            kept_input(shapes, rows * rank, name="output"),
        ),
        scratch_forward_bytes=size,
        scratch_backward_bytes=2 * shapes.residual_bytes + 2 * size,
    )


def _assemble(mixer: LatentAttention, heads: int, shapes: Shapes) -> Operation:
    """Rotate and concatenate into contiguous queries and keys; keeps them and the values.

    With the fused kernel queries rotate in place; without it they are copied. Either way Transformer Engine wants
    contiguous values, so that the packed key/value projection is freed; in TorchTitan values are a view that holds it.
    """
    row = shapes.element * shapes.tokens * heads
    query = row * (mixer.query_key_nope_dim + mixer.query_key_rope_dim)
    value = row * mixer.value_dim
    if shapes.software.dialect is Dialect.TORCHTITAN:
        value += row * mixer.query_key_nope_dim
    moved, returned = (
        ElementWise(
            name="latent_rotary",
            bytes_read=2 * query + value,
            bytes_written=2 * query + value,
            kernels=kernels,
            functions=2 if shapes.software.rotary_fusion else 0,
        )
        for kernels in ROTARY_KERNELS[shapes.software.rotary_fusion]
    )
    return Operation(
        name="self_attention.rotary",
        component=COMPONENT,
        forward=(moved,),
        backward_input=(returned,),
        saves=(
            SavedTensor(name="query", size_bytes=query),
            SavedTensor(name="key", size_bytes=query),
            SavedTensor(name="value", size_bytes=value),
            *rotary_tables(shapes, mixer.query_key_rope_dim),
        ),
        scratch_forward_bytes=query + value,
        scratch_backward_bytes=shapes.residual_bytes + 2 * (2 * query + value),
        recompute_module=UP_PROJECTION,
    )
