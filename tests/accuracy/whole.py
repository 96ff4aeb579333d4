"""The whole file of measured runs, scored once for all who read it."""

from functools import cache
from pathlib import Path

from tests.accuracy.__main__ import figures_and_speeds
from tests.accuracy.rows import Row, load
from tests.accuracy.scoring import Figure

FILE = Path(__file__).with_name("ground_truth.yaml")


@cache
def rows() -> tuple[Row, ...]:
    """Every run of the file."""
    return tuple(load(FILE))


@cache
def scored() -> tuple[tuple[Figure, ...], dict[str, float]]:
    """Figures of all sources, and model TFLOP/s per device of each row."""
    figures, speeds = figures_and_speeds(list(rows()))
    return tuple(figures), speeds
