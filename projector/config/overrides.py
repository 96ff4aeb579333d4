"""Overrides that a person gives beside the file: `key=value`, `--key=value`, `--key value`, `--flag`.

The forms are those of the Primus command line (AMD-AGI/Primus fd1eeabb). A value is a boolean, a number, `null`/`None`,
a text in quotes, a list or mapping, or else text; it is never evaluated as Python.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from projector.config.expressions import evaluate
from projector.errors import ConfigurationError, shown

_KEY = re.compile(r"[A-Za-z_][\w-]*(?:\.[\w-]+)*", re.ASCII)
_ASSIGNMENT = re.compile(rf"({_KEY.pattern})=(.*)", re.ASCII | re.DOTALL)
_SCALAR = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?", re.ASCII)


class Override(NamedTuple):
    """One value that replaces the configuration's own."""

    key: str
    """Dotted name, such as `micro_batch_size` or `lora.enabled`."""
    value: object
    """The parsed value."""


def parse_overrides(tokens: Sequence[str]) -> tuple[Override, ...]:
    """Read the tokens that a command line has left over, in order; later ones win.

    Raises `ConfigurationError` for a token that is none of the four forms, and for a malformed value.
    """
    return overrides_from_pairs(split_overrides(tokens))


def split_overrides(tokens: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Names and values of such tokens as texts, in order.

    `--key` takes the next token as its value unless that starts with `--` or is itself `key=value`. Raises
    `ConfigurationError` for a token of another form.
    """
    pairs: list[tuple[str, str]] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        index += 1
        name = token.removeprefix("--")
        assignment = _ASSIGNMENT.fullmatch(name)
        if assignment is not None:
            pairs.append((assignment.group(1), assignment.group(2)))
        elif token.startswith("--") and _KEY.fullmatch(name):
            if index < len(tokens) and _is_value(tokens[index]):
                pairs.append((name, tokens[index]))
                index += 1
            else:
                pairs.append((name, "true"))
        else:
            expected = "key=value, --key=value, --key value or --flag"
            raise ConfigurationError(f"{shown(token)} is not an override", place="override", expected=expected)
    return tuple(pairs)


def overrides_from_pairs(pairs: Iterable[tuple[str, str]]) -> tuple[Override, ...]:
    """Overrides from names and values as texts, as a request carries them; values are read like on a command line."""
    return tuple(parse_override(key, text) for key, text in pairs)


def parse_override(key: str, text: str) -> Override:
    """One override from its name and the text of its value; raises `ConfigurationError` for a malformed list."""
    if not _KEY.fullmatch(key):
        raise ConfigurationError(f"{shown(key)} is not a name of a value", place="override", expected="dotted names")
    return Override(key=key, value=_literal(text.strip(), place=f"override {key}"))


def _is_value(token: str) -> bool:
    return not token.startswith("--") and _ASSIGNMENT.fullmatch(token) is None


def _literal(text: str, *, place: str) -> object:
    lower = text.lower()
    if lower in {"true", "false"}:
        return lower == "true"
    if text in {"null", "None"}:
        return None
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" and text[0] not in text[1:-1]
    if text[:1] in {"[", "{"} or quoted or _SCALAR.fullmatch(text):
        return evaluate(text, place=place)
    return text
