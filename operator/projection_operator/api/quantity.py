"""Bytes as Kubernetes quantities and back.

The format is that of the Kubernetes documentation, "Quantities": a decimal number and a binary suffix. Two decimals
are kept, three below ten: an error of at most 0.05 %.
"""

from decimal import ROUND_HALF_EVEN, Decimal
from math import ceil

_SUFFIXES = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))
_TEN = 10


def quantity(size_bytes: int) -> str:
    """Bytes with the largest suffix up to `Gi` that leaves a number of at least 1, such as `171.34Gi`.

    Memories of devices are compared at a glance, so none of them is written in TiB.
    """
    for suffix, unit in _SUFFIXES[1:]:
        if size_bytes >= unit:
            return f"{_rounded(Decimal(size_bytes) / unit)}{suffix}"
    return str(size_bytes)


def bytes_of(text: str) -> int:
    """Bytes of a quantity with a binary suffix or none, rounded up as Kubernetes does; ValueError for anything else."""
    for suffix, unit in _SUFFIXES:
        if text.endswith(suffix):
            return ceil(_number(text.removesuffix(suffix)) * unit)
    return ceil(_number(text))


def _number(text: str) -> Decimal:
    if not text.replace(".", "", 1).isascii() or not text.replace(".", "", 1).isdigit():
        raise ValueError(f"{text!r} is not a number")
    return Decimal(text)


def _rounded(value: Decimal) -> str:
    text = f"{value.quantize(Decimal('0.01' if value >= _TEN else '0.001'), rounding=ROUND_HALF_EVEN):f}"
    return text.rstrip("0").rstrip(".")
