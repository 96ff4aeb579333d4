"""A stated clock scales arithmetic against the sustained clock, and nothing else."""

from dataclasses import replace

import pytest

from projector.api import Question, project
from projector.catalog import device
from projector.errors import ConfigurationError
from projector.performance import at_clock

MI300X = device("MI300X")


def test_at_the_sustained_clock_sustained_rates_are_the_catalogs_and_a_burst_has_no_higher_clock() -> None:
    assert MI300X.sustained_clock_hz is not None
    held = at_clock(MI300X, MI300X.sustained_clock_hz)
    assert held.gemm_tflops == pytest.approx(MI300X.gemm_tflops)
    assert held.attention_forward_tflops == MI300X.attention_forward_tflops
    assert held.gemm_burst_tflops["bf16"] == pytest.approx(1307.4 * 1207 / 2100)


def test_arithmetic_follows_the_clock_and_memory_and_links_do_not() -> None:
    held = at_clock(MI300X, 2 * 603.5e6)
    half = at_clock(MI300X, 603.5e6)
    assert half.gemm_tflops["bf16"] == pytest.approx(held.gemm_tflops["bf16"] / 2)
    assert half.attention_backward_tflops == pytest.approx(220)
    assert half.memory_bandwidth_bytes_per_second == MI300X.memory_bandwidth_bytes_per_second
    assert half.collectives == MI300X.collectives


def test_no_rate_exceeds_the_peak_at_the_clock() -> None:
    fast = at_clock(replace(MI300X, gemm_burst_tflops={"bf16": 1200.0}), 2000e6)
    assert fast.gemm_burst_tflops["bf16"] == pytest.approx(MI300X.peak_tflops["bf16"] * 2000 / 2100)


@pytest.mark.parametrize(
    ("name", "mhz", "complaint"),
    [
        ("MI355X", 2000, "nobody published the clock.*MI355X.*sustained_clock_mhz"),
        ("MI300X", 2101, "at most the 2100 MHz"),
    ],
)
def test_a_clock_that_cannot_be_used_is_refused(name: str, mhz: float, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        at_clock(device(name), mhz * 1e6)


def test_a_lower_clock_lengthens_the_iteration_and_the_answer_says_which_rates_hold() -> None:
    def asked(mhz: float | None) -> Question:
        sizes = {"seq_length": "4096", "micro_batch_size": "1"}
        text = '{"model": "llama3.1-8b"}'
        return Question(text=text, overrides=sizes, memory=False, device="MI300X", clock_mhz=mhz)

    usual, slow = project(asked(None)), project(asked(900))
    assert usual.performance is not None
    assert slow.performance is not None
    assert slow.performance.iteration_seconds > usual.performance.iteration_seconds
    said = {each.what: each.why for each in slow.assumed}["a clock of 900 MHz"]
    assert "bf16 386" in said
    assert "1207 MHz" in said
