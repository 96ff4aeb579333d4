"""The cost models beside tables that others measured; the network model has read some of them, the GEMM model none."""

from pathlib import Path
from statistics import median
from typing import Any

import pytest
import yaml

from projector.catalog import device
from projector.costs import Network
from projector.costs.gemm import AnalyticalGemm
from projector.job import LowPrecision
from projector.operations import CollectiveKind, Gemm
from projector.parallelism import Placement

MEASURED = yaml.safe_load(Path(__file__).with_name("published_rates.yaml").read_text(encoding="utf-8"))["measured"]
FORMATS = {"fp16": None, "bf16": None, "fp8": LowPrecision.FP8}
LARGE = 4096
"""Below, a library's choice of tiles and the launch decide, not the chip."""


BANDWIDTH_BOUND_BYTES = 128 * 2**20
"""Above, bandwidth decides. Below, latency does, which is higher inside training than in a loop of one collective."""


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
