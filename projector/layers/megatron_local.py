"""What Megatron-LM's own layers keep otherwise than those of Transformer Engine (megatron-core 0.16.1).

Attention is a chain of products and softmax (dot_product_attention.py), which repeats keys and values for every query
head that shares them; norms are torch's, which take views as they are.
"""

from dataclasses import replace

from projector.job import Attention, DecoderLayer, Dialect
from projector.layers.shapes import Shapes
from projector.operations import Operation, SavedTensor


def as_local_layers_keep(
    operations: tuple[Operation, ...], layer: DecoderLayer, shapes: Shapes
) -> tuple[Operation, ...]:
    """The operations of a layer with what Megatron-LM's own modules keep of them; others as they are."""
    mixer = layer.mixer
    if shapes.software.dialect is not Dialect.MEGATRON_LOCAL or not isinstance(mixer, Attention):
        return operations
    heads, groups = mixer.heads // shapes.tensor, max(1, mixer.key_value_heads // shapes.tensor)
    row = shapes.element * shapes.tokens * mixer.head_dim
    more: dict[str, SavedTensor] = {}
    if heads > groups and not shapes.software.flash_attention:
        more["self_attention.core_attention"] = SavedTensor(
            name="repeated_key_value", size_bytes=2 * row * (heads - groups)
        )
    if mixer.query_key_norm or mixer.query_key_norm_full:
        # Keys are a view of the packed projection, which stays with the values; queries are a copy where several groups
        # put keys and values between them, and then stay twice.
        copied = heads if groups > 1 else 0
        more["self_attention.rotary"] = SavedTensor(name="packed_projection", size_bytes=row * (copied + groups))
    return tuple(
        replace(operation, saves=(*operation.saves, more[operation.name])) if operation.name in more else operation
        for operation in operations
    )
