"""The largest misses of memory, and what is suspected behind each: `causes.yaml`, one entry for a group of rows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.accuracy.rows import MEMORY_QUANTITIES, Row
from tests.accuracy.scoring import Figure, ScoredRow

CAUSES = Path(__file__).with_name("causes.yaml")
LARGEST = 3
"""Groups of each source that need a cause."""
SMALL_PERCENT = 1.0
"""Errors up to this need none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Miss:
    """The largest error of a group of rows."""

    source: str
    """Publication."""
    group: str
    """Runs that share layers and layout."""
    quantity: str
    """Column with the largest error."""
    row: ScoredRow
    """The row with it."""


def largest_misses(figures: Iterable[Figure], rows: Iterable[Row]) -> list[Miss]:
    """The three groups of each source that memory misses most, if by more than 1 %, the largest first.

    Rows that are judged by their interval count where it does not hold the measured value.
    """
    by_id = {row.id: row for row in rows}
    worst: dict[tuple[str, str], Miss] = {}
    for figure in figures:
        if figure.quantity not in MEMORY_QUANTITIES:
            continue
        for scored in figure.rows:
            row = by_id[scored.id]
            if row.score == "interval" and scored.lower <= scored.measured <= scored.upper:
                continue
            miss = Miss(source=figure.source, group=row.group, quantity=figure.quantity, row=scored)
            key = figure.source, row.group
            if key not in worst or _size(miss) > _size(worst[key]):
                worst[key] = miss
    found = []
    for source in sorted({source for source, _ in worst}):
        of_source = sorted((miss for miss in worst.values() if miss.source == source), key=_size, reverse=True)
        found += [miss for miss in of_source[:LARGEST] if _size(miss) > SMALL_PERCENT]
    return found


def causes() -> Mapping[tuple[str, str], str]:
    """What is suspected, by source and group."""
    entries = yaml.safe_load(CAUSES.read_text(encoding="utf-8"))
    return {(entry["source"], entry["group"]): " ".join(entry["cause"].split()) for entry in entries}


def _size(miss: Miss) -> float:
    return abs(miss.row.error_percent)
