"""A pipeline schedule drawn with characters: one line per stage, time to the right."""

from collections.abc import Iterator
from typing import NamedTuple

from projector.report.table import paragraph
from projector.report.units import duration
from projector.schedule import Event, Kind, Replay

_FILLS = {Kind.F: ">", Kind.B: "<", Kind.W: "="}
"""What fills a pass behind its name: forward, backward, towards the weights."""
_COLOURS = {Kind.F: 44, Kind.B: 42, Kind.W: 43}
"""Background of a pass, as in ECMA-48, 8.3.117: blue, green, yellow."""
_WAITING = "."
_LEFT_OUT = " ~ "
_NAMED = 2
"""Columns of a forward pass where the middle is left out: its letter and a digit of its micro batch."""


class _Window(NamedTuple):
    """A stretch of time that is drawn."""

    start: float
    """Seconds at its left edge."""
    end: float
    """Seconds at its right edge."""
    columns: int
    """Its width."""
    numbered: bool
    """Passes have room for their micro batch."""

    def place(self, seconds: float) -> int:
        """The column at which a moment falls."""
        place = round((seconds - self.start) / (self.end - self.start) * self.columns)
        return min(max(place, 0), self.columns)


def picture(run: Replay, *, width: int, colour: bool = False) -> str:
    """The run in `width` columns: all of it, or its beginning and end where a forward pass would get no column.

    A pass is its letter and micro batch where there is room; forward, backward and weight gradient differ without
    colour too. Odd model chunks are in lower case.
    """
    labels = [f"stage {rank} " for rank in range(run.order.pipeline)]
    margin = max(map(len, labels))
    windows = _windows(run, width - margin)
    lines = [f"{label:<{margin}}{_row(run, rank, windows, colour=colour)}" for rank, label in enumerate(labels)]
    marks = legend(run, numbered=windows[0].numbered)
    return "\n".join([" " * margin + _axis(windows), *lines, marks])


def legend(run: Replay, *, numbered: bool) -> str:
    """What the marks mean."""
    parts = ["F forward, B backward"]
    if run.order.splits_backward:
        parts = ["F forward, B backward towards the input, W towards the weights"]
    parts.append(f"{_WAITING} waiting")
    if numbered:
        parts.append("numbers are micro batches")
    if run.order.chunks > 1:
        parts.append("lower case: odd model chunks")
    return paragraph("; ".join(parts))


def _windows(run: Replay, columns: int) -> tuple[_Window, ...]:
    seconds = run.timeline.seconds
    forward = _forward_seconds(run)
    if columns * forward >= seconds:
        return (_Window(0.0, seconds, columns, numbered=columns * forward >= _NAMED * seconds),)
    half = max(1, (columns - len(_LEFT_OUT)) // 2)
    span = half * forward / _NAMED
    return (_Window(0.0, span, half, numbered=True), _Window(seconds - span, seconds, half, numbered=True))


def _forward_seconds(run: Replay) -> float:
    """A forward pass of the first stage, on average."""
    timed = zip(run.order.ranks[0], run.timeline.starts[0], run.timeline.ends[0], strict=True)
    lengths = [end - start for event, start, end in timed if event.kind is Kind.F]
    return sum(lengths) / len(lengths)


def _axis(windows: tuple[_Window, ...]) -> str:
    """When each window begins, and when the last one ends."""
    marks = []
    for place, window in enumerate(windows):
        start = duration(window.start) if window.start else "0"
        end = duration(window.end) if place == len(windows) - 1 else ""
        marks.append(f"{start}{end:>{max(0, window.columns - len(start))}}")
    return (" " * len(_LEFT_OUT)).join(marks).rstrip()


def _row(run: Replay, rank: int, windows: tuple[_Window, ...], *, colour: bool) -> str:
    return _LEFT_OUT.join("".join(_cells(run, rank, window, colour=colour)) for window in windows)


def _cells(run: Replay, rank: int, window: _Window, *, colour: bool) -> Iterator[str]:
    """The passes of a rank that fall into a window, and what lies between them."""
    drawn = 0
    for event, start, end in zip(
        run.order.ranks[rank], run.timeline.starts[rank], run.timeline.ends[rank], strict=True
    ):
        first, last = max(window.place(start), drawn), window.place(end)
        if last <= first:
            continue
        yield _WAITING * (first - drawn)
        text = _name(event, last - first, numbered=window.numbered)
        yield f"\x1b[30;{_COLOURS[event.kind]}m{text}\x1b[0m" if colour else text
        drawn = last
    yield _WAITING * (window.columns - drawn)


def _name(event: Event, columns: int, *, numbered: bool) -> str:
    """A pass in so many columns: its letter, the last digits of its micro batch that fit, and its fill."""
    letter = event.kind.lower() if event.chunk % 2 else event.kind.upper()
    number = str(event.micro_batch) if numbered else ""
    shown = number if len(number) < columns else number[len(number) - columns + 1 :]
    return f"{letter}{shown}".ljust(columns, _FILLS[event.kind])
