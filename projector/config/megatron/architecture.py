"""Megatron-LM's model arguments, as Primus states them -> `ModelArchitecture`.

Defaults are those of Megatron-LM's argument parser (megatron/training/arguments.py), which apply to whatever no preset
states. What the configuration runs counts, not what the model's name suggests: a preset without a sliding window runs
without one.
"""

from dataclasses import replace

from projector.config.keys import Keys
from projector.config.megatron.hybrid import layer_pattern, mixers, pattern_layers
from projector.config.megatron.vocabulary import vocabulary
from projector.config.notes import Notes
from projector.errors import ConfigurationError, LayoutImpossible
from projector.job import (
    Attention,
    DecoderLayer,
    DenseMLP,
    FeedForward,
    LatentAttention,
    MixtureOfExperts,
    ModelArchitecture,
    NormKind,
    PositionKind,
    UnmodelledMLP,
)
from projector.job.limits import MAXIMUM_LAYERS

_NORMS = {"RMSNorm": NormKind.RMS, "LayerNorm": NormKind.LAYER}
_POSITIONS = {
    "rope": PositionKind.ROTARY,
    "yarn": PositionKind.ROTARY,
    "mrope": PositionKind.ROTARY,
    "relative": PositionKind.NONE,
    "learned_absolute": PositionKind.LEARNED,
    "none": PositionKind.NONE,
}


def architecture(keys: Keys, notes: Notes, *, name: str) -> ModelArchitecture:
    """The model, called `name`; raises `ConfigurationError` for keys that are missing or of the wrong type."""
    position = _position(keys)
    layers = _layers(keys, notes)
    return ModelArchitecture(
        name=name,
        hidden=keys.required("hidden_size"),
        layers=layers,
        vocabulary=vocabulary(keys, notes),
        tied_embeddings=not keys.boolean("untie_embeddings_and_output_weights"),
        norm=_NORMS[keys.choice("normalization", "LayerNorm", _NORMS)],
        position=position,
        max_position=keys.integer("max_position_embeddings", 0),
        multi_token_prediction_layers=keys.integer("mtp_num_layers", 0, maximum=MAXIMUM_LAYERS),
    )


def _position(keys: Keys) -> PositionKind:
    """How positions enter; the two older flags win over the choice (megatron/training/arguments.py)."""
    stated = _POSITIONS[keys.choice("position_embedding_type", "learned_absolute", _POSITIONS)]
    if keys.boolean("use_rotary_position_embeddings"):
        return PositionKind.ROTARY
    table = keys.boolean("add_position_embedding", default=True)
    return PositionKind.NONE if stated is PositionKind.LEARNED and not table else stated


def _layers(keys: Keys, notes: Notes) -> tuple[DecoderLayer, ...]:
    """The decoder layers: a mixer and a feed-forward block each, or by a hybrid pattern one block each."""
    pattern = layer_pattern(keys)
    count = len(pattern) if pattern else keys.required("num_layers", maximum=MAXIMUM_LAYERS)
    if count > MAXIMUM_LAYERS:
        message = f"{count} layers are more than {MAXIMUM_LAYERS}"
        raise ConfigurationError(message, place=keys.place("hybrid_layer_pattern"))
    latent = keys.boolean("multi_latent_attention") or "+" in pattern
    full = [_latent_attention(keys, notes)] * count if latent else _attention(keys, layers=count)
    if pattern:
        dense, sparse = _blocks(keys)
        return pattern_layers(pattern, keys, attention=full[0], dense=dense, sparse=sparse)
    feed_forward = _feed_forward(keys, notes, layers=count)
    sequence = mixers(keys, full=full)
    return tuple(
        DecoderLayer(mixer=mixer, feed_forward=block) for mixer, block in zip(sequence, feed_forward, strict=True)
    )


def _attention(keys: Keys, *, layers: int) -> list[Attention]:
    heads = keys.required("num_attention_heads")
    grouped, groups = keys.boolean("group_query_attention"), keys.integer("num_query_groups", minimum=1)
    head_dim = keys.integer("kv_channels", minimum=1)
    hidden = keys.required("hidden_size")
    if head_dim is None:
        if hidden % heads:
            message = f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}"
            raise LayoutImpossible(message, place=keys.place("num_attention_heads"), expected="state kv_channels")
        head_dim = hidden // heads
    shared = groups if grouped and groups is not None else heads
    if heads % shared:
        message = f"{heads} attention heads do not divide over {shared} groups"
        raise LayoutImpossible(message, place=keys.place("num_query_groups"), expected=f"a divisor of {heads}")
    bias, bias_qkv = keys.boolean("add_bias_linear", default=True), keys.boolean("add_qkv_bias")
    learnable = keys.choice("softmax_type", "vanilla", ("vanilla", "off-by-one", "learnable")) == "learnable"
    sinks, window = keys.boolean("use_sink_attention") or learnable, keys.integer("sink_sliding_window", 0) or None
    full = Attention(
        heads=heads,
        key_value_heads=shared,
        head_dim=head_dim,
        query_key_norm=keys.boolean("qk_layernorm"),
        bias_qkv=bias or bias_qkv,
        bias_output=bias,
        output_gate=keys.boolean("attention_output_gate"),
        sinks=sinks,
    )
    sliding = replace(full, window=window) if sinks else full
    alternate = keys.boolean("sink_window_even_layers_only", default=True)
    return [full if alternate and index % 2 else sliding for index in range(layers)]


