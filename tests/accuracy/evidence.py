"""How far measured rows lie from the projection, by mode of the job: the evidence behind `measured-modes.yaml`."""

from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

from projector import catalog
from projector.job import Target, TrainingJob
from projector.memory import project_memory
from projector.memory.modes import modes_of
from projector.parallelism import resolve
from projector.projection import MemoryProjection
from tests.accuracy import whole
from tests.accuracy.jobs import job
from tests.accuracy.rows import Row
from tests.accuracy.scoring import LEVELS, Figure
from tests.accuracy.world import identified

ROWS = Path(__file__).with_name("ground_truth.yaml")


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """Measured rows of one mode."""

    held_rows: int
    """How many were held back from fitting."""
    median_error_percent: float
    """Half of those, or of all where none was held back, are missed by no more."""
    sources: frozenset[str]
    """Publications that measured them."""


def memory_figures() -> tuple[Figure, ...]:
    """Every level of memory of every source, scored."""
    return tuple(figure for figure in whole.scored()[0] if figure.quantity in LEVELS)


@cache
def measured_modes() -> dict[str, Evidence]:
    """The evidence of every mode, from the highest level of memory that each row states."""
    rows = {row.id: row for row in whole.rows()}
    highest: dict[str, tuple[int, float]] = {}
    fitted: dict[str, bool] = {}
    order = list(LEVELS)
    for figure in memory_figures():
        for scored in figure.rows:
            entry = (order.index(figure.quantity), abs(scored.error_percent))
            fitted[scored.id] = scored.fitted
            highest[scored.id] = max(highest.get(scored.id, entry), entry, key=lambda each: each[0])
    errors: dict[str, dict[str, float]] = defaultdict(dict)
    for name, (_, error) in highest.items():
        for mode in _modes(rows[name]):
            errors[mode][name] = error
    found = {}
    for mode, by_row in errors.items():
        held = [error for name, error in by_row.items() if not fitted[name]]
        found[mode] = Evidence(
            held_rows=len(held),
            median_error_percent=median(held or by_row.values()),
            sources=frozenset(rows[name].source for name in by_row),
        )
    return found


def _modes(row: Row) -> tuple[str, ...]:
    asked, target = job(identified(row, _memory))
    return modes_of(asked, resolve(asked, target), catalog.device(target.device))


def _memory(asked: TrainingJob, target: Target) -> MemoryProjection:
    return project_memory(asked, resolve(asked, target), catalog.device(target.device))
