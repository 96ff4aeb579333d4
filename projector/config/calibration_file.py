"""Reading a calibration file: what a person measured on their own machine (docs/calibration.md).

A section that the engine does not use is listed as without effect; a mistake inside one that it uses is an error.
"""

import re
from collections.abc import Mapping

from projector import catalog
from projector.catalog import Calibration, OutsideMeasurement
from projector.config.nearest import nearest
from projector.config.rates_file import SECTIONS, read_rates
from projector.config.safe_json import parse_json_or_yaml
from projector.errors import ConfigurationError, InputError, shown

_LARGEST_FILE = 1024 * 1024
"""Characters; a table of five hundred shapes has 40 thousand."""
_NOTES = ("what", "source")
"""Keys that describe the file to people."""
_LONGEST_LIST = 200
"""Characters of an error that repeat a file's keys."""
_LARGEST_BYTES = 2**42
"""More than any device holds."""
_LARGEST_GROUPS = 1000
"""More process groups than any framework makes."""
_OUTSIDE = ("bytes", "groups", "dispatch_buffer_bytes", "source")


def read_calibration_file(text: str, *, place: str = "calibration file") -> Calibration:
    """Read a calibration file in YAML or JSON.

    Raises `ConfigurationError` that names the key, its value and what would be right.
    """
    if len(text) > _LARGEST_FILE:
        raise ConfigurationError(f"{len(text)} characters", place=place, expected=f"at most {_LARGEST_FILE}")
    entries = parse_json_or_yaml(text, name=place)
    outside = entries.get("outside_allocator")
    rates, unused = read_rates(entries, place)
    sections = ("outside_allocator", *SECTIONS)
    device = _described_device(entries) or _text(entries, "device", place, "the GPU it was measured on, such as MI300X")
    if entries.keys().isdisjoint(sections):
        others = ", ".join(shown(key) for key in entries if key not in {"device", *_NOTES})
        message = "holds nothing that the engine reads" + (f", but {others[:_LONGEST_LIST]}" if others else "")
        raise ConfigurationError(message, place=place, expected=f"one of {', '.join(sections)}")
    known = {"device", *sections, *_NOTES}
    return Calibration(
        device=device,
        outside_allocator=None if outside is None else _outside(outside, f"{place}: outside_allocator"),
        rates=rates,
        without_effect=(*(key for key in entries if key not in known), *unused),
    )


def _described_device(entries: Mapping[str, object]) -> str | None:
    """The one GPU that the description names, where there is no `device` beside it."""
    what = entries.get("what")
    if "device" in entries or not isinstance(what, str):
        return None
    found = {}
    for word in re.findall(r"[A-Za-z]+\d+\w*", what[:1000]):
        try:
            found[catalog.device(word).name] = word
        except InputError:
            continue
    return next(iter(found)) if len(found) == 1 else None


def _outside(entries: object, place: str) -> OutsideMeasurement:
    if not isinstance(entries, Mapping):
        raise ConfigurationError(f"{shown(entries)} is not a map", place=place, expected=f"keys {', '.join(_OUTSIDE)}")
    for key in entries:
        if key not in _OUTSIDE:
            raise ConfigurationError("is not a known key", place=f"{place}.{key}", expected=nearest(key, _OUTSIDE))
    size = _count(entries, "bytes", place, least=1, most=_LARGEST_BYTES)
    if size is None:
        raise ConfigurationError("is missing", place=f"{place}.bytes", expected="bytes outside torch's allocator")
    buffers = _count(entries, "dispatch_buffer_bytes", place, least=0, most=size) or 0
    return OutsideMeasurement(
        size_bytes=size,
        groups=_count(entries, "groups", place, least=0, most=_LARGEST_GROUPS),
        dispatch_buffer_bytes=buffers,
        source=_text(entries, "source", place, "how and where it was measured"),
    )


def _text(entries: Mapping[str, object], key: str, place: str, expected: str) -> str:
    value = entries.get(key)
    if value is None:
        raise ConfigurationError("is missing", place=f"{place}.{key}", expected=expected)
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(shown(value), place=f"{place}.{key}", expected=f"expected {expected}")
    return value


def _count(entries: Mapping[str, object], key: str, place: str, *, least: int, most: int) -> int | None:
    """A whole number, None when absent; a float that is one serves, since YAML reads 1.2e+10 as a float."""
    value = entries.get(key)
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most and value % 1 == 0:
        return int(value)
    expected = f"expected a whole number from {least} to {most}"
    raise ConfigurationError(shown(value), place=f"{place}.{key}", expected=expected)
