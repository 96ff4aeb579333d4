"""Each large miss has a cause, none is kept that no longer is one, and predictors are what their source says."""

import re
from functools import cache
from pathlib import Path

import pytest

from projector.api import project_job
from projector.job import Attention, DecoderLayer, DenseMLP, Parallelism, Software
from tests.accuracy.memory_predictors import CLOSED_FORMULA, CONSTANT_RATIO, closed_formula_gib, with_memory_predictors
from tests.accuracy.misses import causes
from tests.accuracy.rows import load
from tests.accuracy.scoring import score
from tests.accuracy.world import is_unstated
from tests.layers.builders import job, model, target

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"
"""Lists the largest misses; tests/docs holds it against what the engine does today, so that rows are scored once."""
ROWS = load(Path(__file__).with_name("ground_truth.yaml"))


@cache
def largest() -> dict[tuple[str, str], str]:
    """Error of each of the largest misses in percent, by source and group."""
    text = PAGE.read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| source \| row \|.*suspected cause \|\n.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    groups = {row.id: row.group for row in ROWS}
    cells = [[cell.strip() for cell in line.split("|")] for line in table.splitlines()]
    return {(source, groups[row]): error for _, source, row, _, _, _, error, *_ in cells}


def test_each_of_the_three_largest_misses_of_a_source_has_a_cause() -> None:
    assert largest()
    assert not largest().keys() - causes().keys(), "add them to causes.yaml"


def test_no_cause_is_of_a_miss_that_is_none() -> None:
    assert not causes().keys() - largest().keys(), "remove them from causes.yaml"


def test_causes_say_what_and_not_that() -> None:
    for cause in causes().values():
        assert len(cause) > 20
        assert cause.endswith(".")


def test_nvidias_formula_gives_what_its_script_prints() -> None:
    # GPT-3 175B, TP 8, PP 1, one sequence of 2,048: 96 layers x 2 x 12288^2 x (2 + 4 + 2 / 12288) and one table.
    gpt3 = DecoderLayer(
        mixer=Attention(heads=96, key_value_heads=96, head_dim=128), feed_forward=DenseMLP(ffn=49152, gated=False)
    )
    architecture = model((gpt3,) * 96, hidden=12288, vocabulary=51200, tied_embeddings=True)
    asked = job(
        architecture,
        layout=Parallelism(tensor=8),
        sequence=2048,
        global_=1,
        software=Software(vocabulary_divisible_by=128),
    )
    parameters = 96 * 2 * 12288**2 * (6 + 2 / 12288) + 51200 * 12288
    activations = 2048 * 12288 * 34 * 96 + 2048 * (8 + 12288) + 4 * 2048 * 12288 * (1 + 51200 / 12288)
    found = closed_formula_gib(asked, target())
    assert found == pytest.approx((parameters * 18 + activations) / 8 / 2**30)


def test_predictors_stand_beside_the_engine_and_see_no_row_that_counts() -> None:
    few = [row for row in ROWS if row.source in {"simumax-b200-v1.2", "megatron-ci-golden"} and not is_unstated(row)]
    figures = with_memory_predictors(score(few, project_job), ROWS)
    peers = {(figure.source, figure.quantity): figure.peers for figure in figures}
    ratio = peers["simumax-b200-v1.2", "mem_reserved_gib"][CONSTANT_RATIO]
    assert 1.0 < ratio < 2.5
    assert CLOSED_FORMULA in peers["megatron-ci-golden", "mem_alloc_gib"]
