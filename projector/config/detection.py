"""Which dialect a configuration is written in, told from its content alone."""

import re
from collections.abc import Mapping
from typing import Any

from projector.config.safe_json import parse_json_or_yaml
from projector.errors import ConfigurationError

FORMATS = ("primus", "megatron", "torchtitan", "huggingface", "projector")
"""Dialects by name."""

_FLAG = re.compile(
    r"(?m)^[^#\n]*--(?:num-layers|hidden-size|num-attention-heads|micro-batch-size|global-batch-size|seq-length|"
    r"tensor-model-parallel-size|pipeline-model-parallel-size)\b"
)
"""A line of a script or argument list that hands Megatron-LM an argument every run states."""
_TABLE = re.compile(r"(?m)^[ \t]*\[[ \t]*[A-Za-z_][\w.-]*[ \t]*\][ \t\r]*(?:#.*)?$")
"""The head of a TOML table, alone on its line."""
_TITAN = re.compile(r"(?m)^[^#\n]*(?:--job[._]config[_-]file\b|-m[ \t]+torchtitan\b|\btorchtitan[./]train\b)")
"""A line that starts TorchTitan, or hands it a file."""
_TITAN_FLAGS = tuple(re.compile(rf"(?m)(?:^|[ \t]){flag}[= \t]") for flag in ("--module", "--config"))
"""What names an entry of TorchTitan's registry, both together."""


_OWN = re.compile(r"^projector:[ \t]*\d|\A\s*\{\s*\"?projector\"?:\s*\d", re.MULTILINE)
"""The version of the project's own format, as its YAML and its JSON state it; its texts may quote any other format."""


def detect(text: str | bytes, *, name: str) -> str:
    """The dialect of a text; raises `ConfigurationError` when it looks like none of them."""
    content = text if isinstance(text, str) else text.decode("utf-8", "replace")
    if _OWN.search(content):
        return "projector"
    if is_toml(content) or is_titan_command(content):
        return "torchtitan"
    if content.startswith(("#!", "#SBATCH")):
        return "megatron"
    try:
        return _of_mapping(parse_json_or_yaml(text, name=name), name=name)
    except ConfigurationError:
        if _FLAG.search(content):
            return "megatron"
        raise


def is_toml(text: str | bytes) -> bool:
    """Whether a text is TOML: it has the head of a table, and is no script."""
    content = text if isinstance(text, str) else text.decode("utf-8", "replace")
    return not content.startswith("#!") and _TABLE.search(content) is not None


def is_titan_command(text: str | bytes) -> bool:
    """Whether a text is a command line or script that starts TorchTitan."""
    content = text if isinstance(text, str) else text.decode("utf-8", "replace")
    return _TITAN.search(content) is not None or all(flag.search(content) for flag in _TITAN_FLAGS)


def _of_mapping(content: Mapping[str, Any], *, name: str) -> str:
    if "modules" in content or "extends" in content:
        return "primus"
    if "projector" in content:
        return "projector"
    if _is_megatron(content):
        return "megatron"
    if {"architectures", "hidden_size"} <= content.keys() or "model_type" in content:
        return "huggingface"
    if content.keys() == {"model"} and isinstance(content["model"], str):
        return "huggingface"  # a model of the catalog by name
    model = content.get("model_spec", content.get("model"))
    if isinstance(model, Mapping) and isinstance(content.get("parallelism"), Mapping) and "training" in content:
        return "torchtitan"
    if "apiVersion" in content:
        message = "this is a Kubernetes object, not a training configuration"
        raise ConfigurationError(message, place=name, expected="the training configuration that it carries")
    expected = "a Primus experiment file: work_group, user_name, exp_name, workspace and modules.pre_trainer"
    raise ConfigurationError("not a training configuration that is known", place=name, expected=expected)


def _is_megatron(content: Mapping[str, Any]) -> bool:
    """Whether a mapping holds Megatron-LM's arguments, by their names, under `MODEL_ARGS` or in what a run wrote."""
    keys = {key.lstrip("-").replace("-", "_") for key in content}
    if "MODEL_ARGS" in keys or {"language_model", "model_parallel"} <= keys:
        return True
    sections = [content[key] for key in ("args", "megatron_args", "config") if isinstance(content.get(key), Mapping)]
    if any("num_layers" in section for section in sections):
        return True
    elsewhere = {"architectures", "model_type"} & keys and "micro_batch_size" not in keys
    return "num_layers" in keys and not elsewhere
