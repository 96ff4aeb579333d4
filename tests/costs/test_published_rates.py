"""The cost models beside tables that others measured; some of the catalog's rates and curves come from them."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest
import yaml

from projector.catalog import device
from projector.config.calibration_file import read_calibration_file
from projector.costs import Network
from projector.costs.gemm import AnalyticalGemm
from projector.costs.measured import LONG_SECONDS, work_of
from projector.costs.node_links import sent_share
from projector.job import LowPrecision
from projector.operations import CollectiveKind, Gemm, GemmLayout
from projector.parallelism import Placement

MEASURED = yaml.safe_load(Path(__file__).with_name("published_rates.yaml").read_text(encoding="utf-8"))["measured"]
SITE = read_calibration_file(files("projector").joinpath("catalog/rates/b200-bf16.json").read_text()).rates
FORMATS = {"fp16": None, "bf16": None, "fp8": LowPrecision.FP8, "fp4": LowPrecision.NVFP4}
LARGE = 4096
"""Below, a library's choice of tiles and the launch decide, not the chip."""


BANDWIDTH_BOUND_BYTES = 128 * 2**20
"""Above, bandwidth decides. Below, latency does, which is higher inside training than in a loop of one collective."""


def told(table: str, errors: Sequence[float]) -> str:
    """Mean absolute error, bias and worst of a table; `pytest -s` shows them."""
    worst = max(errors, key=abs)
    figures = (
        f"MAE {100 * fmean(map(abs, errors)):.1f} %, bias {100 * fmean(errors):+.1f} %, worst {100 * worst:+.1f} %"
    )
    return f"{table}: n {len(errors)}, {figures}"


def _squares() -> list[Any]:
    return [
        pytest.param(entry["gpu"], entry["dtype"], size, tflops, id=f"{entry['gpu']}-{entry['dtype']}-{size}")
        for entry in MEASURED["gemm_square"]
        for size, tflops in entry["size"].items()
        if entry["dtype"] in FORMATS and size >= LARGE and not isinstance(tflops, str)
    ]


def _projected_tflops(gpu: str, dtype: str, size: int) -> float:
    work = Gemm(m=size, n=size, k=size, low_precision=FORMATS[dtype])
    return work.flops / AnalyticalGemm(device(gpu))(work) / 1e12


@pytest.mark.parametrize(("gpu", "dtype", "size", "tflops"), _squares())
def test_large_square_products_run_at_the_published_rate_within_two_fifths(
    gpu: str, dtype: str, size: int, tflops: float
) -> None:
    assert 0.6 < _projected_tflops(gpu, dtype, size) / tflops < 1.4


def test_over_all_large_square_products_the_rate_is_neither_high_nor_low() -> None:
    ratios = [_projected_tflops(*case.values[:3]) / case.values[3] for case in _squares()]
    assert median(ratios) == pytest.approx(1.0, abs=0.1)


B200_LONG: list[tuple[Gemm, float]] = [
    (work, seconds)
    for shape, seconds in (SITE.gemm.seconds.items() if SITE.gemm else ())
    if isinstance(work := work_of(shape), Gemm) and seconds >= LONG_SECONDS
]
"""Products of SimuMax's B200 table that ran long enough to meet the power limit, 8 batches at a time or alone."""


@pytest.mark.parametrize("layout", GemmLayout)
def test_products_of_every_layout_take_the_time_of_the_b200_table(layout: GemmLayout) -> None:
    """Beyond the traffic of results that are added to, the layout has no effect: no rate of its own is needed."""
    benchmark = AnalyticalGemm(replace(device("B200"), training_factor=1.0))
    errors = [benchmark(work) / seconds - 1 for work, seconds in B200_LONG if work.layout is layout]
    print(told(f"B200 bf16 {layout.value}, {LONG_SECONDS * 1e3:g} ms and longer", errors))
    assert len(errors) > 50
    assert abs(fmean(errors)) < 0.02
    assert fmean(map(abs, errors)) < 0.045


