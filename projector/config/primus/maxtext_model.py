"""MaxText's model keys -> `ModelArchitecture`, and a model of the catalog in MaxText's keys.

Names and meaning: AI-Hypercomputer/maxtext 0.2.5, src/maxtext/configs/base.yml and the decoder blocks in
src/maxtext/models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from projector import catalog
from projector.config.keys import Keys
from projector.errors import ConfigurationError, LayoutImpossible, NotAvailable, PresetUnknown, shown
from projector.job import (
    Attention,
    DecoderLayer,
    DenseMLP,
    FeedForward,
    LatentAttention,
    MixtureOfExperts,
    ModelArchitecture,
)
from projector.job.limits import MAXIMUM_LAYERS
from projector.provenance import ConfigValue, Source

_DENSE_BLOCKS = ("llama2", "mistral", "qwen2", "qwen3")
_EXPERT_BLOCKS = ("mixtral", "qwen3_moe")
BLOCKS = (*_DENSE_BLOCKS, *_EXPERT_BLOCKS, "deepseek")
"""Values of `decoder_block` whose layers are read; all are pre-norm with RMS norms and rotary positions."""
KEYS = (
    "base_emb_dim",
    "base_num_decoder_layers",
    "base_num_query_heads",
    "base_num_kv_heads",
    "base_mlp_dim",
    "base_moe_mlp_dim",
    "head_dim",
    "mlp_activations",
    "mlp_bias",
    "attention_bias",
    "use_qk_norm",
    "attention_type",
    "decoder_block",
    "vocab_size",
    "logits_via_embedding",
    "num_experts",
    "num_experts_per_tok",
    "shared_experts",
    "first_num_dense_layers",
    "routed_bias",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
)
"""Keys that state the architecture."""


def named(name: str, keys: Keys, *, names: Mapping[str, str]) -> ModelArchitecture:
    """The model that `model_name` means, with architecture keys that the file states beside it on top.

    `names` are MaxText's names that the catalog does not know. Raises `PresetUnknown`, and `NotAvailable` for keys
    beside a model that they cannot describe.
    """
    try:
        model = catalog.model(names.get(name, name)).architecture
    except PresetUnknown as error:
        message = f"the catalog has no model {shown(name)}"
        expected = f"{error.expected}, or model_name: default with the architecture's keys"
        raise PresetUnknown(message, place=keys.place("model_name"), expected=expected) from None
    model = replace(model, name=name)
    stated = {key: keys.raw(key) for key in KEYS if keys.values.get(key) is not None}
    vocabulary = stated.pop("vocab_size", None)
    if vocabulary is not None:
        model = replace(model, vocabulary=keys.required("vocab_size"))
    if not stated:
        return model
    described = {
        key: ConfigValue(key=key, value=value, source=Source.CATALOG) for key, value in _in_own_keys(model).items()
    }
    plain = replace(model, multi_token_prediction_layers=0, max_position=0)
    if described_by(Keys(described), name=name) != plain:
        message = f"{', '.join(sorted(stated))} beside model_name {name!r} cannot be read"
        raise NotAvailable(message, place=keys.place(min(stated)), expected="the model as it is published")
    return described_by(Keys({**described, **keys.values}), name=name)


def described_by(keys: Keys, *, name: str) -> ModelArchitecture:
    """The model that the architecture keys describe.

    Raises `ConfigurationError`, `LayoutImpossible` for heads that do not divide, and `NotAvailable`.
    """
    block = keys.text("decoder_block", "llama2")
    if block not in BLOCKS:
        message = f"the decoder block {block!r} cannot be read from its keys"
        expected = f"one of {', '.join(BLOCKS)}, or model_name with a model of the catalog"
        raise NotAvailable(message, place=keys.place("decoder_block"), expected=expected)
    count = keys.integer("base_num_decoder_layers", 16, minimum=1, maximum=MAXIMUM_LAYERS)
    mixer = _mixer(keys)
    return ModelArchitecture(
        name=name,
        hidden=keys.integer("base_emb_dim", 2048, minimum=1),
        layers=tuple(DecoderLayer(mixer=mixer, feed_forward=part) for part in _feed_forward(keys, block, count)),
        vocabulary=keys.integer("vocab_size", 32_000, minimum=1),
        tied_embeddings=keys.boolean("logits_via_embedding"),
    )


def _mixer(keys: Keys) -> Attention | LatentAttention:
    heads = keys.integer("base_num_query_heads", 16, minimum=1)
    kind = keys.choice("attention_type", "global", ("global", "mla"))
    if kind == "mla":
        return LatentAttention(
            heads=heads,
            query_lora_rank=keys.integer("q_lora_rank", 0) or None,
            key_value_lora_rank=keys.integer("kv_lora_rank", 512, minimum=1),
            query_key_nope_dim=keys.integer("qk_nope_head_dim", 128, minimum=1),
            query_key_rope_dim=keys.integer("qk_rope_head_dim", 64, minimum=1),
            value_dim=keys.integer("v_head_dim", 128, minimum=1),
        )
    shared = keys.integer("base_num_kv_heads", 16, minimum=1)
    if heads % shared:
        message = f"{heads} query heads do not divide over {shared} key/value heads"
        raise LayoutImpossible(message, place=keys.place("base_num_kv_heads"), expected=f"a divisor of {heads}")
    return Attention(
        heads=heads,
        key_value_heads=shared,
        head_dim=keys.integer("head_dim", 128, minimum=1),
        query_key_norm=keys.boolean("use_qk_norm"),
        bias_qkv=keys.boolean("attention_bias"),
    )


def _feed_forward(keys: Keys, block: str, count: int) -> list[FeedForward]:
    gated = len(keys.texts("mlp_activations") or ("silu", "linear")) > 1
    dense = DenseMLP(ffn=keys.integer("base_mlp_dim", 7168, minimum=1), gated=gated, bias=keys.boolean("mlp_bias"))
    experts = keys.integer("num_experts", 1, minimum=1)
    if block in _DENSE_BLOCKS:
        if experts > 1:
            message = f"{experts} experts in the dense decoder block {block!r}"
            expected = f"decoder_block: {' or '.join((*_EXPERT_BLOCKS, 'deepseek'))}"
            raise ConfigurationError(message, place=keys.place("num_experts"), expected=expected)
        return [dense] * count
    same = keys.integer("base_moe_mlp_dim", -1, minimum=-1) == -1
    expert_ffn = dense.ffn if same else keys.required("base_moe_mlp_dim")
    deepseek = block == "deepseek"
    sparse = MixtureOfExperts(
        experts=experts,
        top_k=keys.integer("num_experts_per_tok", 1, minimum=1, maximum=experts),
        expert_ffn=expert_ffn,
        shared_ffn=keys.integer("shared_experts", 0) * expert_ffn if deepseek else 0,
        gated=gated,
        bias=dense.bias,
        router_balance_bias=keys.boolean("routed_bias"),
    )
    first = min(count, keys.integer("first_num_dense_layers", 0)) if deepseek else 0
    return [dense] * first + [sparse] * (count - first)


def _in_own_keys(model: ModelArchitecture) -> dict[str, Any]:
    """A model in MaxText's keys, as far as they have words for it."""
    mixer = model.layers[0].mixer
    return {
        "base_emb_dim": model.hidden,
        "base_num_decoder_layers": len(model.layers),
        "vocab_size": model.vocabulary,
        "logits_via_embedding": model.tied_embeddings,
        **_blocks_in_own_keys([layer.feed_forward for layer in model.layers]),
        **(_mixer_in_own_keys(mixer) if isinstance(mixer, Attention | LatentAttention) else {}),
    }


