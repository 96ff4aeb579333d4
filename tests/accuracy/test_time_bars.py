"""How close time is projected on rows on which no constant may be fitted: bars that are reached stay reached."""

import re
from collections.abc import Callable
from statistics import fmean

import pytest

from tests.accuracy.ranking import Ranking, ranked, rankings
from tests.accuracy.rows import MEMORY_QUANTITIES, Row
from tests.accuracy.scoring import Figure, ScoredRow
from tests.accuracy.trivial import anchored
from tests.accuracy.whole import rows, scored


def figures() -> list[Figure]:
    return [figure for figure in scored()[0] if figure.quantity not in MEMORY_QUANTITIES]


def is_dense(row: Row) -> bool:
    return not row.model.get("moe")


def is_dense_pretraining_under_megatron(row: Row) -> bool:
    adapts = re.search("lora|sft", row.id) is not None
    of_nvidia = row.source == "nvidia-dgxc-benchmarking" and "h100" in row.id and not adapts
    return is_dense(row) and (of_nvidia or row.source == "narayanan-2021-table1")


def is_of_amd(row: Row) -> bool:
    return row.source in {"amd-perf-results-via-primus-blog", "primus-moe-package"}


def is_mlperf_on_amd(row: Row) -> bool:
    return row.source.startswith("mlperf") and row.hardware.startswith("MI")


def is_simumax(row: Row) -> bool:
    return row.source == "simumax-b200-v1.2"


BARS: dict[str, tuple[Callable[[Row], bool], float, int]] = {
    "dense pretraining under Megatron-LM, H100 and A100": (is_dense_pretraining_under_megatron, 3.0, 30),
    "AMD's blog and package of mixtures": (is_of_amd, 5.0, 16),
    "MLPerf on AMD GPUs": (is_mlperf_on_amd, 5.0, 2),
    "SimuMax's runs on B200": (is_simumax, 2.5, 12),
}
"""Rows, mean absolute error in percent, and fewest rows."""


@pytest.mark.xdist_group("scoring")
@pytest.mark.parametrize(("belongs", "mean", "least"), BARS.values(), ids=BARS)
def test_time_is_as_close_as(belongs: Callable[[Row], bool], mean: float, least: int) -> None:
    known = {(row.source, row.id): row for row in rows()}
    errors = [
        abs(each.error_percent)
        for figure in figures()
        for each in figure.rows
        if not each.fitted and belongs(known[figure.source, each.id])
    ]
    assert len(errors) >= least
    assert fmean(errors) <= mean


@pytest.mark.xdist_group("scoring")
def test_ladders_of_nvidia_scale_within_a_percent_from_their_smallest_run() -> None:
    found = [figure for figure in anchored(figures(), rows()) if figure.source == "nvidia-dgxc-benchmarking"]
    assert found
    assert all(figure.n > 0 and figure.mae_percent <= 1.0 for figure in found)


@pytest.mark.xdist_group("scoring")
def test_four_pairs_of_five_rank_as_measured_beyond_chance() -> None:
    together = Ranking()
    for each in rankings(figures(), rows()).values():
        together = together.plus(each)
    assert together.groups >= 30
    assert together.tau >= 0.8


def a_run(measured: float, projected: float) -> ScoredRow:
    ends = {"lower": projected, "upper": projected}
    return ScoredRow(id="run", measured=measured, projected=projected, error_percent=0.0, fitted=False, **ends)


@pytest.mark.parametrize(
    ("runs", "tau"),
    [
        ([(1, 10), (2, 20), (3, 30)], 1.0),
        ([(1, 30), (2, 20), (3, 10)], -1.0),
        ([(1, 10), (2, 30), (3, 20)], 1 / 3),
        ([(1, 10), (1, 20), (3, 30)], 1.0),
    ],
)
def test_tau_of_pairs_is_kendalls(runs: list[tuple[float, float]], tau: float) -> None:
    """Kendall 1938; tied pairs are left out."""
    assert ranked(a_run(*run) for run in runs).tau == pytest.approx(tau)
