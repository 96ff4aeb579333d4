"""What intervals of time build on agrees with the measured rows, and the intervals hold them without being wide."""

from collections.abc import Iterable

import pytest

from projector import catalog
from projector.performance import Unstated
from tests.accuracy import whole
from tests.accuracy.rows import TIME_QUANTITIES
from tests.accuracy.scoring import ScoredRow, coverage
from tests.accuracy.time_evidence import measured_times
from tests.accuracy.unstated import unstated

pytestmark = pytest.mark.xdist_group("scoring")

TOLERANCE_PERCENT = 1.0
"""Listed figures are rounded up to whole percents."""


def timed() -> Iterable[ScoredRow]:
    return (row for figure in whole.scored()[0] if figure.quantity in TIME_QUANTITIES for row in figure.rows)


def test_every_mode_of_which_time_was_measured_is_listed() -> None:
    assert catalog.measured_times().keys() == measured_times().keys()


@pytest.mark.parametrize("mode", catalog.measured_times())
def test_runs_on_which_constants_may_be_fitted_decide_how_far_an_interval_reaches(mode: str) -> None:
    listed, found = catalog.measured_times()[mode], measured_times()[mode]
    told = "python -m tests.accuracy.time_evidence prints today's file"
    assert listed.below_percent == pytest.approx(found.below_percent, abs=TOLERANCE_PERCENT), told
    assert listed.above_percent == pytest.approx(found.above_percent, abs=TOLERANCE_PERCENT), told
    assert listed.fitted_runs == len(found.fitted)


@pytest.mark.parametrize("mode", catalog.measured_times())
def test_half_of_the_held_runs_of_a_mode_are_projected_as_closely_as_is_listed(mode: str) -> None:
    listed, found = catalog.measured_times()[mode], measured_times()[mode]
    assert found.sources >= set(listed.sources)
    assert len(found.held) >= listed.held_runs
    if listed.within_percent is not None:
        assert found.within_percent is not None
        assert found.within_percent <= listed.within_percent


@pytest.mark.parametrize("held", [False, True], ids=["all rows", "rows on which no constant may be fitted"])
def test_intervals_of_time_hold_nine_rows_of_ten_within_a_fifth(held: bool) -> None:  # noqa: FBT001
    found = coverage(row for row in timed() if not (held and row.fitted))
    assert found.inside >= 0.9 * found.rows
    assert found.half_width_percent <= 20


@pytest.mark.parametrize(("left_open", "share"), [(Unstated.VIRTUAL_STAGES, 1.0), (Unstated.DISPATCHER, 0.9)])
def test_intervals_hold_runs_whose_sources_leave_open_what_decides_their_time(
    left_open: Unstated, share: float
) -> None:
    open_ = {row.id for row in whole.rows() if left_open in unstated(row)}
    found = coverage(row for row in timed() if row.id in open_)
    assert found.rows >= 10
    assert found.inside >= share * found.rows
