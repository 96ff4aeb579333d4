"""What autograd keeps of a layer as the classes of Hugging Face transformers write it.

Linear layers, residual additions and the order of operations are those of any eager PyTorch layer; here stands where
these classes keep other tensors than TorchTitan's (transformers 5.24.0, src/transformers/models/*/modeling_*.py and
integrations/{sdpa_attention,moe}.py). The sizes are those that torch itself reports for the classes on a GPU.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from projector.job import (
    Attention,
    DecoderLayer,
    DenseMLP,
    LatentAttention,
    MixtureOfExperts,
    ModuleForms,
    NormForm,
    NormKind,
)
from projector.layers.blocks import runs_stepwise
from projector.layers.shapes import Shapes
from projector.operations import Operation, SavedTensor

FP32_BYTES, INDEX_BYTES, MASK_BYTES = 4, 8, 1
ORDER_INDICES = 3
"""Index tensors of a grouped product of experts, an entry per token and choice: the order of tokens by expert, each
one's expert, and its token (integrations/moe.py `grouped_mm_experts_forward`)."""
OFFSET_BYTES = 4
"""Where an expert's rows end."""
Saves = tuple[SavedTensor, ...]


def as_classes_keep(
    operations: tuple[Operation, ...], layer: DecoderLayer | None, shapes: Shapes
) -> tuple[Operation, ...]:
    """The operations of a layer, or of the model's end without a `layer`, with what the classes keep of them."""
    forms = shapes.modules
    if forms is None:
        return operations
    return tuple(_as_class_keeps(operation, layer, shapes, forms) for operation in operations)


def shared_tables(shapes: Shapes) -> Saves:
    """Cosine and sine tables, which the model makes once a pass and every layer's backward reads."""
    forms = shapes.modules
    if forms is None or not forms.rotary_width:
        return ()
    return (_tables(shapes, forms),)