def _latent_attention(keys: Keys, notes: Notes) -> LatentAttention:
    if not keys.boolean("qk_layernorm"):
        notes.not_modelled(
            "multi-latent attention without norms on its latents (qk_layernorm: false)",
            where=keys.place("qk_layernorm"),
            effect="two small norms a layer are counted that the run does not have",
            decides=False,
        )
    return LatentAttention(
        heads=keys.required("num_attention_heads"),
        query_lora_rank=keys.integer("q_lora_rank", minimum=1),
        key_value_lora_rank=keys.integer("kv_lora_rank", 32, minimum=1),
        query_key_nope_dim=keys.integer("qk_head_dim", 128, minimum=1),
        query_key_rope_dim=keys.integer("qk_pos_emb_head_dim", 64, minimum=1),
        value_dim=keys.integer("v_head_dim", 128, minimum=1),
    )


def _feed_forward(keys: Keys, notes: Notes, *, layers: int) -> list[FeedForward]:
    dense, sparse = _blocks(keys)
    pattern = expert_layers(keys, notes, layers=layers)
    return [dense if sparse is None or not flag else sparse for flag in pattern]


def _blocks(keys: Keys) -> tuple[DenseMLP, MixtureOfExperts | UnmodelledMLP | None]:
    """The plain feed-forward block, and the experts where there are any."""
    hidden, gated = keys.required("hidden_size"), _is_gated(keys)
    # Without a stated width Megatron-LM keeps the parameters of a gated block near those of 4 x hidden.
    unstated = int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden
    ffn = keys.integer("ffn_hidden_size", minimum=1) or unstated
    bias = keys.boolean("add_bias_linear", default=True)
    dense = DenseMLP(ffn=ffn, gated=gated, bias=bias)
    experts = keys.integer("num_experts")
    if not experts:
        return dense, None
    sparse = MixtureOfExperts(
        experts=experts,
        top_k=keys.integer("moe_router_topk", 2, minimum=1, maximum=experts),
        expert_ffn=keys.integer("moe_ffn_hidden_size", minimum=1) or ffn,
        shared_ffn=keys.integer("moe_shared_expert_intermediate_size", 0),
        shared_gate=keys.boolean("moe_shared_expert_gate"),
        gated=gated,
        bias=bias,
        router_balance_bias=keys.boolean("moe_router_enable_expert_bias"),
    )
    narrow = [keys.integer(key) for key in ("routed_expert_hidden_size", "moe_latent_size")]
    return dense, UnmodelledMLP(name="mixture of experts in a narrower latent space") if any(narrow) else sparse


def _is_gated(keys: Keys) -> bool:
    return keys.boolean("swiglu") | keys.boolean("quick_geglu") | keys.boolean("geglu")


def expert_layers(keys: Keys, notes: Notes, *, layers: int) -> list[bool]:
    """Which layers hold experts, by `moe_layer_freq`: n (every n-th, from the first), a list of 0 and 1, an expression.

    A longer list is cut, so that a proxy with fewer layers keeps the pattern's beginning; a shorter one is an error.
    """
    key = "moe_layer_freq"
    value = keys.raw(key)
    if isinstance(value, str):
        value = keys.integers(key)
        value = value[0] if value is not None and len(value) == 1 and layers > 1 else value
    if value is None:
        value = 1
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 1:
            keys.wrong(key, "an integer of at least 1, or a list of 0 and 1")
        return [index % value == 0 for index in range(layers)]
    pattern = keys.integers(key)
    if pattern is None or any(flag not in {0, 1} for flag in pattern):
        keys.wrong(key, "an integer of at least 1, or a list of 0 and 1")
    return [bool(flag) for flag in cut(pattern, keys, key, notes, layers=layers)]


def cut(pattern: list[int], keys: Keys, key: str, notes: Notes, *, layers: int) -> list[int]:
    """The first `layers` entries of a pattern per layer; raises `ConfigurationError` when it is shorter."""
    if len(pattern) < layers:
        message = f"{len(pattern)} entries for {layers} layers"
        expected = f"{layers} entries, or a period as an integer"
        raise ConfigurationError(message, place=keys.place(key), expected=expected)
    if len(pattern) > layers:
        notes.assume(
            f"the first {layers} of {len(pattern)} entries of {key}",
            f"num_layers is {layers}; a longer pattern is cut, as for a proxy of a deeper model",
        )
    return pattern[:layers]
