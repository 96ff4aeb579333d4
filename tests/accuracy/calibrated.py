"""The engine with a site's measured rates, beside the engine without."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib.resources import files
from statistics import fmean

from projector.answer import halves
from projector.catalog import MeasuredRates
from projector.config.calibration_file import read_calibration_file
from tests.accuracy.jobs import job
from tests.accuracy.rows import Row
from tests.accuracy.scoring import Figure, row_error

WITH_RATES = "this engine with rates of the site"
"""Rates that SimuMax's authors measured on the node of their runs (projector/catalog/rates)."""
SOURCE, QUANTITY = "simumax-b200-v1.2", "iter_ms"


@cache
def site_rates() -> MeasuredRates:
    """The file as anybody may hand it to `--calibration`."""
    return read_calibration_file(files("projector").joinpath("catalog/rates/b200-bf16.json").read_text()).rates


def calibrated_errors(rows: Iterable[Row]) -> dict[str, float]:
    """Error in percent of the time of each run of the site, by row."""
    found = {}
    for row in rows:
        if row.source == SOURCE and QUANTITY in row.measured and row.score != "excluded":
            _, performance = halves(*job(row), replay=False, rates=site_rates())
            found[row.id] = row_error(QUANTITY, performance.iteration_seconds * 1e3, row.measured[QUANTITY])
    return found


def with_calibration(figures: list[Figure], rows: list[Row]) -> list[Figure]:
    """The figures, with the calibrated engine among the peers of the site's rows that count."""
    errors = calibrated_errors(rows)
    counted = [abs(errors[row.id]) for row in rows if row.id in errors and not row.fitted]
    if not counted:
        return figures
    return [
        replace(figure, peers={**figure.peers, WITH_RATES: fmean(counted)})
        if (figure.source, figure.quantity) == (SOURCE, QUANTITY)
        else figure
        for figure in figures
    ]
