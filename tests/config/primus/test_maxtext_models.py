"""MaxText's descriptions of models are those of the catalog."""

from dataclasses import replace
from typing import Any

import pytest

from projector import catalog
from projector.config import Source
from projector.config.keys import Keys
from projector.config.primus.facts import framework_facts
from projector.config.primus.maxtext_model import described_by, named
from projector.errors import NotAvailable
from projector.provenance import ConfigValue

PUBLISHED: dict[str, dict[str, Any]] = {
    "llama3-8b": {
        "base_emb_dim": 4096,
        "base_num_query_heads": 32,
        "base_num_kv_heads": 8,
        "base_num_decoder_layers": 32,
        "base_mlp_dim": 14336,
        "head_dim": 128,
        "mlp_activations": ["silu", "linear"],
        "vocab_size": 128256,
        "logits_via_embedding": False,
        "decoder_block": "llama2",
    },
    "mixtral-8x7b": {
        "base_emb_dim": 4096,
        "base_num_query_heads": 32,
        "base_num_kv_heads": 8,
        "base_mlp_dim": 14336,
        "base_moe_mlp_dim": 14336,
        "base_num_decoder_layers": 32,
        "head_dim": 128,
        "mlp_activations": ["silu", "linear"],
        "vocab_size": 32000,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "decoder_block": "mixtral",
    },
    "qwen3-30b-a3b": {
        "decoder_block": "qwen3_moe",
        "base_emb_dim": 2048,
        "base_mlp_dim": 768,
        "base_num_query_heads": 32,
        "base_num_kv_heads": 4,
        "base_num_decoder_layers": 48,
        "head_dim": 128,
        "mlp_activations": ["silu", "linear"],
        "vocab_size": 151936,
        "use_qk_norm": True,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "base_moe_mlp_dim": 768,
    },
    "deepseek2-16b": {
        "base_emb_dim": 2048,
        "base_num_query_heads": 16,
        "base_num_kv_heads": 16,
        "base_mlp_dim": 10944,
        "base_moe_mlp_dim": 1408,
        "base_num_decoder_layers": 27,
        "first_num_dense_layers": 1,
        "mlp_activations": ["silu", "linear"],
        "vocab_size": 102400,
        "num_experts": 64,
        "num_experts_per_tok": 6,
        "shared_experts": 2,
        "routed_bias": False,
        "decoder_block": "deepseek",
        "attention_type": "mla",
        "q_lora_rank": 0,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
    },
}
"""Model files of AI-Hypercomputer/maxtext 0.2.5, src/maxtext/configs/models, their deciding keys."""


def _keys(values: dict[str, Any]) -> Keys:
    return Keys({key: ConfigValue(key=key, value=value, source=Source.EXPERIMENT) for key, value in values.items()})


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_model_file_of_maxtext_describes_the_model_of_the_catalog(name: str) -> None:
    names = framework_facts("maxtext").architectures
    assert described_by(_keys(PUBLISHED[name]), name=name) == named(name, _keys({}), names=names)


@pytest.mark.parametrize("name", PUBLISHED)
def test_keys_beside_a_named_model_change_that_model(name: str) -> None:
    names = framework_facts("maxtext").architectures
    whole = named(name, _keys({}), names=names)
    cut = named(name, _keys({"base_num_decoder_layers": 4, "vocab_size": 1000}), names=names)
    assert cut == replace(whole, layers=whole.layers[:4], vocabulary=1000)


def test_keys_beside_a_model_that_they_cannot_describe_are_refused() -> None:
    with pytest.raises(NotAvailable, match="base_num_decoder_layers beside model_name 'gpt-oss-20b' cannot be read"):
        named("gpt-oss-20b", _keys({"base_num_decoder_layers": 4}), names={})


def test_every_other_name_of_a_model_leads_to_the_catalog() -> None:
    facts = framework_facts("maxtext")
    names = {*facts.architectures.values(), *(str(model["model_name"]) for model in facts.models.values())}
    for name in names - {"default", *facts.architectures}:
        assert catalog.model(name).architecture.layers
