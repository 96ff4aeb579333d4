"""Which layer of a Hugging Face model is of which kind: lists in config.json, else the rule of the family's class.

The rules are those of `__post_init__` of the configuration classes in huggingface/transformers 5.24.0.
"""

from collections.abc import Mapping
from typing import Any

from projector.config.huggingface.facts import Family
from projector.config.keys import Keys
from projector.errors import ConfigurationError

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
CHOSEN, COMPRESSED = "compressed_sparse_attention", "heavily_compressed_attention"
"""Layers with compressed keys: those that an indexer chooses, or all of them."""
_OF_RATIO = {0: SLIDING, 4: CHOSEN, 128: COMPRESSED}
"""The kind of a layer by its compression ratio in the published files of DeepSeek-V4."""
_FIRST_COMPRESSED = 2
"""Layers in front that see all compressed keys; behind them both kinds take turns."""
_OTHER_NAMES = {"attention": FULL, "global": FULL, "local": SLIDING}
"""What older configurations call the kinds."""
_LISTS = ("layer_types", "layers_block_type")
"""Keys that list the kind of every layer's mixer."""


def layer_types(keys: Keys, family: Family, *, layers: int) -> list[str]:  # noqa: PLR0911 - one for each rule
    """The kind of every layer's mixer."""
    for key in _LISTS:
        stated = keys.texts(key)
        if stated is not None:
            kinds = [_OTHER_NAMES.get(kind, kind) for kind in stated]
            return _long_enough(kinds, keys, key, layers=layers)
    rule = family.mixers
    others = rule.get("others", SLIDING)
    match rule.get("rule", "full"):
        case "compressed":
            return _compressed(keys, rule["ratios"], layers=layers)
        case "windowed":
            return _windowed(keys, rule, layers=layers)
        case "every":
            return _periodic(keys, rule, others, layers=layers)
        case "offset":
            flags = _offset(keys, rule, layers=layers)
            return [FULL if flag else others for flag in flags]
        case "listed":
            indices = keys.integers(rule["full"])
            # Without a list, every layer of LFM2 and none of Bamba attends.
            chosen = set(indices or ()) if indices is not None or others != "conv" else set(range(layers))
            return [FULL if index in chosen else others for index in range(layers)]
        case _:
            return [FULL] * layers


def _compressed(keys: Keys, key: str, *, layers: int) -> list[str]:
    """The kinds that a list of compression ratios names, the prediction layers' behind them left out."""
    ratios = keys.integers(key)
    if ratios is None:
        turns = [CHOSEN if index % 2 else COMPRESSED for index in range(layers)]
        return [COMPRESSED if index < _FIRST_COMPRESSED else kind for index, kind in enumerate(turns)]
    if not set(ratios) <= _OF_RATIO.keys():
        keys.wrong(key, "a list of 0, 4 and 128")
    return [_OF_RATIO[ratio] for ratio in _long_enough(ratios, keys, key, layers=layers)]


def _windowed(keys: Keys, rule: Mapping[str, Any], *, layers: int) -> list[str]:
    """Layers of a range, every n-th of them, look through a window."""
    first = keys.integer(rule["after"], 0) if "after" in rule else 0
    end = keys.integer(rule["until"], layers) if "until" in rule else layers
    every = rule.get("every", 1)
    return [SLIDING if first <= index < end and index % every == 0 else FULL for index in range(layers)]


def _periodic(keys: Keys, rule: Mapping[str, Any], others: str, *, layers: int) -> list[str]:
    """Every n-th layer attends to everything; a list of marks (1 for the others) goes before the period."""
    marks = keys.integers(rule["marks"]) if "marks" in rule else None
    period = rule["period"]
    number = keys.integer(period, 1, minimum=1) if isinstance(period, str) else period
    if marks:
        flags = _long_enough(marks, keys, rule["marks"], layers=layers)
        return [others if flag else FULL for flag in flags]
    return [others if (index + 1) % number else FULL for index in range(layers)]


def _offset(keys: Keys, rule: Mapping[str, Any], *, layers: int) -> list[bool]:
    period, offset = keys.integer(rule["period"], 1, minimum=1), keys.integer(rule["offset"], 0)
    return [index % period == offset for index in range(layers)]


def expert_layers(keys: Keys, family: Family, *, layers: int) -> list[bool]:
    """Which layers hold experts."""
    rule = family.experts_at
    if rule is None:
        return [False] * layers
    stated = keys.texts("mlp_layer_types")
    if stated is not None:
        kinds = _long_enough(stated, keys, "mlp_layer_types", layers=layers)
        return [kind != "dense" for kind in kinds]
    match rule["rule"]:
        case "after":
            first = keys.integer(rule["first"], 0)
            period = keys.integer(rule["period"], 1, minimum=1) if "period" in rule else 1
            return [index >= first and index % period == 0 for index in range(layers)]
        case "every":
            return _expert_period(keys, rule, layers=layers)
        case "offset":
            return _offset(keys, rule, layers=layers)
        case _:
            return [True] * layers


def _expert_period(keys: Keys, rule: Mapping[str, Any], *, layers: int) -> list[bool]:
    """Every n-th layer, without those of one list, or those of another list alone."""
    only = keys.integers(rule["only"]) if "only" in rule else None
    dense = set(keys.integers(rule["except"]) or ()) if "except" in rule else set()
    period = keys.integer(rule["period"], 1, minimum=1)
    if only is not None:
        chosen = set(only)
        return [index in chosen for index in range(layers)]
    return [(index + 1) % period == 0 and index not in dense for index in range(layers)]


def _long_enough(values: list[Any], keys: Keys, key: str, *, layers: int) -> list[Any]:
    """The first `layers` values, so that a proxy with fewer layers keeps the pattern's beginning."""
    if len(values) < layers:
        message = f"{len(values)} entries for {layers} layers"
        raise ConfigurationError(message, place=keys.place(key), expected=f"{layers} entries")
    return values[:layers]
