"""How far measured rows lie from the projected time, by mode of the job: the evidence behind `measured-times.json`.

`python -m tests.accuracy.time_evidence` prints that file as today's engine makes it.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil
from statistics import median

from projector import catalog
from projector.performance.interval import LEAST_RUNS
from projector.performance.modes import modes_of
from tests.accuracy import whole
from tests.accuracy.jobs import job
from tests.accuracy.rows import TIME_QUANTITIES, Row
from tests.accuracy.scoring import ScoredRow

INSIDE = 0.975
"""Share of a mode's fitted rows that are no farther from the projection than the interval reaches, on either side: an
interval of 95 %."""
LEAST_PERCENT, FEW_PERCENT = 4, 10
"""What an interval reaches at least, and where fewer than `LEAST_RUNS` rows could tell its tails: identical runs differ
by 2 to 6 % (NVIDIA/dgxc-benchmarking, MLPerf results of several sites)."""
ABOUT = (
    "Modes of jobs of which iteration time was measured, as `projector/performance/modes.py` names them: of the "
    "runs on which constants may be fitted all but one in forty take at most so many percent less "
    "(`below_percent`) or more (`above_percent`) than projected, {least} at least and {few} where fewer than "
    "{runs} could tell; half of the runs that were held back from fitting are projected within `within_percent`. "
    "`rows` are sources of tests/accuracy/ground_truth.yaml. Printed by `python -m tests.accuracy.time_evidence`; "
    "tests/accuracy/test_time_evidence.py compares it with the scorer."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeEvidence:
    """Measured rows of one mode."""

    fitted: tuple[float, ...]
    """Time measured over projected, less 1, in percent, of rows on which constants may be fitted, ascending."""
    held: tuple[float, ...]
    """The same of the other rows."""
    sources: frozenset[str]
    """Publications that measured them."""

    @property
    def below_percent(self) -> int:
        """What the interval reaches towards less time."""
        return max(self._least, ceil(-self._quantile(1 - INSIDE)))

    @property
    def above_percent(self) -> int:
        """What it reaches towards more."""
        return max(self._least, ceil(self._quantile(INSIDE)))

    @property
    def within_percent(self) -> int | None:
        """Half of the held rows are projected within this."""
        return ceil(median(map(abs, self.held))) if self.held else None

    @property
    def _least(self) -> int:
        return FEW_PERCENT if len(self.fitted) < LEAST_RUNS else LEAST_PERCENT

    def _quantile(self, share: float) -> float:
        """Linear between neighbours; 0 of nothing."""
        if not self.fitted:
            return 0.0
        place = share * (len(self.fitted) - 1)
        lower = int(place)
        upper = min(lower + 1, len(self.fitted) - 1)
        return self.fitted[lower] + (self.fitted[upper] - self.fitted[lower]) * (place - lower)


def excess_percent(row: ScoredRow, quantity: str) -> float:
    """Time measured over projected, less 1; rates are the other way round."""
    ratio = row.measured / row.projected
    return 100 * ((ratio if quantity.startswith("iter_ms") else 1 / ratio) - 1)


@cache
def measured_times() -> dict[str, TimeEvidence]:
    """The evidence of every mode."""
    rows = {row.id: row for row in whole.rows()}
    found: dict[str, list[tuple[float, bool, str]]] = defaultdict(list)
    for figure in whole.scored()[0]:
        if figure.quantity not in TIME_QUANTITIES:
            continue
        for scored in figure.rows:
            for mode in modes_of_row(rows[scored.id]):
                found[mode].append((excess_percent(scored, figure.quantity), scored.fitted, figure.source))
    return {mode: _evidence(errors) for mode, errors in sorted(found.items())}


def _evidence(errors: Sequence[tuple[float, bool, str]]) -> TimeEvidence:
    return TimeEvidence(
        fitted=tuple(sorted(error for error, fitted, _ in errors if fitted)),
        held=tuple(sorted(error for error, fitted, _ in errors if not fitted)),
        sources=frozenset(source for *_, source in errors),
    )


def modes_of_row(row: Row) -> tuple[str, ...]:
    """The modes of the job of a row."""
    asked, target = job(row)
    return modes_of(asked, catalog.device(target.device))


def document() -> str:
    """The file as today's engine makes it."""
    modes = {
        mode: {
            "below_percent": each.below_percent,
            "above_percent": each.above_percent,
            "fitted_runs": len(each.fitted),
            **({} if each.within_percent is None else {"within_percent": each.within_percent}),
            "held_runs": len(each.held),
            "rows": sorted(each.sources),
        }
        for mode, each in measured_times().items()
    }
    about = ABOUT.format(least=LEAST_PERCENT, few=FEW_PERCENT, runs=LEAST_RUNS)
    return json.dumps({"about": about, "modes": modes}, indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(document())
