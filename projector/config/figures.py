"""Figures of a calibration file: numbers, counts and names, with errors that name place, value and what is right."""

from collections.abc import Mapping
from typing import Any

from projector.errors import ConfigurationError, shown

TERA, GIGA, MICRO = 1e12, 1e9, 1e-6
_LARGEST = 1e6
"""Above any rate in TFLOP/s or GB/s, and any latency in us."""
_LARGEST_WIDTH = 2**40
"""Above any dimension of a shape."""


def mapping(value: object, place: str) -> Mapping[str, Any]:
    """A map of names."""
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{shown(value)} is not a map", place=place, expected="a map of names")
    return value


def microseconds(values: Mapping[str, Any], key: str, place: str) -> float:
    """A latency in seconds, 0 where it is left out."""
    return 0.0 if values.get(key) is None else number(values, key, place, zero=True) * MICRO


def number(values: Mapping[str, Any], key: str, place: str, *, zero: bool = False) -> float:
    """A rate or a latency in the units of the file."""
    value = values.get(key)
    found = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else -1.0
    if 0 < found <= _LARGEST or (zero and found == 0):
        return found
    least = "from" if zero else "above"
    raise ConfigurationError(
        shown(value), place=f"{place}.{key}", expected=f"expected a number {least} 0 up to {_LARGEST:,.0f}"
    )


def width(values: Mapping[str, Any], name: str, place: str, *, least: int = 1, most: int = _LARGEST_WIDTH) -> int:
    """A count, 1 where it is left out."""
    value = values.get(name, 1)
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    raise ConfigurationError(shown(value), place=f"{place}.{name}", expected=f"expected a whole number from {least}")


def choice(values: Mapping[str, Any], key: str, place: str, known: tuple[str, ...]) -> str:
    """One of some names."""
    value = values.get(key)
    if isinstance(value, str) and value in known:
        return value
    raise ConfigurationError(shown(value), place=f"{place}.{key}", expected=f"expected one of {', '.join(known)}")
