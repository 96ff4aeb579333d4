"""Arguments as they are collected from words or from a mapping: values by key, and what is wrong with them.

What cannot be used is kept beside its text until somebody asks for it: a file may have any number of paths and tokens
that nothing here can resolve.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from projector.config.megatron.flags import Flag, Kind, keys_of_flags
from projector.errors import ConfigurationError, shown
from projector.provenance import ConfigValue, Source

_MAXIMUM_DIGITS = 40
"""Characters of a text that is read as a number."""
_ENUMERATED = re.compile(r"(?:torch|AttnBackend)\.(\w+)")
"""How values of PyTorch's and Megatron-LM's own types look in a file that a run wrote."""
_TYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float": "fp32", "uint8": "fp8"}
"""Names of PyTorch's types -> Megatron-LM's."""


class Gap(NamedTuple):
    """A word that stands for arguments nobody knows, such as `${EXTRA_ARGS}`."""

    text: str
    """The word."""
    place: str
    """File and line."""
    names: tuple[str, ...]
    """What is unresolved in it."""


@dataclass(slots=True)
class Collected:
    """Arguments and all that is to be said of them."""

    file: str
    """What messages call the file."""
    values: dict[str, ConfigValue] = field(default_factory=dict)
    """By key; a later one has replaced an earlier one."""
    unusable: dict[str, ConfigurationError] = field(default_factory=dict)
    """Keys whose value cannot be used, with the error that says why, to be raised when the key decides something."""
    stray: list[tuple[str, str]] = field(default_factory=list)
    """Words that belong to no flag, each with its place."""
    gaps: list[Gap] = field(default_factory=list)
    """Words that stand for arguments nobody knows."""

    def put(self, key: str, value: object, source: Source, *, problem: ConfigurationError | None = None) -> None:
        """Keep a value, in place of an earlier one of that key."""
        self.values[key] = ConfigValue(key=key, value=value, source=source, file=self.file)
        self.unusable.pop(key, None)
        if problem is not None:
            self.unusable[key] = problem

    def put_texts(self, flag: Flag, texts: Sequence[str], source: Source, *, place: str) -> None:
        """Keep what a flag was given, read as the flag's type; a problem is kept for whoever asks for the value."""
        try:
            self.put(flag.key, from_texts(flag, texts, place=place), source)
        except ConfigurationError as problem:
            self.put(flag.key, " ".join(texts), source, problem=problem)

    def add(self, others: "Collected") -> None:
        """Take further arguments, which win over those of the same key."""
        for key in others.values:
            self.unusable.pop(key, None)
        self.values |= others.values
        self.unusable |= others.unusable
        self.stray += others.stray
        self.gaps += others.gaps

    def drop(self, key: str) -> None:
        """Forget a key."""
        self.values.pop(key, None)
        self.unusable.pop(key, None)


def from_texts(flag: Flag, texts: Sequence[str], *, place: str) -> object:
    """The value of a flag from its words; raises `ConfigurationError` when it is of another type or missing."""
    if flag.kind.is_switch:
        return flag.kind is Kind.ON
    if flag.kind.is_list:
        return [_scalar(flag.kind, text, place=place) for text in texts]
    if len(texts) != 1:
        raise ConfigurationError(f"--{flag.name} has no value", place=place, expected=f"--{flag.name} VALUE")
    return _scalar(flag.kind, texts[0], place=place)


def from_mapping(key: str, value: object, *, place: str) -> object:
    """The value that a file states for a key, read as the type of the key's flag where it is a text."""
    kind = keys_of_flags().get(key)
    if isinstance(value, str):
        value = plain(value)
        if kind is Kind.ON:
            return {"true": True, "false": False}.get(value.lower(), value)
        if kind is not None and kind.is_list:
            return [_scalar(kind, text, place=place) for text in split_list(value)]
        return value if kind is None else _scalar(kind, value, place=place)
    if kind is not None and kind.is_list and value is not None and not isinstance(value, list):
        return [value]
    if kind is Kind.TEXT and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value


def split_list(text: str) -> list[str]:
    """Items of a list that is written as one text, with spaces or commas between them, in brackets or without."""
    return text.strip().removeprefix("[").removesuffix("]").replace(",", " ").split()


def plain(text: str) -> str:
    """A text as a person would write it: `bf16` for `torch.bfloat16`, `auto` for `AttnBackend.auto`."""
    found = _ENUMERATED.fullmatch(text)
    return _TYPES.get(found.group(1), found.group(1)) if found is not None else text


def _scalar(kind: Kind, text: str, *, place: str) -> object:
    if kind in {Kind.INTEGER, Kind.INTEGERS}:
        number, wanted = _number(int, text), "an integer"
    elif kind in {Kind.NUMBER, Kind.NUMBERS}:
        number, wanted = _number(float, text), "a number"
    else:
        return text
    if number is None:
        raise ConfigurationError(f"{shown(text)} is not {wanted}", place=place, expected=f"expected {wanted}")
    return number


def _number(kind: type[int] | type[float], text: str) -> int | float | None:
    """As argparse reads it: `int` and `float` take underscores between digits."""
    try:
        return kind(text) if len(text) <= _MAXIMUM_DIGITS else None
    except ValueError:
        return None
