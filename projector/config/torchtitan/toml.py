"""TOML from people nobody knows: the values of the standard library's `tomllib`, with limits and one clear line."""

import tomllib
from datetime import date, datetime, time
from typing import Any

from projector.config.files import decoded
from projector.config.safe_yaml import MAXIMUM_DEPTH, MAXIMUM_NODES
from projector.errors import ConfigurationError, ConfigurationTooLarge

MAXIMUM_CHARACTERS = 256 * 1024
"""Longest TOML text; the longest public TorchTitan file has 4 KiB. `tomllib` takes quadratic time on long keys."""
MAXIMUM_KEY_PARTS = MAXIMUM_DEPTH
"""Parts of a dotted key."""


def parse_toml(data: bytes | str, *, name: str) -> dict[str, Any]:
    """The mapping that a TOML text holds; dates become text.

    `name` is the file in messages. Raises `ConfigurationTooLarge` beyond the limits, `ConfigurationError` for a text
    that is not TOML.
    """
    text = decoded(data, name=name)
    _check_limits(text, name=name)
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"not TOML: {error}", place=name) from None
    except (RecursionError, ValueError) as error:  # nesting, or an integer of thousands of digits
        raise ConfigurationTooLarge(f"not TOML that can be read: {error}", place=name) from None
    return _Plain(name).mapping(content, depth=1)


def _check_limits(text: str, *, name: str) -> None:
    """Refuse what the parser would recurse or square on before it sees it."""
    if len(text) > MAXIMUM_CHARACTERS:
        message = f"more than {MAXIMUM_CHARACTERS // 1024} KiB of TOML"
        raise ConfigurationTooLarge(message, place=name, expected="a training configuration")
    for number, line in enumerate(text.splitlines(), start=1):
        head = line.partition("=")[0]
        if head.count(".") >= MAXIMUM_KEY_PARTS:
            message = f"a key of more than {MAXIMUM_KEY_PARTS} parts"
            raise ConfigurationTooLarge(message, place=f"{name}:{number}")


class _Plain:
    """Turns what `tomllib` returns into plain values, and counts them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes = 0

    def mapping(self, content: dict[str, Any], *, depth: int) -> dict[str, Any]:
        return {key: self._value(value, depth=depth) for key, value in content.items()}

    def _value(self, value: Any, *, depth: int) -> Any:  # noqa: ANN401 - any TOML value
        self._nodes += 1
        if self._nodes > MAXIMUM_NODES:
            raise ConfigurationTooLarge(f"more than {MAXIMUM_NODES} values", place=self._name)
        if depth >= MAXIMUM_DEPTH and isinstance(value, dict | list):
            raise ConfigurationTooLarge(f"nested deeper than {MAXIMUM_DEPTH} levels", place=self._name)
        if isinstance(value, dict):
            return self.mapping(value, depth=depth + 1)
        if isinstance(value, list):
            return [self._value(item, depth=depth + 1) for item in value]
        return str(value) if isinstance(value, datetime | date | time) else value
