"""A YAML or JSON mapping that holds Megatron-LM's arguments -> arguments.

Four kinds are told apart by their keys: the `MODEL_ARGS` of Megatron-LM's functional tests and of
yanring/Megatron-MoE-ModelZoo, whose keys are flags and whose texts name variables; the sections that `--yaml-cfg` reads
(megatron/training/yaml_arguments.py); what a run wrote down (`args`, a wandb configuration); and a plain mapping.
"""

import re
from collections.abc import Mapping
from typing import Any

from projector.config.megatron.argument_list import unresolved
from projector.config.megatron.flags import Flag, Kind, find_flag, keys_of_flags
from projector.config.megatron.values import Collected, from_mapping, split_list
from projector.errors import ConfigurationError
from projector.provenance import Source

MODEL_ARGUMENTS = "MODEL_ARGS"
"""Key of the functional tests under which the arguments stand."""
ENVIRONMENT = "ENV_VARS"
"""Key of the functional tests under which environment variables stand."""
SECTIONS = ("language_model", "model_parallel")
"""Sections of a file for `--yaml-cfg` whose keys are arguments."""
_INNER = ("args", "config", "megatron_args")
"""Keys under which a run's record keeps its arguments."""
_ACTIVATIONS = {"swiglu": "swiglu", "squaredrelu": "squared_relu"}
"""`activation_func` of a file for `--yaml-cfg` -> the argument that means it."""
_VARIABLE = re.compile(r"\$\{(?P<braced>[A-Za-z_]\w*)(?::-(?P<default>[^{}]*))?\}|\$(?P<bare>[A-Za-z_]\w*)", re.ASCII)


def collect(
    content: Mapping[str, Any], *, name: str, variables: Mapping[str, str]
) -> tuple[Collected, tuple[str, ...]]:
    """The arguments of a file, and its other keys; `name` is the file in messages."""
    collected = Collected(file=name)
    arguments, others = _arguments(content)
    for key, value in arguments.items():
        _take(collected, str(key), _unwrapped(value), variables)
    return collected, others


def environment_section(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The variables that a file of `MODEL_ARGS` sets for its run."""
    section = content.get(ENVIRONMENT)
    return section if isinstance(section, Mapping) else {}


def _arguments(content: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The mapping of arguments inside a file, and the names of what stands beside it."""
    for key in (MODEL_ARGUMENTS, *_INNER):
        inner = content.get(key)
        if isinstance(inner, Mapping) and not _is_wrapped(inner):
            return inner, tuple(_named(content, {key}))
    sections = [content[key] for key in SECTIONS if isinstance(content.get(key), Mapping)]
    if not sections:
        return content, ()
    merged = {key: value for key, value in content.items() if not isinstance(value, Mapping)}
    for section in sections:
        merged |= section
    activation = merged.pop("activation_func", None)
    if activation in _ACTIVATIONS:
        merged[_ACTIVATIONS[activation]] = True
    others = {key for key, value in content.items() if not isinstance(value, Mapping)}
    return merged, tuple(_named(content, {*SECTIONS, *others}))


def _named(content: Mapping[str, Any], taken: set[str]) -> list[str]:
    """Names of the keys that are not taken, one level deep."""
    names: list[str] = []
    for key, value in content.items():
        if key not in taken:
            names += [f"{key}.{inner}" for inner in value] if isinstance(value, Mapping) and value else [key]
    return names


def _is_wrapped(value: object) -> bool:
    return isinstance(value, Mapping) and "value" in value and value.keys() <= {"value", "desc"}


def _unwrapped(value: object) -> object:
    """The value inside wandb's `{value: ..., desc: ...}`."""
    return value["value"] if isinstance(value, Mapping) and _is_wrapped(value) else value


def _take(collected: Collected, stated: str, value: object, variables: Mapping[str, str]) -> None:
    """Keep one key, by its flag where it is written as one, else by the name under which values are kept."""
    source, names = Source.EXPERIMENT, list[str]()
    if isinstance(value, str):
        value, names, used = _substituted(value, variables)
        source = Source.VARIABLE if used else source
    key = stated.lstrip("-").replace("-", "_")
    flag = find_flag(stated)
    place = f"{collected.file}: {stated}"
    if flag is not None and (stated.startswith("-") or key not in keys_of_flags()):
        _take_flag(collected, flag, value, source, names=names, place=place)
        return
    if names:
        collected.put(key, value, source, problem=unresolved(names, {}, place=place, key=key))
        return
    try:
        collected.put(key, from_mapping(key, value, place=place), source)
    except ConfigurationError as problem:
        collected.put(key, value, source, problem=problem)


def _take_flag(  # noqa: PLR0913 - the parts of one argument
    collected: Collected, flag: Flag, value: object, source: Source, *, names: list[str], place: str
) -> None:
    """Keep a flag: true states it, false leaves it out, everything else are its values."""
    if names:
        problem = unresolved(names, {}, place=place, key=flag.key)
        collected.put(flag.key, value, source, problem=problem)
        return
    switched = {"true": True, "false": False}.get(value.lower(), value) if isinstance(value, str) else value
    if switched is False or (switched is None and flag.key != "tokenizer_library"):
        return
    if flag.kind.is_switch:
        texts = [] if switched is True else [str(value)]
        if texts:
            expected = "true or false"
            problem = ConfigurationError(
                f"{texts[0]!r} stands where a flag takes no value", place=place, expected=expected
            )
            collected.put(flag.key, value, source, problem=problem)
        else:
            collected.put(flag.key, flag.kind is Kind.ON, source)
    elif isinstance(value, list):
        collected.put_texts(flag, [str(item) for item in value], source, place=place)
    else:
        # What runs the functional tests hands the text to a shell, which takes its backslashes away.
        text = "null" if value is None else str(value).replace("\\", "")
        collected.put_texts(flag, split_list(text) if flag.kind.is_list else [text], source, place=place)


def _substituted(text: str, variables: Mapping[str, str]) -> tuple[str, list[str], list[str]]:
    """The text with its variables in place, the names of those that nothing gives, and of those used."""
    if "$" not in text:
        return text, [], []
    missing: list[str] = []
    used: list[str] = []

    def replacement(match: re.Match[str]) -> str:
        name, default = match["braced"] or match["bare"], match["default"]
        if name in variables:
            used.append(name)
            return variables[name]
        if default is None:
            missing.append(name)
            return match.group(0)
        return default

    return _VARIABLE.sub(replacement, text), list(dict.fromkeys(missing)), used
