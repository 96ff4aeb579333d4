"""Which dialect a configuration is written in, told from its content alone."""

import re
from collections.abc import Mapping
from typing import Any

from projector.errors import ConfigurationError

FORMATS = ("primus", "megatron", "torchtitan", "huggingface", "projector")
"""Dialects by name."""

# Texts and not compiled patterns: most configurations need the first alone, and every start of the command counts.
SCRIPT_HEADS = ("#!", "#SBATCH")
"""How the first line of a script begins."""
_PRIMUS = r"(?m)^modules:"
"""The section that every experiment file of Primus has, unless it extends one that has it."""
_OWN = r"(?m)^projector:[ \t]*\d|\A\s*\{\s*\"?projector\"?:\s*\d"
"""The version of the project's own format, as its YAML and its JSON state it; its texts may quote any other format."""
_FLAG = (
    r"(?m)^[^#\n]*--(?:num-layers|hidden-size|num-attention-heads|micro-batch-size|global-batch-size|seq-length|"
    r"tensor-model-parallel-size|pipeline-model-parallel-size)\b"
)
"""A line of a script or argument list that hands Megatron-LM an argument every run states."""
_TABLE = r"(?m)^[ \t]*\[[ \t]*[A-Za-z_][\w.-]*[ \t]*\][ \t\r]*(?:#.*)?$"
"""The head of a TOML table, alone on its line."""
_TITAN = r"(?m)^[^#\n]*(?:--job[._]config[_-]file\b|-m[ \t]+torchtitan\b|\btorchtitan[./]train\b)"
"""A line that starts TorchTitan, or hands it a file."""
_TITAN_FLAGS = tuple(rf"(?m)(?:^|[ \t]){flag}[= \t]" for flag in ("--module", "--config"))
"""What names an entry of TorchTitan's registry, both together."""
_TITAN_SCRIPT = (
    r"(?m)^[^#\n]*\brun_(?:llama_)?train\.sh\b",
    r"(?m)^[^#\n]*\b(?:CONFIG_FILE|MODULE|CONFIG)=",
)
"""TorchTitan's own run script, and what tells it the values."""


def detect(text: str, *, name: str) -> str:
    """The dialect of a text; raises `ConfigurationError` when it looks like none of them."""
    if re.search(_OWN, text):
        return "projector"
    script = text.lstrip().startswith(SCRIPT_HEADS)
    if not script and re.search(_PRIMUS, text):
        return "primus"
    if is_toml(text) or is_titan_command(text):
        return "torchtitan"
    if script:
        return "megatron"
    from projector.config.safe_json import parse_json_or_yaml  # noqa: PLC0415 - not for texts that are known by now

    try:
        return _of_mapping(parse_json_or_yaml(text, name=name), name=name)
    except ConfigurationError:
        if re.search(_FLAG, text):
            return "megatron"
        if ":" not in text:
            raise _unknown(name) from None
        raise


def _unknown(name: str) -> ConfigurationError:
    expected = f"a file of one of the formats {', '.join(FORMATS)} (docs/formats.md); --format forces one"
    return ConfigurationError("not a training configuration that is known", place=name, expected=expected)


def is_toml(text: str) -> bool:
    """Whether a text is TOML: it has the head of a table, and is no script."""
    return not text.startswith("#!") and re.search(_TABLE, text) is not None


def is_titan_command(text: str) -> bool:
    """Whether a text is a command line or script that starts TorchTitan."""
    if re.search(_TITAN, text) is not None or all(re.search(flag, text) for flag in _TITAN_FLAGS):
        return True
    # Scripts of this name start other frameworks too.
    return all(re.search(part, text) for part in _TITAN_SCRIPT) and not re.search(_FLAG, text)


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
    raise _unknown(name)


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
