"""How close memory is projected on rows on which no constant may be fitted: bars that are reached stay reached."""

from statistics import fmean

import pytest

from tests.accuracy.calibrated import calibrated_errors
from tests.accuracy.relative import mean_error_percent, relative_to_base
from tests.accuracy.whole import rows, scored

BARS = {
    ("simumax-b200-v1.2", "mem_alloc_gib"): (0.1, 0.3),
    ("simumax-b200-v1.2", "mem_reserved_gib"): (0.5, 1.5),
    ("megatron-ci-golden", "mem_alloc_gib"): (0.5, 1.5),
    ("megatron-ci-golden", "mem_persistent_gib"): (0.5, 1.5),
    ("torchtitan-2024-12", "mem_reserved_gib"): (3.0, 8.0),
    ("korthikanti-2022", "mem_activation_gib"): (0.1, 0.1),
    ("korthikanti-2022", "mem_params_opt_gib"): (0.1, 0.1),
    ("primus-raw-logs", "mem_persistent_gib"): (0.5, 2.5),
    ("primus-raw-logs", "mem_alloc_gib"): (0.5, 2.5),
}
"""Mean and worst absolute error in percent, by source and column."""


@pytest.mark.xdist_group("scoring")
@pytest.mark.parametrize(("source", "quantity"), BARS, ids=[" ".join(key) for key in BARS])
def test_memory_of_a_source_is_as_close_as(source: str, quantity: str) -> None:
    figures = {(figure.source, figure.quantity): figure for figure in scored()[0]}
    figure = figures[source, quantity]
    mean, worst = BARS[source, quantity]
    assert figure.scored == figure.n > 0
    assert figure.mae_percent <= mean
    assert figure.worst_percent <= worst


@pytest.mark.xdist_group("scoring")
def test_schedules_need_memory_over_1f1b_as_measured_within_two_percent() -> None:
    (figure,) = [each for each in scored()[0] if (each.source, each.quantity) == ("zero-bubble-2023", "mem_gb")]
    found = relative_to_base(figure, rows())
    assert found
    assert mean_error_percent(found) <= 2.0


@pytest.mark.xdist_group("scoring")
def test_schedules_take_as_long_beside_1f1b_as_measured_within_two_percent() -> None:
    wanted = ("zero-bubble-2023", "iter_ms_derived")
    (figure,) = [each for each in scored()[0] if (each.source, each.quantity) == wanted]
    found = relative_to_base(figure, rows())
    assert len(found) >= 15
    assert mean_error_percent(found) <= 2.0


def test_rates_of_a_site_project_its_unseen_runs_within_two_and_a_half_percent() -> None:
    fitted = {row.id for row in rows() if row.fitted}
    found = [error for row, error in calibrated_errors(rows()).items() if row not in fitted]
    assert len(found) >= 12
    assert fmean(map(abs, found)) <= 2.5
    assert abs(fmean(found)) <= 1.0
    assert max(map(abs, found)) <= 8.0
