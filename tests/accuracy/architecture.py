"""The model columns of a row as a `ModelArchitecture`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from projector.config.expressions import evaluate
from projector.job import (
    Attention,
    DecoderLayer,
    DenseMLP,
    FeedForward,
    LatentAttention,
    Mixer,
    MixtureOfExperts,
    ModelArchitecture,
    NormKind,
    PositionKind,
)

POSITIONS = {"learned": PositionKind.LEARNED, "alibi": PositionKind.NONE, "rope": PositionKind.ROTARY}


DEEPSEEK_V4: Mapping[str, Any] = {
    "query_lora_rank": 1024,
    "shared_key_value": True,
    "output_lora_rank": 1024,
    "output_groups": 8,
    "window": 128,
    "sinks": True,
}
"""Attention of DeepSeek-V4-Flash, which its rows do not print (AMD-AGI/Primus
primus/configs/models/megatron/deepseek_v4_flash.yaml)."""
INDEXER: Mapping[str, Any] = {"index_heads": 64, "index_head_dim": 128, "index_top_k": 512, "index_query_rank": 128}
"""Its indexers as Primus builds them."""
COMPRESSION_RATIOS = (0, 0, *(4, 128) * 20, 4)
"""Tokens to a compressed key in each of its layers."""
RESIDUAL_STREAMS = 4


class UnscorableError(Exception):
    """A row that lacks something the engine needs, or has something it does not model."""


Word = TypeVar("Word")


def known(words: Mapping[str, Word], stated: object, column: str) -> Word:
    """What a word of a column stands for; raises `UnscorableError` for one that is not in the table."""
    try:
        return words[str(stated)]
    except KeyError:
        raise UnscorableError(f"{column} {stated!r} is none of {', '.join(words)}") from None


def _mixer(facts: Mapping[str, Any], hidden: int) -> Mixer:
    heads = facts.get("heads")
    if heads is None:
        raise UnscorableError("no attention heads stated")
    latent = facts.get("mla")
    if isinstance(latent, Mapping):
        return LatentAttention(
            heads=heads,
            query_lora_rank=latent.get("q_lora"),
            key_value_lora_rank=latent["kv_lora"],
            query_key_nope_dim=latent["qk_nope"],
            query_key_rope_dim=latent["qk_rope"],
            value_dim=latent["v"],
        )
    bias = facts.get("linear_bias", facts.get("norm") == "layernorm" and facts.get("bias", True))
    factors = DEEPSEEK_V4 if "compressed" in facts.get("note", "") else {}
    return Attention(
        heads=heads,
        key_value_heads=facts.get("kv_heads", heads),
        head_dim=facts.get("head_dim", hidden // heads if latent is None else 128),
        # DeepSeek's files state `qk_layernorm`, which norms whole heads where latent attention is off.
        query_key_norm=bool(facts.get("qk_norm", latent is not None)),
        bias_qkv=bool(bias),
        bias_output=bool(bias),
        **factors,
    )


def _ffn(facts: Mapping[str, Any], *, gated: bool) -> int:
    """The dense width. A gated dense model of 4 x hidden states none: Megatron-LM then takes two thirds of it.

    Source: Megatron-LM megatron/training/arguments.py, `ffn_hidden_size`: 8/3 x hidden down to a multiple of 64.
    """
    stated: int = facts.get("ffn", 0)
    if gated and "moe" not in facts and stated == 4 * facts["hidden"]:
        return int(facts["hidden"]) * 8 // 3 // 64 * 64
    return stated


def _feed_forward(facts: Mapping[str, Any]) -> tuple[FeedForward, FeedForward]:
    """The dense and the expert block; the dense one stands in for both when there are no experts."""
    gated = str(facts.get("mlp", "swiglu")).startswith(("swiglu", "gated"))
    experts = facts.get("moe")
    if experts is None and facts.get("ffn") is None:
        raise UnscorableError("no feed-forward width stated")
    bias = facts.get("linear_bias", facts.get("norm") == "layernorm" and facts.get("bias", True))
    dense = DenseMLP(ffn=_ffn(facts, gated=gated), gated=gated, bias=bool(bias))
    if experts is None:
        return dense, dense
    return dense, MixtureOfExperts(
        experts=experts["experts"],
        top_k=experts["topk"],
        expert_ffn=experts["expert_ffn"],
        shared_ffn=experts.get("shared_ffn", 0),
        gated=gated,
    )


def _expert_layers(facts: Mapping[str, Any], count: int) -> list[bool]:
    experts = facts.get("moe")
    if experts is None:
        return [False] * count
    if "layer_freq" in experts:
        flags = evaluate(experts["layer_freq"], place="moe.layer_freq")
        if not isinstance(flags, list) or len(flags) < count:
            raise UnscorableError(f"moe.layer_freq does not cover {count} layers")
        return [bool(flag) for flag in flags[:count]]
    dense = experts.get("dense_layers", 0)
    return [index >= dense for index in range(count)]


def _is_compressed(mixer: Mixer) -> bool:
    return isinstance(mixer, Attention) and mixer.shared_key_value


def _compressed(mixer: Mixer, count: int) -> list[Mixer]:
    """The mixer of every layer; a proxy of few layers ends without compressed keys, as the whole model does.

    AMD-AGI/Primus deepseek-v4/develop/progress/p57/runs/p57_proxy_trace.log: `[0,0,4,128,4,128,4,0]`.
    """
    if not isinstance(mixer, Attention) or not _is_compressed(mixer):
        return [mixer] * count
    kinds: dict[int, Mixer] = {
        0: mixer,
        4: replace(mixer, compression_ratio=4, **INDEXER),
        128: replace(mixer, compression_ratio=128),
    }
    ratios = list(COMPRESSION_RATIOS[:count])
    if count < len(COMPRESSION_RATIOS):
        ratios[-1] = 0
    return [kinds[ratio] for ratio in ratios]


def architecture(facts: Mapping[str, Any], name: str, *, null_tokenizer: bool = False) -> ModelArchitecture:
    """Build the architecture; raises `UnscorableError` when the columns do not suffice.

    Megatron-LM's null tokenizer adds an end-of-document entry to the stated vocabulary.
    """
    hidden, count = facts.get("hidden"), facts.get("layers")
    if hidden is None or count is None:
        raise UnscorableError("no hidden size or depth stated")
    vocabulary = facts.get("vocab", facts.get("vocab_unpadded"))
    if vocabulary is None:
        raise UnscorableError("no vocabulary stated")
    mixers = _compressed(_mixer(facts, hidden), count)
    dense, experts = _feed_forward(facts)
    return ModelArchitecture(
        name=name,
        hidden=hidden,
        layers=tuple(
            DecoderLayer(mixer=mixer, feed_forward=experts if expert else dense)
            for mixer, expert in zip(mixers, _expert_layers(facts, count), strict=True)
        ),
        vocabulary=vocabulary + null_tokenizer,
        tied_embeddings=bool(facts.get("tied_embeddings", False)),
        norm=NormKind.RMS if facts.get("norm", "rms") == "rms" else NormKind.LAYER,
        position=known(POSITIONS, facts.get("position", "rope"), "position"),
        max_position=facts.get("max_pos", 0),
        residual_streams=RESIDUAL_STREAMS if _is_compressed(mixers[0]) else 1,
        multi_token_prediction_layers=facts.get("mtp_layers", 0),
    )
