"""Configurations of Hugging Face for tests."""

import json
from collections.abc import Mapping
from typing import Any

from projector.config import LoadedConfiguration, parse_overrides, read

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "num_hidden_layers": 8,
    "vocab_size": 32000,
}
"""Eight dense layers."""
SMALL: dict[str, dict[str, Any]] = {
    "deepseek_v2": {"num_experts_per_tok": 2},
    "glm4_moe": {"head_dim": 64},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention", "conv", "conv", "full_attention", "conv", "conv"]},
    "falcon": {"new_decoder_architecture": True, "num_kv_heads": 71, "bias": True},
}
"""By type, sizes that the defaults of its class do not go together without."""
RUN = ("seq_length=4096", "micro_batch_size=1")
"""What no config.json states."""


def load(
    config: Mapping[str, Any] | str, *arguments: str, beside: Mapping[str, Mapping[str, Any] | str] | None = None
) -> LoadedConfiguration:
    """Read a config.json with overrides as typed on a command line, and files beside it."""
    companions = {name: _text(content) for name, content in (beside or {}).items()}
    return read(_text(config), name="config.json", overrides=parse_overrides(arguments), companions=companions)


def _text(content: Mapping[str, Any] | str) -> str:
    return content if isinstance(content, str) else json.dumps(content)