def _mixer_in_own_keys(mixer: Attention | LatentAttention) -> dict[str, Any]:
    if isinstance(mixer, LatentAttention):
        return {
            "attention_type": "mla",
            "base_num_query_heads": mixer.heads,
            "q_lora_rank": mixer.query_lora_rank or 0,
            "kv_lora_rank": mixer.key_value_lora_rank,
            "qk_nope_head_dim": mixer.query_key_nope_dim,
            "qk_rope_head_dim": mixer.query_key_rope_dim,
            "v_head_dim": mixer.value_dim,
        }
    return {
        "base_num_query_heads": mixer.heads,
        "base_num_kv_heads": mixer.key_value_heads,
        "head_dim": mixer.head_dim,
        "use_qk_norm": mixer.query_key_norm,
        "attention_bias": mixer.bias_qkv,
    }


def _blocks_in_own_keys(blocks: Sequence[FeedForward]) -> dict[str, Any]:
    dense = next((part for part in blocks if isinstance(part, DenseMLP)), None)
    sparse = next((part for part in blocks if isinstance(part, MixtureOfExperts)), None)
    block = dense or sparse
    if block is None:
        return {}
    values: dict[str, Any] = {
        "decoder_block": "deepseek" if sparse else "llama2",
        "mlp_activations": ["silu", "linear"] if block.gated else ["silu"],
        "mlp_bias": block.bias,
    }
    if dense is not None:
        values["base_mlp_dim"] = dense.ffn
    if sparse is None:
        return values
    return values | {
        "num_experts": sparse.experts,
        "num_experts_per_tok": sparse.top_k,
        "base_moe_mlp_dim": sparse.expert_ffn,
        "shared_experts": sparse.shared_ffn // sparse.expert_ffn,
        "first_num_dense_layers": next(index for index, part in enumerate(blocks) if part is sparse),
        "routed_bias": sparse.router_balance_bias,
    }
