"""Megatron-LM's model arguments, as Primus states them -> `ModelArchitecture`.

Defaults are those of Megatron-LM's argument parser (megatron/training/arguments.py), which apply to whatever no preset
states. What the configuration runs counts, not what the model's name suggests: a preset without a sliding window runs
without one.
"""

from dataclasses import replace

from projector.config.keys import Keys
from projector.config.megatron.compressed import residual_streams
from projector.config.megatron.frequency import all_but_every, frequency
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
    "alibi": PositionKind.NONE,
}


def architecture(keys: Keys, notes: Notes, *, name: str) -> ModelArchitecture:
    """The model, called `name`; raises `ConfigurationError` for keys that are missing or of the wrong type."""
    position, table = _position(keys, notes), keys.integer("max_position_embeddings", 0)
    layers = _layers(keys, notes)
    return ModelArchitecture(
        name=name,
        hidden=keys.required("hidden_size"),
        layers=layers,
        vocabulary=vocabulary(keys, notes),
        tied_embeddings=not keys.boolean("untie_embeddings_and_output_weights"),
        norm=_NORMS[keys.choice("normalization", "LayerNorm", _NORMS)],
        position=position,
        rotary_share=_rotary_share(keys),
        max_position=table if position is PositionKind.LEARNED else 0,
        multi_token_prediction_layers=keys.integer("mtp_num_layers", 0, maximum=MAXIMUM_LAYERS),
        residual_streams=residual_streams(keys),
    )


def _position(keys: Keys, notes: Notes) -> PositionKind:
    """How positions enter; the two older flags win over the choice (megatron/training/arguments.py)."""
    choice = keys.choice("position_embedding_type", "learned_absolute", _POSITIONS)
    stated = _POSITIONS[choice]
    if choice == "relative":
        notes.not_modelled(
            "relative position biases",
            where=keys.place("position_embedding_type"),
            effect="their tables, and attention that adds a bias to every score, are left out",
            decides=True,
        )
    if choice == "alibi":
        notes.not_modelled(
            "linear biases on attention scores (ALiBi)",
            where=keys.place("position_embedding_type"),
            effect="their table, a number for each head and position, is not counted",
            decides=False,
        )
    if keys.boolean("use_rotary_position_embeddings"):
        return PositionKind.ROTARY
    table = keys.boolean("add_position_embedding", default=True)
    return PositionKind.NONE if stated is PositionKind.LEARNED and not table else stated


def _rotary_share(keys: Keys) -> float:
    share = keys.number("rotary_percent", 1.0)
    if not 0 < share <= 1:
        keys.wrong("rotary_percent", "a number above 0, up to 1")
    return share


def _layers(keys: Keys, notes: Notes) -> tuple[DecoderLayer, ...]:
    """The decoder layers: a mixer and a feed-forward block each, or by a hybrid pattern one block each."""
    pattern = layer_pattern(keys)
    count = len(pattern) if pattern else keys.required("num_layers", maximum=MAXIMUM_LAYERS)
    if count > MAXIMUM_LAYERS:
        message = f"{count} layers are more than {MAXIMUM_LAYERS}"
        raise ConfigurationError(message, place=keys.place("hybrid_layer_pattern"))
    latent = keys.boolean("multi_latent_attention") or "+" in pattern
    attention = [_latent_attention(keys, notes)] * count if latent else _attention(keys, notes, layers=count)
    if pattern:
        dense, sparse = _blocks(keys)
        return pattern_layers(pattern, keys, attention=attention, dense=dense, sparse=sparse)
    feed_forward = _feed_forward(keys, notes, layers=count)
    sequence = mixers(keys, notes, attention=attention)
    return tuple(
        DecoderLayer(mixer=mixer, feed_forward=block) for mixer, block in zip(sequence, feed_forward, strict=True)
    )


def _attention(keys: Keys, notes: Notes, *, layers: int) -> list[Attention]:
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
    sinks = keys.boolean("use_sink_attention") or learnable
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
    windows = _windows(keys, notes, sinks=sinks, layers=layers)
    kinds = {window: replace(full, window=window) for window in set(windows)}
    return [kinds[window] for window in windows]


def _windows(keys: Keys, notes: Notes, *, sinks: bool, layers: int) -> list[int | None]:
    """The window of each layer in tokens, by Megatron-LM's arguments, else by Primus's for attention with sinks.

    Megatron-LM counts the tokens to the left of the own one, -1 for all of them, and leaves every n-th layer without a
    window (megatron/core/transformer/utils.py).
    """
    flags = all_but_every(frequency(keys, "window_attn_skip_freq", notes, layers=layers), layers=layers)
    alternate = keys.boolean("sink_window_even_layers_only", default=True)
    sink_window = keys.integer("sink_sliding_window", 0) or None
    sides = keys.integers("window_size")
    if sides is not None:
        if len(sides) != 2 or min(sides) < -1:  # noqa: PLR2004 - left and right
            keys.wrong("window_size", "the tokens to the left and to the right, such as 128,0")
        window = sides[0] + 1 or None
        return [window if flag else None for flag in flags]
    return [None if not sinks or (alternate and index % 2) else sink_window for index in range(layers)]


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
    groups, chosen = _router_groups(keys, experts)
    sparse = MixtureOfExperts(
        experts=experts,
        top_k=keys.integer("moe_router_topk", 2, minimum=1, maximum=experts),
        expert_ffn=keys.integer("moe_ffn_hidden_size", minimum=1) or ffn,
        shared_ffn=keys.integer("moe_shared_expert_intermediate_size", 0),
        shared_gate=keys.boolean("moe_shared_expert_gate"),
        gated=gated,
        bias=bias,
        router_bias=bias,
        router_balance_bias=keys.boolean("moe_router_enable_expert_bias"),
        expert_groups=groups,
        chosen_groups=chosen,
    )
    narrow = [keys.integer(key) for key in ("routed_expert_hidden_size", "moe_latent_size")]
    return dense, UnmodelledMLP(name="mixture of experts in a narrower latent space") if any(narrow) else sparse


def _router_groups(keys: Keys, experts: int) -> tuple[int, int]:
    """Groups of experts, and how many of them a token chooses first: both are needed for a limit."""
    groups = keys.integer("moe_router_num_groups", minimum=1, maximum=experts)
    chosen = keys.integer("moe_router_group_topk", minimum=1, maximum=groups or experts)
    if groups is None or chosen is None:
        return 1, 1
    if experts % groups:
        keys.wrong("moe_router_num_groups", f"a divisor of the {experts} experts")
    return groups, chosen


def _is_gated(keys: Keys) -> bool:
    return keys.boolean("swiglu") | keys.boolean("quick_geglu") | keys.boolean("geglu")


def expert_layers(keys: Keys, notes: Notes, *, layers: int) -> list[bool]:
    """Which layers hold experts, by `moe_layer_freq`: every n-th from the first, or a flag for each layer."""
    found = frequency(keys, "moe_layer_freq", notes, layers=layers)
    return found if isinstance(found, list) else [index % (found or 1) == 0 for index in range(layers)]
