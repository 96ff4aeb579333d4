"""Which dialect a configuration is written in, told from its content alone."""

import re
from collections.abc import Mapping
from typing import Any

from projector.config.safe_yaml import parse_mapping
from projector.errors import ConfigurationError

FORMATS = ("primus", "megatron", "torchtitan", "huggingface", "projector")
"""Dialects by name."""

_FLAG = re.compile(r"(?m)^[^#\n]*--(?:num-layers|tensor-model-parallel-size|micro-batch-size|hidden-size)\b")
"""A line of a script or argument list that hands Megatron-LM an argument every run states."""
_TABLE = re.compile(r"(?m)^\[[A-Za-z_][\w.]*\]\s*(?:#.*)?$")
"""The head of a TOML table, alone on its line."""


def detect(text: str | bytes, *, name: str) -> str:
    """The dialect of a text; raises `ConfigurationError` when it looks like none of them."""
    content = text if isinstance(text, str) else text.decode("utf-8", "replace")
    if content.startswith("#!"):
        return "megatron"
    if _TABLE.search(content):
        return "torchtitan"
    try:
        return _of_mapping(parse_mapping(text, name=name), name=name)
    except ConfigurationError:
        if _FLAG.search(content):
            return "megatron"
        raise


def _of_mapping(content: Mapping[str, Any], *, name: str) -> str:
    if "modules" in content or "extends" in content:
        return "primus"
    if "projector" in content:
        return "projector"
    if {"architectures", "hidden_size"} <= content.keys() or "model_type" in content:
        return "huggingface"
    if isinstance(content.get("model"), Mapping) and isinstance(content.get("parallelism"), Mapping):
        return "torchtitan"
    if "apiVersion" in content:
        message = "this is a Kubernetes object, not a training configuration"
        raise ConfigurationError(message, place=name, expected="the training configuration that it carries")
    if any(key.lstrip("-").replace("-", "_") in {"num_layers", "MODEL_ARGS"} for key in content):
        return "megatron"
    expected = "a Primus experiment file: work_group, user_name, exp_name, workspace and modules.pre_trainer"
    raise ConfigurationError("not a training configuration that is known", place=name, expected=expected)
