"""Values of a Primus model preset from the project's own catalog.

The architecture comes from the model catalog; what else a preset of that name states (its tokenizer, an expert-parallel
degree, switches of its family) comes from the framework's data file and lies on top.
"""

from collections.abc import Mapping
from typing import Any

from projector import catalog
from projector.config.keys import Keys
from projector.config.megatron.compressed import MODEL_TYPE
from projector.config.nearest import nearest
from projector.config.notes import Notes
from projector.config.primus.facts import primus_facts
from projector.errors import NotAvailable, PresetUnknown, shown
from projector.job import (
    Attention,
    DenseMLP,
    LatentAttention,
    MixtureOfExperts,
    ModelArchitecture,
    NormKind,
    PositionKind,
)
from projector.provenance import ConfigValue, Source

_POSITIONS = {PositionKind.ROTARY: "rope", PositionKind.LEARNED: "learned_absolute", PositionKind.NONE: "none"}


def preset_values(name: str, *, place: str) -> dict[str, Any]:
    """The deciding values of the model preset called `name` (without suffix), or by any name of its model.

    A model that Primus has no preset for gets the values of its architecture. Raises `PresetUnknown`, and
    `NotAvailable` for such a model that Megatron-LM's arguments cannot state: half of it would be another model.
    """
    facts = primus_facts()
    try:
        model = catalog.model(name)
    except PresetUnknown:
        message = f"the catalog has no model preset {shown(name)}"
        expected = f"{nearest(name, facts.presets)}, or a Primus tree that has it (--primus-root)"
        raise PresetUnknown(message, place=place, expected=expected) from None
    own = architecture_values(model.architecture)
    stated = facts.presets.get(name)
    if stated is None:
        preset = next((preset for preset in facts.presets if catalog.model(preset).name == model.name), None)
        stated = {} if preset is None else facts.presets[preset]
        if preset is None and not _is_stated(model.architecture, {**facts.model_defaults, **own}):
            message = f"Primus has no preset of {shown(name)}, and Megatron-LM's arguments cannot state its layers"
            expected = "a Primus tree that has it (--primus-root), or the model's config.json"
            raise NotAvailable(message, place=place, expected=expected)
    if "tokenizer_type" in stated:
        # A preset that names its tokenizer trains that tokenizer's vocabulary, not the table of the published weights.
        del own["vocab_size"]
    return {**facts.model_defaults, **own, **stated}


def _is_stated(model: ModelArchitecture, values: Mapping[str, Any]) -> bool:
    """Whether reading the values gives the model again."""
    from projector.config.megatron.architecture import architecture  # noqa: PLC0415 - for models without a preset

    keys = Keys({key: ConfigValue(key=key, value=value, source=Source.CATALOG) for key, value in values.items()})
    return not model.leaves_out and architecture(keys, Notes(), name=model.name).layers == model.layers


def architecture_values(model: ModelArchitecture) -> dict[str, Any]:
    """Megatron-LM's names and values for an architecture whose layers are of at most one mixer and two MLP kinds."""
    values: dict[str, Any] = {
        "num_layers": len(model.layers),
        "hidden_size": model.hidden,
        "vocab_size": model.vocabulary,
        "untie_embeddings_and_output_weights": not model.tied_embeddings,
        "normalization": "RMSNorm" if model.norm is NormKind.RMS else "LayerNorm",
        "position_embedding_type": _POSITIONS[model.position],
        "mtp_num_layers": model.multi_token_prediction_layers,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    }
    if model.max_position:
        values["max_position_embeddings"] = model.max_position
    return {**values, **_mixer_values(model), **_feed_forward_values(model)}


def _mixer_values(model: ModelArchitecture) -> Mapping[str, Any]:
    mixer = next((layer.mixer for layer in model.layers if isinstance(layer.mixer, Attention | LatentAttention)), None)
    if isinstance(mixer, LatentAttention):
        return {
            "multi_latent_attention": True,
            "num_attention_heads": mixer.heads,
            "qk_layernorm": True,
            "q_lora_rank": mixer.query_lora_rank,
            "kv_lora_rank": mixer.key_value_lora_rank,
            "qk_head_dim": mixer.query_key_nope_dim,
            "qk_pos_emb_head_dim": mixer.query_key_rope_dim,
            "v_head_dim": mixer.value_dim,
            "add_bias_linear": False,
        }
    if mixer is None:
        return {}
    if mixer.shared_key_value:
        return _compressed_values(model, mixer)
    grouped = mixer.key_value_heads != mixer.heads
    return {
        "num_attention_heads": mixer.heads,
        "group_query_attention": grouped,
        "num_query_groups": mixer.key_value_heads if grouped else None,
        "kv_channels": mixer.head_dim,
        "qk_layernorm": mixer.query_key_norm,
        "add_bias_linear": mixer.bias_output,
        "add_qkv_bias": mixer.bias_qkv and not mixer.bias_output,
    }


def _compressed_values(model: ModelArchitecture, mixer: Attention) -> Mapping[str, Any]:
    """DeepSeek-V4's attention, whose ratio a layer is all that differs between layers, and its residual streams."""
    mixers = [layer.mixer for layer in model.layers if isinstance(layer.mixer, Attention)]
    indexed = next((each for each in mixers if each.index_heads), None)
    values: dict[str, Any] = {
        "model_type": MODEL_TYPE,
        "num_attention_heads": mixer.heads,
        "num_query_groups": mixer.key_value_heads,
        "kv_channels": mixer.head_dim,
        "q_lora_rank": mixer.query_lora_rank,
        "o_lora_rank": mixer.output_lora_rank,
        "o_groups": mixer.output_groups,
        "attn_sliding_window": mixer.window,
        "attn_sink": mixer.sinks,
        "compress_ratios": [each.compression_ratio or 0 for each in mixers],
        "hc_mult": model.residual_streams,
        "add_bias_linear": False,
    }
    if indexed is not None:
        values |= {
            "index_n_heads": indexed.index_heads,
            "index_head_dim": indexed.index_head_dim,
            "index_topk": indexed.index_top_k,
        }
    return values


def _feed_forward_values(model: ModelArchitecture) -> Mapping[str, Any]:
    values: dict[str, Any] = {}
    dense = next((layer.feed_forward for layer in model.layers if isinstance(layer.feed_forward, DenseMLP)), None)
    if dense is not None:
        values |= {"ffn_hidden_size": dense.ffn, "swiglu": dense.gated}
    flags = [int(isinstance(layer.feed_forward, MixtureOfExperts)) for layer in model.layers]
    blocks = [layer.feed_forward for layer in model.layers]
    sparse = next((block for block in blocks if isinstance(block, MixtureOfExperts)), None)
    if sparse is None:
        return values
    values.setdefault("ffn_hidden_size", sparse.expert_ffn)
    return values | {
        "swiglu": sparse.gated,
        "num_experts": sparse.experts,
        "moe_router_topk": sparse.top_k,
        "moe_ffn_hidden_size": sparse.expert_ffn,
        "moe_shared_expert_intermediate_size": sparse.shared_ffn or None,
        "moe_shared_expert_gate": sparse.shared_gate,
        "moe_layer_freq": 1 if all(flags) else flags,
        "moe_router_enable_expert_bias": sparse.router_balance_bias,
        "moe_router_num_groups": sparse.expert_groups if sparse.expert_groups > 1 else None,
        "moe_router_group_topk": sparse.chosen_groups if sparse.expert_groups > 1 else None,
        "moe_grouped_gemm": True,
        "moe_token_dispatcher_type": "alltoall",
    }
