"""Measured shapes win over the model, their kind corrects it, and bursts are no faster than the chip sustains."""

import json
from importlib.resources import files
from typing import Any

import pytest

from projector import catalog
from projector.catalog import AttentionShape, GemmShape, MeasuredCollective, MeasuredRates, Rates, Regime
from projector.config.calibration_file import read_calibration_file
from projector.costs import Network
from projector.costs.gemm import AnalyticalGemm
from projector.costs.measured import LONG_SECONDS, Measurable, MeasuredCosts, Use, shape_of, work_of
from projector.errors import ConfigurationError
from projector.operations import AttentionKernel, CollectiveKind, Gemm, GemmLayout
from projector.parallelism import Placement

B200 = catalog.device("B200")
TRAINING = B200.training_factor or 1.0


def model(work: Measurable) -> float:
    return AnalyticalGemm(B200)(work) if isinstance(work, Gemm) else work.flops / 1e15


def site() -> MeasuredRates:
    return read_calibration_file(files("projector").joinpath("catalog/rates/b200-bf16.json").read_text()).rates


def timed(rates: MeasuredRates, work: Measurable) -> tuple[float, Use]:
    costs = MeasuredCosts(rates, B200, model)
    seconds = costs.seconds(work, model(work), B200)
    return seconds, next(iter(next(iter(costs.uses().values()))))


def one(shape: GemmShape, seconds: float, regime: Regime) -> MeasuredRates:
    return MeasuredRates(gemm=Rates({shape: seconds}, regime))


SHAPE = GemmShape(1, 4096, 8192, 1024, accumulates=False, output_bytes=2)


def test_a_sustained_shape_takes_its_time_at_the_training_clock() -> None:
    seconds, use = timed(one(SHAPE, 0.5e-3, Regime.SUSTAINED), work_of(SHAPE))
    assert use is Use.MEASURED
    assert seconds == pytest.approx(0.5e-3 / TRAINING)


def test_a_long_product_of_a_burst_is_sustained_already() -> None:
    work = Gemm(m=4096, k=8192, n=57344)
    seconds, use = timed(site(), work)
    assert use is Use.MEASURED
    assert seconds == pytest.approx(work.flops / 1095.0e12 / TRAINING)


def test_a_short_burst_is_no_faster_than_the_long_products_of_its_table_sustain() -> None:
    work = Gemm(m=4096, k=8192, n=10240)
    burst = work.flops / 1451.6e12
    assert burst < LONG_SECONDS
    sustained = (work.flops / 1131e12 + 2 * (4096 * 8192 + 8192 * 10240 + 4096 * 10240) / 12.1e12) / TRAINING
    assert timed(site(), work)[0] == pytest.approx(sustained, rel=0.01)


def test_a_short_kernel_that_power_does_not_limit_keeps_its_time() -> None:
    work = AttentionKernel(
        batch=1, heads=8, key_value_heads=1, query_length=4096, key_length=4096, query_key_dim=128, value_dim=128
    )
    seconds, use = timed(site(), work)
    assert use is Use.MEASURED
    # The table has it with and without contiguous heads, over all scores although half of them are computed.
    assert seconds == pytest.approx(2 * work.flops / 697.2e12, rel=1e-3)


def test_a_shape_that_is_missing_takes_the_model_corrected_by_its_neighbours() -> None:
    near = {GemmShape(1, 4096, 8192, 1024 + 64 * i, accumulates=False, output_bytes=2): 0.0 for i in range(5)}
    slow = {shape: 3 * model(work_of(shape)) for shape in near}
    slow[next(iter(slow))] *= 100
    rates = MeasuredRates(gemm=Rates(slow, Regime.SUSTAINED))
    work = Gemm(m=4096, k=8192, n=1100)
    seconds, use = timed(rates, work)
    assert use is Use.CORRECTED
    assert seconds == pytest.approx(3 / TRAINING * model(work))


