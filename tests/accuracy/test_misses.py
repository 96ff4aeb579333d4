"""Each large miss has a cause, none is kept that no longer is one, and predictors are what their source says."""

from functools import cache
from pathlib import Path

import pytest

from projector.job import Attention, DecoderLayer, DenseMLP, Parallelism, Software
from tests.accuracy.__main__ import figures_and_speeds
from tests.accuracy.memory_predictors import CLOSED_FORMULA, CONSTANT_RATIO, closed_formula_gib, with_memory_predictors
from tests.accuracy.misses import Miss, causes, largest_misses
from tests.accuracy.rows import Row, load
from tests.accuracy.scoring import Figure
from tests.layers.builders import job, model, target


@cache
def scored() -> tuple[list[Figure], list[Row]]:
    rows = load(Path(__file__).with_name("ground_truth.yaml"))
    return figures_and_speeds(rows)[0], rows


def largest() -> list[Miss]:
    return largest_misses(*scored())


def test_each_of_the_three_largest_misses_of_a_source_has_a_cause() -> None:
    known = causes()
    missing = [(miss.source, miss.group, round(miss.row.error_percent, 1)) for miss in largest()]
    assert not [each for each in missing if each[:2] not in known], "add them to causes.yaml"


def test_no_cause_is_of_a_miss_that_is_none() -> None:
    now = {(miss.source, miss.group) for miss in largest()}
    assert not causes().keys() - now, "remove them from causes.yaml"


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
    figures, rows = scored()
    peers = {(figure.source, figure.quantity): figure.peers for figure in with_memory_predictors(figures, rows)}
    ratio = peers["simumax-b200-v1.2", "mem_reserved_gib"][CONSTANT_RATIO]
    assert 1.0 < ratio < 2.5
    assert CLOSED_FORMULA in peers["megatron-ci-golden", "mem_alloc_gib"]