def _tables(shapes: Shapes, forms: ModuleForms) -> SavedTensor:
    row = 2 * forms.rotary_width * (FP32_BYTES if forms.wide_rotary else shapes.element)
    return SavedTensor(name="rotary_tables", size_bytes=row * shapes.sequence // shapes.context)


def _as_class_keeps(operation: Operation, layer: DecoderLayer | None, shapes: Shapes, forms: ModuleForms) -> Operation:
    saves = _norms(operation, shapes, forms)
    if layer is not None:
        kept = _KEEPS.get(operation.name)
        saves = saves if kept is None else kept(saves, layer, shapes, forms)
    return replace(operation, saves=saves)


def _norms(operation: Operation, shapes: Shapes, forms: ModuleForms) -> Saves:
    """RMS norms that multiply in fp32 keep their normalised input so, beside the fp32 copy of the input.

    One plus the weight is a tensor of its own, in fp32 where the norm runs step by step.
    """
    compiled = shapes.software.compiled_layers and operation.component != "final_norm"
    stepwise = runs_stepwise(shapes, compiled=compiled)
    if forms.norm is NormForm.ROUNDED or not (stepwise or shapes.norm is NormKind.LAYER):
        return operation.saves
    saves = list(operation.saves)
    names = [tensor.name for tensor in saves]
    if "fp32_input" in names:
        wide = saves[names.index("fp32_input")].size_bytes
        at = names.index("input")
        saves[at] = replace(saves[at], size_bytes=wide)
    if "query_key_before_norm" in names:
        at = names.index("query_key_before_norm")
        narrow, wide = shapes.element + FP32_BYTES, 2 * FP32_BYTES
        saves[at] = replace(saves[at], size_bytes=saves[at].size_bytes // narrow * wide)
    norms = [weight for weight in operation.weights if weight.name.endswith("norm.weight")]
    shifted = (FP32_BYTES if stepwise else shapes.element) * sum(weight.elements for weight in norms)
    if forms.norm is NormForm.SHIFTED and shifted:
        saves.append(SavedTensor(name="shifted_weight", size_bytes=shifted))
    return tuple(saves)


def _heads(saves: Saves, layer: DecoderLayer, shapes: Shapes, forms: ModuleForms) -> Saves:
    """Tables are shared by all layers; values that go into a kernel as they are hold the projection they are part of.

    Without a fused kernel, and where heads are repeated for a mask, products work on copies of them.
    """
    kept = {tensor.name: tensor for tensor in saves if tensor.name != "rotary_tables"}
    if forms.copied_rotary:
        kept["rotary_tables"] = _tables(shapes, forms)
    mixer, row = layer.mixer, shapes.element * shapes.tokens
    as_they_are = shapes.software.flash_attention
    if isinstance(mixer, LatentAttention):
        width = mixer.value_dim + (mixer.query_key_nope_dim if as_they_are else 0)
        kept["value"] = SavedTensor(name="value", size_bytes=row * mixer.heads // shapes.tensor * width)
    elif isinstance(mixer, Attention) and forms.packed_values and as_they_are and not _masked(mixer, shapes, forms):
        others = (mixer.heads + mixer.key_value_heads) // shapes.tensor * mixer.head_dim
        kept["packed_projection"] = SavedTensor(name="packed_projection", size_bytes=row * others)
    return tuple(kept.values())


def _core(saves: Saves, layer: DecoderLayer, shapes: Shapes, forms: ModuleForms) -> Saves:
    if not isinstance(layer.mixer, Attention | LatentAttention):
        return saves
    heads, key_value_heads = _head_counts(layer.mixer, shapes)
    if not shapes.software.flash_attention:
        return (*_repeated(layer.mixer, heads - key_value_heads, shapes), *_scores(layer.mixer, heads, shapes, forms))
    if _masked(layer.mixer, shapes, forms):
        mask = shapes.element * shapes.batch * shapes.sequence * shapes.sequence // shapes.context
        repeated = _repeated(layer.mixer, heads - key_value_heads, shapes)
        return (*saves, *repeated, SavedTensor(name="mask", size_bytes=mask))
    copied = _copied_width(layer.mixer, forms)
    if copied:
        size = shapes.element * shapes.tokens * heads * copied
        return (*saves, SavedTensor(name="layout_copy", size_bytes=size))
    return saves


def _copied_width(mixer: Attention | LatentAttention, forms: ModuleForms) -> int:
    """Width of a head of an output whose layout the flash kernel takes from joined queries; 0 for none.

    Queries of latent attention are always joined; where values are narrower, another kernel runs, which puts tokens
    first.
    """
    if isinstance(mixer, Attention):
        return mixer.head_dim if forms.joined_heads else 0
    wide = mixer.query_key_nope_dim + mixer.query_key_rope_dim
    return mixer.value_dim if wide == mixer.value_dim else 0


def _head_counts(mixer: Attention | LatentAttention, shapes: Shapes) -> tuple[int, int]:
    heads = mixer.heads // shapes.tensor
    if isinstance(mixer, LatentAttention):
        return heads, heads
    return heads, max(1, mixer.key_value_heads // shapes.tensor)


def _masked(mixer: Attention | LatentAttention, shapes: Shapes, forms: ModuleForms) -> bool:
    """Whether a mask tensor stands for a window (transformers masking_utils.py `_ignore_causal_mask_sdpa`)."""
    if isinstance(mixer, LatentAttention) or not forms.masked_windows:
        return False
    reach = mixer.window or mixer.chunk
    return reach is not None and shapes.sequence >= reach


def _repeated(mixer: Attention | LatentAttention, more_heads: int, shapes: Shapes) -> Saves:
    """Keys and values for the query heads that share them (`repeat_kv`), beyond those that are kept anyway."""
    if isinstance(mixer, LatentAttention) or not more_heads or shapes.software.repeated_key_values:
        return ()
    size = 2 * shapes.element * shapes.tokens * more_heads * mixer.head_dim
    return (SavedTensor(name="repeated_key_value", size_bytes=size),)


def _scores(mixer: Attention | LatentAttention, heads: int, shapes: Shapes, forms: ModuleForms) -> Saves:
    """Softmax runs in fp32 and is rounded for the product with the values (`eager_attention_forward`).

    Dropout keeps a mask beside what it gives. With sinks a column joins the scores, softmax runs in the activation's
    format behind the subtraction of each row's maximum, whose place is kept, and the product reads a view of it.
    """
    rows = shapes.batch * heads * shapes.sequence // shapes.context
    scores, element = rows * shapes.sequence, shapes.element
    if isinstance(mixer, Attention) and mixer.sinks:
        return (SavedTensor(name="scores", size_bytes=element * (scores + rows) + INDEX_BYTES * rows),)
    dropout = shapes.software.attention_dropout > 0
    softmax = element if forms.narrow_scores else FP32_BYTES
    rounded = element if dropout or element < softmax else 0
    each = softmax + rounded + (MASK_BYTES if dropout else 0) + (element if forms.capped_scores else 0)
    return (SavedTensor(name="scores", size_bytes=each * scores),)


def _second_norm(saves: Saves, _layer: DecoderLayer, _shapes: Shapes, forms: ModuleForms) -> Saves:
    """Blocks side by side normalise one tensor, which the first norm lists."""
    return tuple(tensor for tensor in saves if not (forms.parallel_blocks and tensor.name == "input"))


def _activation(saves: Saves, layer: DecoderLayer, shapes: Shapes, forms: ModuleForms) -> Saves:
    block = layer.feed_forward
    if not isinstance(block, DenseMLP) or block.gated or not shapes.eager:
        return saves
    return tuple(replace(tensor, size_bytes=forms.dense_tensors * tensor.size_bytes) for tensor in saves)


def _expert_activation(saves: Saves, _layer: DecoderLayer, _shapes: Shapes, forms: ModuleForms) -> Saves:
    return tuple(
        replace(tensor, size_bytes=forms.expert_tensors * tensor.size_bytes) if tensor.name == "activated" else tensor
        for tensor in saves
    )


def _router(_saves: Saves, layer: DecoderLayer, shapes: Shapes, forms: ModuleForms) -> Saves:
    block = _experts(layer)
    size = shapes.local * (
        forms.router_token_bytes + forms.router_expert_bytes * block.experts + forms.router_choice_bytes * block.top_k
    )
    kept = [SavedTensor(name="probabilities", size_bytes=size)]
    if forms.wide_router_input:
        kept.append(SavedTensor(name="fp32_input", size_bytes=FP32_BYTES * shapes.local * shapes.hidden))
    return tuple(kept)


def _dispatch(_saves: Saves, layer: DecoderLayer, shapes: Shapes, _forms: ModuleForms) -> Saves:
    block = _experts(layer)
    indices = ORDER_INDICES * INDEX_BYTES * shapes.local * block.top_k
    return (SavedTensor(name="order", size_bytes=indices + OFFSET_BYTES * (block.experts // shapes.expert)),)


def _combine(_saves: Saves, layer: DecoderLayer, shapes: Shapes, _forms: ModuleForms) -> Saves:
    """Outputs of experts before their scores weight them."""
    size = shapes.element * shapes.local * _experts(layer).top_k * shapes.hidden
    return (SavedTensor(name="weighted_tokens", size_bytes=size),)


def _shared_gate(saves: Saves, _layer: DecoderLayer, shapes: Shapes, _forms: ModuleForms) -> Saves:
    return (*saves, SavedTensor(name="gate", size_bytes=shapes.element * shapes.local))


def _experts(layer: DecoderLayer) -> MixtureOfExperts:
    if not isinstance(layer.feed_forward, MixtureOfExperts):
        raise TypeError("only layers with experts route")
    return layer.feed_forward


_KEEPS: Mapping[str, Callable[[Saves, DecoderLayer, Shapes, ModuleForms], Saves]] = {
    "self_attention.rotary": _heads,
    "self_attention.core_attention": _core,
    "pre_mlp_layernorm": _second_norm,
    "mlp.activation": _activation,
    "mlp.router": _router,
    "mlp.shared_expert.gate": _shared_gate,
    "mlp.dispatch": _dispatch,
    "mlp.experts.activation": _expert_activation,
    "mlp.combine": _combine,
}
"""What the classes keep otherwise, by operation."""
