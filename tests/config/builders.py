"""Small experiment files for tests."""

from pathlib import Path
from typing import Any

import yaml

from projector.config import LoadedConfiguration, parse_overrides, read

BASE: dict[str, Any] = {
    "num_layers": 8,
    "hidden_size": 1024,
    "ffn_hidden_size": 4096,
    "num_attention_heads": 16,
    "vocab_size": 32000,
    "micro_batch_size": 1,
    "global_batch_size": 8,
    "seq_length": 2048,
    "bf16": True,
}
"""Eight dense layers, as Megatron-LM's arguments."""


MOE: dict[str, Any] = {"num_experts": 8, "moe_ffn_hidden_size": 512, "moe_router_topk": 2}
"""Makes the layers of `BASE` mixtures of experts."""


def experiment_text(module: dict[str, Any], *, name: str = "pre_trainer", **top: object) -> str:
    """An experiment file with one module."""
    head = {"work_group": "w", "user_name": "u", "exp_name": "e", "workspace": "./o"}
    return yaml.safe_dump({**head, **top, "modules": {name: {"framework": "megatron", **module}}})


def flat_text(**values: object) -> str:
    """A module without presets: only `values` and what Megatron-LM assumes by itself."""
    return experiment_text({"overrides": {**BASE, **values}})


def llama_text(**overrides: object) -> str:
    """The 8B Llama 3.1 on one GPU, with overrides."""
    return experiment_text({"config": "pre_trainer.yaml", "model": "llama3.1_8B.yaml", "overrides": overrides})


def load(text: str, *arguments: str, primus_root: Path | None = None) -> LoadedConfiguration:
    """Read a text with overrides as typed on a command line."""
    return read(text, name="exp.yaml", overrides=parse_overrides(arguments), primus_root=primus_root)