@pytest.mark.parametrize(
    "gpu", sorted({entry["gpu"] for entry in MEASURED["gemm_square"] if entry["dtype"] in FORMATS})
)
def test_the_error_of_each_table_of_square_products_is_told(gpu: str) -> None:
    errors = [_projected_tflops(*case.values[:3]) / case.values[3] - 1 for case in _squares() if case.values[0] == gpu]
    print(told(f"{gpu} squares of {LARGE} and more", errors))
    assert errors
    assert fmean(map(abs, errors)) < 0.35


def _collectives() -> list[Any]:
    kinds = (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER)
    return [
        pytest.param(entry["gpu"], entry["ranks"], kind, *point[:2], id=f"{entry['gpu']}-{kind}-{point[0]}")
        for entry in MEASURED["collectives_one_node"]
        for kind in kinds
        for point in entry[kind.value]
        if point[0] >= BANDWIDTH_BOUND_BYTES
    ]


@pytest.mark.parametrize(("gpu", "ranks", "kind", "size_bytes", "microseconds"), _collectives())
def test_large_collectives_inside_a_node_take_the_published_time(
    gpu: str, ranks: int, kind: CollectiveKind, size_bytes: int, microseconds: float
) -> None:
    network = Network(device(gpu), devices_per_node=ranks)
    seconds = network.seconds(kind, size_bytes, Placement(size=ranks, ranks_per_node=ranks, nodes=1))
    assert 0.7 < seconds * 1e6 / microseconds < 1.5


UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
ALL_REDUCES = [entry for entry in MEASURED["allreduce_busbw_one_node"] if "curve" in entry]
TWO_NODES = Placement(size=16, ranks_per_node=8, nodes=2)


@pytest.mark.parametrize("entry", ALL_REDUCES, ids=[entry["gpu"] for entry in ALL_REDUCES])
def test_an_all_reduce_inside_a_node_takes_the_published_time_at_every_size(entry: dict[str, Any]) -> None:
    """Of 1 KiB to 8 GiB: the mean error stays below 5 %, that of each size below a sixth."""
    ranks = entry.get("ranks", 8)
    network, group = Network(device(entry["gpu"]), ranks), Placement(size=ranks, ranks_per_node=ranks, nodes=1)
    errors = {}
    for text, gigabytes in entry["curve"].items():
        size = int(text[:-1]) * UNITS[text[-1]]
        measured = sent_share(CollectiveKind.ALL_REDUCE, ranks) * size / (gigabytes * 1e9)
        errors[text] = network.seconds(CollectiveKind.ALL_REDUCE, size, group) / measured - 1
    mean = sum(map(abs, errors.values())) / len(errors)
    print(f"{entry['gpu']} ({entry['lib']}): mean error {mean:.1%};", _shown(errors))
    assert mean < 0.05
    assert max(map(abs, errors.values())) < 1 / 6


def test_collectives_over_two_nodes_reach_what_acceptance_tests_expect() -> None:
    """Bus bandwidth of 8 and 16 GiB over 16 MI3xx (ROCm/cvs), of which each states a least value."""
    network, floors = Network(device("MI300X"), 8), MEASURED["collectives_two_nodes_floor"]
    errors = {}
    for name, kind in (
        *((each.value, each) for each in list(CollectiveKind)[:3]),
        ("alltoall", CollectiveKind.ALL_TO_ALL),
    ):
        for size, gigabytes in zip((2**33, 2**34), floors[name], strict=True):
            found = sent_share(kind, 16) * size / network.seconds(kind, size, TWO_NODES) / 1e9
            errors[f"{name} {size // 2**30} GiB"] = found / gigabytes - 1
    pair = 2**33 / network.pair_seconds(2**33, crosses_nodes=True) / 1e9
    errors["sendrecv 8 GiB"] = pair / floors["sendrecv"][0] - 1
    print("MI300X, two nodes:", _shown(errors))
    assert max(map(abs, errors.values())) < 0.125


def _shown(errors: dict[str, float]) -> str:
    return ", ".join(f"{name} {error:+.1%}" for name, error in errors.items())
