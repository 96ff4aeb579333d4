"""Matrix products: never faster than the chip, never cheaper when they grow, and close to what others measured."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projector.catalog import device, peak_format
from projector.costs import gemm_backend
from projector.costs.figures import KERNEL_GAP_SECONDS
from projector.costs.gemm import AnalyticalGemm, grouped_gemm_seconds
from projector.errors import ConfigurationError, NotAvailable
from projector.job import LowPrecision
from projector.operations import Gemm, GroupedGemm

DEVICES = ["MI300X", "MI325X", "MI355X", "A100-SXM-80GB", "H100-SXM-80GB", "B200"]
SIZES = st.integers(16, 20_000)


@pytest.mark.parametrize("name", DEVICES)
@given(m=SIZES, n=SIZES, k=SIZES, low=st.sampled_from([None, LowPrecision.FP8]))
def test_no_product_beats_the_peak_of_the_device(name: str, m: int, n: int, k: int, low: LowPrecision | None) -> None:
    part = device(name)
    if peak_format(low) not in part.peak_tflops:
        return
    work = Gemm(m=m, n=n, k=k, low_precision=low)
    assert work.flops / AnalyticalGemm(part)(work) < part.peak_tflops[peak_format(low)] * 1e12


@pytest.mark.parametrize("name", DEVICES)
@given(m=SIZES, n=SIZES, k=SIZES, more=st.integers(1, 500))
def test_a_product_with_more_rows_is_never_cheaper(name: str, m: int, n: int, k: int, more: int) -> None:
    cost = AnalyticalGemm(device(name))
    assert cost(Gemm(m=m + more, n=n, k=k)) >= cost(Gemm(m=m, n=n, k=k)) * (1 - 1e-12)


A100_CUBLAS_FP16 = {2048: 221.8, 4096: 228.0, 8192: 253.7, 16384: 256.5}
"""TFLOP/s of square products on A100-SXM-80GB, Azure/AI-benchmarking-guide."""
GB200_CUBLAS_FP8 = {4096: 2834.6, 8192: 2876.6, 16384: 2906.9}
"""The same guide, GB200."""


@pytest.mark.parametrize(
    ("name", "low", "measured"),
    [("A100-SXM-80GB", None, A100_CUBLAS_FP16), ("GB200", LowPrecision.FP8, GB200_CUBLAS_FP8)],
)
def test_square_products_agree_with_a_public_benchmark(
    name: str, low: LowPrecision | None, measured: dict[int, float]
) -> None:
    cost = AnalyticalGemm(device(name))
    for size, tflops in measured.items():
        work = Gemm(m=size, n=size, k=size, low_precision=low)
        assert work.flops / cost(work) / 1e12 == pytest.approx(tflops, rel=0.15), size


@pytest.mark.parametrize("name", ["MI300X", "MI325X", "MI355X", "H100-SXM-80GB", "B200"])
def test_fp8_products_are_faster_than_bf16_ones(name: str) -> None:
    cost = AnalyticalGemm(device(name))
    wide, narrow = Gemm(m=8192, n=14336, k=4096), Gemm(m=8192, n=14336, k=4096, low_precision=LowPrecision.FP8)
    assert 1.5 < cost(wide) / cost(narrow) < 2.2


def test_adding_into_a_main_gradient_costs_its_traffic() -> None:
    cost = AnalyticalGemm(device("B200"))
    plain = Gemm(m=8192, n=8192, k=4096)
    assert cost(Gemm(m=8192, n=8192, k=4096, output_bytes=4, accumulates=True)) > cost(plain)


def test_a_loop_over_experts_leaves_units_idle_that_one_kernel_for_all_fills() -> None:
    part = device("MI300X")
    dense = AnalyticalGemm(part)
    looped = GroupedGemm(groups=32, m=1024, n=2048, k=2048)
    fused = GroupedGemm(groups=32, m=1024, n=2048, k=2048, fused=True)
    assert grouped_gemm_seconds(looped, part, dense) == pytest.approx(32 * dense(Gemm(m=32, n=2048, k=2048)))
    assert grouped_gemm_seconds(fused, part, dense) < grouped_gemm_seconds(looped, part, dense) / 4


@given(groups=st.integers(1, 64), rows=st.integers(64, 4096), weight_gradient=st.booleans())
def test_experts_are_never_cheaper_than_one_dense_product_of_their_rows(
    groups: int, rows: int, *, weight_gradient: bool
) -> None:
    part = device("H100-SXM-80GB")
    dense = AnalyticalGemm(part)
    work = GroupedGemm(groups=groups, m=groups * rows, n=1024, k=2048, weight_gradient=weight_gradient)
    assert grouped_gemm_seconds(work, part, dense) >= work.flops / (part.peak_tflops["bf16"] * 1e12)


def test_an_unknown_backend_names_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="analytical, origami"):
        gemm_backend("magic", device("MI300X"))


def test_a_format_without_a_rate_is_refused_with_the_known_ones() -> None:
    bare = replace(device("GB200"), gemm_tflops={"bf16": 1478.0})
    with pytest.raises(NotAvailable, match=r"no rate of nvfp4 GEMMs is known on GB200; known are bf16"):
        AnalyticalGemm(bare)(Gemm(m=1, n=1, k=1, low_precision=LowPrecision.NVFP4))


LOW = LowPrecision
OFFERED: dict[str, set[LowPrecision]] = {
    "MI250X": set(),
    "A100-80GB": set(),
    "MI300A": {LOW.FP8, LOW.FP8_BLOCK},
    "MI300X": {LOW.FP8, LOW.FP8_BLOCK},
    "MI325X": {LOW.FP8, LOW.FP8_BLOCK},
    "H100": {LOW.FP8, LOW.FP8_BLOCK},
    "H200": {LOW.FP8, LOW.FP8_BLOCK},
    "MI350X": set(LOW) - {LOW.NVFP4},
    "MI355X": set(LOW) - {LOW.NVFP4},
    "B200": set(LOW),
    "GB200": set(LOW),
    "B300": set(LOW),
    "GB300": set(LOW),
}
"""Formats of the matrix units: AMD CDNA 2 to 4 and NVIDIA Ampere to Blackwell architecture papers."""


@pytest.mark.parametrize("low", LowPrecision)
@pytest.mark.parametrize("name", OFFERED)
def test_a_format_is_costed_where_the_gpu_has_it_and_refused_elsewhere(name: str, low: LowPrecision) -> None:
    part = device(name)
    wide = Gemm(m=8192, n=28672, k=8192)
    if low in OFFERED[name]:
        seconds = AnalyticalGemm(part)(replace(wide, low_precision=low))
        assert wide.flops / (part.peak_tflops[peak_format(low)] * 1e12) < seconds < AnalyticalGemm(part)(wide)
        return
    with pytest.raises(NotAvailable, match=f"{part.name} has no matrix units for {low.value}; .*bf16"):
        AnalyticalGemm(part)(replace(wide, low_precision=low))


@pytest.mark.parametrize("name", sorted(OFFERED))
def test_every_gpu_of_a_datacenter_answers_in_16_bits(name: str) -> None:
    part = device(name)
    work = Gemm(m=8192, n=8192, k=8192)
    assert 0.3 < work.flops / AnalyticalGemm(part)(work) / (part.peak_tflops["bf16"] * 1e12) < 0.9


def test_few_tiles_leave_compute_units_idle() -> None:
    """64 tiles of 128 x 128 on 304 compute units: sixteen such products at once take far less than sixteen times."""
    cost = AnalyticalGemm(device("MI300X"))
    alone, together = (cost(Gemm(m=256, n=4096, k=1024, batch=count)) - KERNEL_GAP_SECONDS for count in (1, 16))
    assert together < 0.8 * 16 * alone


def test_a_fused_kernel_for_experts_gains_from_fp8_as_dense_products_do() -> None:
    part = device("MI355X")
    dense = AnalyticalGemm(part)
    bf16 = GroupedGemm(groups=8, m=65536, n=8192, k=8192, fused=True)
    times = [grouped_gemm_seconds(work, part, dense) for work in (bf16, replace(bf16, low_precision=LowPrecision.FP8))]
    assert times[1] / times[0] == pytest.approx(part.gemm_tflops["bf16"] / part.gemm_tflops["fp8"], rel=0.05)
