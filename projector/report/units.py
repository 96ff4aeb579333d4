"""Numbers as people read them. GiB is 2^30 bytes, everywhere."""

from collections.abc import Sequence

GIB = 1 << 30
"""Bytes of a GiB."""
_PREFIXES = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K"))
"""Thousands of parameters, as model names spell them: 70B."""


def gib(size_bytes: float, digits: int = 2) -> str:
    """`131.24 GiB`."""
    return f"{size_bytes / GIB:,.{digits}f} GiB"


def parameters(count: int) -> str:
    """`70.554 B`."""
    for size, letter in _PREFIXES:
        if count >= size:
            return f"{count / size:,.3f} {letter}"
    return str(count)


def duration(seconds: float) -> str:
    """Milliseconds below 10 s, seconds above."""
    return f"{seconds * 1e3:,.1f} ms" if seconds < 10 else f"{seconds:,.2f} s"  # noqa: PLR2004 - where digits end


def percent(ratio: float) -> str:
    """`39.2 %`."""
    return f"{ratio * 100:.1f} %"


def adding_up(parts: Sequence[float], unit: float = 1.0, digits: int = 2) -> list[float]:
    """The parts in a unit, rounded so that the printed numbers add up to the printed sum.

    Each is the step between two rounded running sums, so it is off by at most one in its last digit.
    """
    rounded: list[float] = []
    running, before = 0.0, 0.0
    for part in parts:
        running += part
        now = round(running / unit, digits)
        rounded.append(round(now - before, digits))
        before = now
    return rounded


def ranges(numbers: Sequence[int]) -> str:
    """`0-9, 40-49` for ascending integers."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1][1:] = [number]
        else:
            spans.append([number])
    return ", ".join("-".join(map(str, span)) for span in spans) or "none"
