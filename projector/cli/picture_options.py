"""The options of `projector schedule` alone, a part of the table in `options.py`."""

from functools import partial
from pathlib import Path

from projector.cli.row import Fate, Row, columns_wide, one_of, switches

_picture = partial(Row, group="Output", commands=("schedule",), fate=Fate.WORKS)

PICTURES: tuple[Row, ...] = (
    _picture(
        name="--trace",
        value="FILE",
        meaning="Write the timeline as well, as a trace for chrome://tracing or Perfetto.",
        becomes="the file that is written, in one step and never over one that was read",
        effect=switches("trace", Path),
    ),
    _picture(
        name="--width",
        value="N",
        default="the terminal's, else 80",
        meaning="Columns of the picture.",
        becomes="how much of the timeline is drawn, and how finely",
        effect=switches("width", columns_wide),
    ),
    _picture(
        name="--color",
        value="{auto,always,never}",
        default="auto: on a terminal, unless $NO_COLOR is set",
        meaning="Colour passes of the picture.",
        becomes="how the picture is printed",
        effect=switches("color", one_of("auto", "always", "never")),
    ),
)
"""How a schedule is drawn, and its trace."""
