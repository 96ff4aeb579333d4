"""Dataclasses of `projector.job` from mappings, each field read with its own type.

The catalog's model files and the project's own format come through here, so that a field is read alike in both. A key
is the field's name, without the underscore that keeps `global_` from being a keyword.
"""

from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import NoneType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from projector.catalog.facts import Facts
from projector.errors import ConfigurationError, shown
from projector.job.limits import MAXIMUM_INTEGER, MAXIMUM_LAYERS

_Record = TypeVar("_Record")
_MAY_BE_NOTHING = frozenset({"master_weight_bytes", "first_moment_bytes", "second_moment_bytes"})
"""Integers that may be 0 though that is not their default; others may be 0 where it is."""
_SHARES = frozenset({"offload_fraction", "attention_dropout", "hidden_dropout", "sliding_window_share"})
"""Numbers from 0 to 1."""
_POSITIVE_SHARES = frozenset(
    {
        "optimizer_bandwidth_share",
        "permutation_bandwidth_share",
        "attention_bandwidth_share",
        "attention_pass_bandwidth_share",
        "key_scatter_bandwidth_share",
    }
)
"""Numbers above 0, up to 1: something is divided by them."""
_POSITIVE = frozenset({"permutation_efficiency", "expert_cast_efficiency"})
"""Numbers above 0."""
_FACTORS = frozenset({"routing_imbalance"})
"""Numbers of 1 or more."""
_CHOICES = {"context_communication": ("p2p", "all_gather", "a2a", "a2a+p2p")}
"""Texts that are one of a few words."""


class Slot(NamedTuple):
    """A field of a dataclass, as a file states it."""

    name: str
    """The field."""
    key: str
    """How files spell it."""
    kind: type[Any]
    """Type of its value, or of one item where it is a list."""
    listed: bool
    """It holds several values."""
    nullable: bool
    """It may be None."""
    default: Any
    """What holds where no file states it; `MISSING` for a field that must be stated."""

    @property
    def minimum(self) -> int:
        """Smallest integer that does."""
        return 0 if self.default == 0 or self.listed or self.key in _MAY_BE_NOTHING else 1


@cache
def slots(kind: type) -> tuple[Slot, ...]:
    """The fields of a dataclass, in its order."""
    hints = get_type_hints(kind)
    return tuple(_slot(item.name, hints[item.name], item.default) for item in fields(kind))


def _slot(name: str, hint: Any, default: object) -> Slot:  # noqa: ANN401 - a type, or a union of types
    options = [option for option in get_args(hint) if option is not NoneType]
    nullable = NoneType in get_args(hint)
    single = options[0] if nullable else hint
    listed = get_origin(single) is tuple
    kind = get_args(single)[0] if listed else single
    return Slot(name=name, key=name.rstrip("_"), kind=kind, listed=listed, nullable=nullable, default=default)


def record(kind: type[_Record], facts: Facts, **given: object) -> _Record:
    """A value of a dataclass, without the `given` fields that the caller knows already.

    What is absent or null takes its default. Raises `ConfigurationError` that names the key when a value is missing, of
    the wrong type or out of its range; `Facts.finish` is the caller's.
    """
    values = dict(given)
    cls: type = kind
    for slot in slots(cls):
        if slot.name in given:
            continue
        value = _value(slot, facts)
        if value is not None:
            values[slot.name] = value
        elif slot.default is MISSING and slot.nullable:
            values[slot.name] = None
        elif slot.default is MISSING and not is_dataclass(slot.kind):
            facts.required(slot.key, slot.kind)
    return kind(**values)


def _value(slot: Slot, facts: Facts) -> object:
    if is_dataclass(slot.kind):
        if slot.nullable and facts.raw(slot.key) is None:
            return None
        inner = facts.inner(slot.key)
        value = record(slot.kind, inner)
        inner.finish()
        return value
    stated = facts.raw(slot.key)
    if stated is None:
        return None
    if slot.listed:
        return _items(slot, facts)
    if issubclass(slot.kind, StrEnum):
        return facts.choice(slot.key, slot.kind)
    if type(stated) is slot.kind or (slot.kind is float and type(stated) is int):
        _check(slot, stated, f"{facts.place}.{slot.key}")
    return facts.required(slot.key, slot.kind)


def _items(slot: Slot, facts: Facts) -> tuple[object, ...]:
    value, place = facts.raw(slot.key), f"{facts.place}.{slot.key}"
    if issubclass(slot.kind, StrEnum):
        return _choices(slot, value, place)
    if not isinstance(value, list) or any(type(item) is not slot.kind for item in value):
        raise ConfigurationError(shown(value), place=place, expected=f"expected a list of {slot.kind.__name__}")
    for item in value:
        _check(slot, item, place)
    return tuple(value)


def _choices(slot: Slot, value: object, place: str) -> tuple[object, ...]:
    allowed = {str(choice.value): choice for choice in slot.kind}
    if not isinstance(value, list) or any(item not in allowed for item in value if isinstance(item, str)):
        raise ConfigurationError(shown(value), place=place, expected=f"expected a list of {', '.join(allowed)}")
    if any(not isinstance(item, str) for item in value):
        raise ConfigurationError(shown(value), place=place, expected=f"expected a list of {', '.join(allowed)}")
    return tuple(allowed[item] for item in value)


def _check(slot: Slot, value: object, place: str) -> None:
    """Complain about a value of the right type that cannot be meant."""
    largest = MAXIMUM_LAYERS if slot.key == "multi_token_prediction_layers" else MAXIMUM_INTEGER
    expected = ""
    if slot.kind is int and not slot.minimum <= value <= largest:  # type: ignore[operator]
        expected = f"an integer from {slot.minimum} to {largest}"
    elif slot.kind is float and not 0 <= value <= (1 if slot.key in _SHARES else MAXIMUM_INTEGER):  # type: ignore[operator]
        expected = "a number from 0 to 1" if slot.key in _SHARES else "a number of at least 0"
    elif slot.key in _POSITIVE_SHARES and not 0 < value <= 1:  # type: ignore[operator]
        expected = "a number above 0, up to 1"
    elif slot.key in _POSITIVE and value <= 0:  # type: ignore[operator]
        expected = "a number above 0"
    elif slot.key in _FACTORS and value < 1:  # type: ignore[operator]
        expected = "a number of at least 1"
    elif slot.key in _CHOICES and value not in _CHOICES[slot.key]:
        expected = f"one of {', '.join(_CHOICES[slot.key])}"
    if expected:
        raise ConfigurationError(shown(value), place=place, expected=f"expected {expected}")
