"""Plain tables, bars and paragraphs of 80 columns, for terminals and pipes alike."""

import re
import textwrap
from collections.abc import Sequence

WIDTH = 80
"""Columns of the report."""
_TIE = "\u00a0"
"""A space at which no line breaks."""
_UNIT = re.compile(r"(?<=\d) (?=%|[GM]iB|ms\b|s\b)")
"""The space between a number and its unit."""


def heading(title: str) -> str:
    """A section's title."""
    return f"{title}\n{'-' * len(title)}"


def paragraph(text: str, *, first: str = "", indent: str | None = None) -> str:
    """Text within the width; `first` leads the first line and `indent` the others (blanks of its length if None)."""
    rest = " " * len(first) if indent is None else indent
    lines = textwrap.wrap(
        _UNIT.sub(_TIE, text),
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
        break_long_words=True,
    )
    return "\n".join(lines).replace(_TIE, " ") or first.rstrip()


def columns(rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Rows of equal length as aligned columns; the first `left` are text, the others numbers.

    The first column gives way when the row would be wider than the report.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    spare = WIDTH - sum(widths) - 2 * (len(widths) - 1)
    widths[0] = max(widths[0] + min(spare, 0), 12)
    lines = []
    for row in rows:
        cells = [
            _cell(text, width, left=place < left) for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def bar(start: float, end: float, width: int) -> str:
    """A bar from `start` to `end`, shares of the width between 0 and 1; what is not empty shows."""
    first, last = round(start * width), round(end * width)
    if end > start and first == last:
        first, last = (first - 1, last) if last == width else (first, last + 1)
    return " " * first + "#" * (last - first)


def _cell(text: str, width: int, *, left: bool) -> str:
    if len(text) > width:
        text = text[: width - 2] + ".."
    return text.ljust(width) if left else text.rjust(width)