@pytest.mark.parametrize(
    "work",
    [
        Gemm(m=4096, k=8192, n=1024, accumulates=True, output_bytes=4),
        AttentionKernel(
            batch=1, heads=8, key_value_heads=1, query_length=64, key_length=64, query_key_dim=64, value_dim=64
        ),
    ],
    ids=["another product", "attention"],
)
def test_a_kind_that_was_not_measured_is_modelled(work: Measurable) -> None:
    assert timed(one(SHAPE, 1.0, Regime.SUSTAINED), work) == (model(work), Use.ANALYTICAL)


def test_each_layout_of_a_shape_takes_its_own_time_and_a_table_without_layouts_serves_all() -> None:
    tn, nn, other = (Gemm(m=4096, k=8192, n=1024, layout=layout) for layout in GemmLayout)
    table = {SHAPE._replace(layout="TN"): 0.5e-3, SHAPE._replace(layout="NN"): 0.7e-3}
    rates = MeasuredRates(gemm=Rates(table, Regime.SUSTAINED))
    assert [timed(rates, work)[0] for work in (tn, nn)] == [pytest.approx(each / TRAINING) for each in table.values()]
    assert timed(rates, other)[1] is Use.CORRECTED
    plain = one(SHAPE, 0.5e-3, Regime.SUSTAINED)
    assert {timed(plain, work) for work in (tn, nn, other)} == {(0.5e-3 / TRAINING, Use.MEASURED)}


def test_every_measured_shape_is_found_again() -> None:
    rates = site()
    for table in (rates.gemm, rates.grouped, rates.attention):
        assert table is not None
        assert all(shape_of(work_of(shape)) == shape for shape in table.seconds)


def test_causal_flops_of_attention_are_half_of_the_scores() -> None:
    text = """{device: B200, attention_forward: {attention_flops: %s, columns:
      [batch, seq_len, head_num, kv_head_num, qk_head_dim, v_head_dim, tflops],
      rows: [[1, 4096, 8, 1, 128, 128, 500]]}}"""
    shape = AttentionShape(1, 4096, 8, 1, 128, 128, backward=False)
    seconds = []
    for counted in ("causal", "full"):
        table = read_calibration_file(text % counted).rates.attention
        assert table is not None
        seconds.append(table.seconds[shape])
    assert seconds[1] == 2 * seconds[0]


def test_a_measured_collective_has_its_latency_by_ranks_and_the_form_of_the_curve() -> None:
    own = MeasuredCollective(600e9, 20e-6, {2: 50e-6}, 5e-6)
    network = Network(B200, 8, None, {"all_gather": own})
    largest = 536_870_912
    for ranks, latency in ((2, 55e-6), (8, 55e-6)):
        placement = Placement(size=ranks, ranks_per_node=ranks, nodes=1)
        found = network.seconds(CollectiveKind.ALL_GATHER, largest, placement)
        assert found == pytest.approx(latency + largest * (ranks - 1) / ranks / 600e9)


@pytest.mark.parametrize(
    ("section", "place"),
    [
        ({"gemm": {"columns": ["m", "k", "n", "tflops"], "rows": [[8192, 4096, 6144, 100_000]]}}, "gemm"),
        ({"gemm": {"columns": ["m", "k", "n", "tflops", "m"], "rows": [[1, 1, 1, 1, 1]]}}, "gemm.columns.m"),
        ({"memory_bandwidth_gb_per_s": {"elementwise": {"achieved": 999_999}}}, "memory_bandwidth_gb_per_s"),
    ],
    ids=["a product above the peak", "a column twice", "a bandwidth above the memory's"],
)
def test_what_no_chip_measures_is_refused_by_name(section: dict[str, Any], place: str) -> None:
    text = json.dumps({"device": "B200", **section})
    with pytest.raises(ConfigurationError) as refused:
        MeasuredCosts(read_calibration_file(text).rates, B200, model)
    assert refused.value.place.endswith(place)
