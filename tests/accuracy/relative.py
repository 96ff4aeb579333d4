"""How well schedules of one model are told apart by memory: each beside 1F1B with the same model and micro batches.

What all schedules have in common, such as an unknown vocabulary or rounding of the printed figures to whole units,
cancels out. The page of accuracy prints it beside the absolute figures.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

from tests.accuracy.rows import Row
from tests.accuracy.scoring import Figure

BASE = "1f1b"
"""The schedule that the others are compared with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RelativeRow:
    """A row's memory as a multiple of its base row's."""

    id: str
    """Row."""
    measured: float
    """Of the measured values."""
    projected: float
    """Of the projected values."""

    @property
    def error_percent(self) -> float:
        """Projected minus measured, in percent of measured."""
        return 100.0 * (self.projected / self.measured - 1.0)


def relative_to_base(figure: Figure, rows: Iterable[Row]) -> tuple[RelativeRow, ...]:
    """Every answered row of a figure that has a base row, by name; the base rows themselves are left out."""
    stated = {row.id: row for row in rows if row.source == figure.source}
    scored = {each.id: each for each in figure.rows}
    bases = {_kind(stated[name]): name for name in scored if _schedule(stated[name]) == BASE}
    found = []
    for name, each in sorted(scored.items()):
        base = scored.get(bases.get(_kind(stated[name]), ""))
        if base is not None and base is not each:
            found.append(
                RelativeRow(id=name, measured=each.measured / base.measured, projected=each.projected / base.projected)
            )
    return tuple(found)


def mean_error_percent(found: Iterable[RelativeRow]) -> float:
    """Mean absolute error; 0 for none."""
    errors = [abs(each.error_percent) for each in found]
    return fmean(errors) if errors else 0.0


def _schedule(row: Row) -> str:
    return str(row.parallel.get("schedule", ""))


def _kind(row: Row) -> tuple[Mapping[str, object] | object, ...]:
    """What two rows share that differ in their schedule alone."""
    return (
        tuple(sorted((name, repr(value)) for name, value in row.model.items())),
        row.hardware,
        row.devices,
        repr(sorted((name, repr(value)) for name, value in row.train.items())),
        row.parallel.get("tp"),
        row.parallel.get("pp"),
    )
