"""Quantities of the classic papers, which are formulas or compare schedules."""

from pathlib import Path

import pytest

from projector.api import project_job
from tests.accuracy.relative import RelativeRow, mean_error_percent, relative_to_base
from tests.accuracy.rows import Row, load
from tests.accuracy.scoring import Figure, score

ROWS = load(Path(__file__).with_name("ground_truth.yaml"))


def figures(source: str) -> tuple[dict[str, Figure], list[Row]]:
    rows = [row for row in ROWS if row.source == source and row.measured]
    return {figure.quantity: figure for figure in score(rows, project_job)}, rows


@pytest.fixture(scope="module")
def zero_bubble() -> tuple[RelativeRow, ...]:
    found, rows = figures("zero-bubble-2023")
    return relative_to_base(found["mem_gb"], rows)


def test_memory_of_schedules_beside_1f1b_is_told_within_two_percent(zero_bubble: tuple[RelativeRow, ...]) -> None:
    """ArXiv 2401.10241, table 4: ZB-1p, ZB-2p and interleaved 1F1B."""
    assert len(zero_bubble) >= 15
    assert mean_error_percent(zero_bubble) < 2
    assert max(abs(each.error_percent) for each in zero_bubble) < 3


def test_layers_and_their_activations_follow_the_formulas_of_the_paper() -> None:
    """ArXiv 2205.05198: 18 bytes a parameter; s b h (10 + 24 / t + 5 a s / (h t)) or 34 s b h / t a layer."""
    found, _ = figures("korthikanti-2022")
    for quantity in ("mem_activation_gib", "mem_params_opt_gib"):
        assert len(found[quantity].rows) >= 6
        assert max(abs(each.error_percent) for each in found[quantity].rows) < 0.1


def test_a_row_is_compared_with_1f1b_of_its_own_model_and_micro_batches() -> None:
    rows = [row for row in ROWS if row.source == "zero-bubble-2023"]
    found, _ = figures("zero-bubble-2023")
    compared = {each.id: each.measured for each in relative_to_base(found["mem_gb"], rows)}
    assert compared["zb-14.6b-zb-2p-m64"] == pytest.approx(51 / 32)
    assert compared["zb-28.3b-1f1b-interleaved-m96"] == pytest.approx(58 / 43)
    assert not any("-1f1b-m" in name for name in compared)
