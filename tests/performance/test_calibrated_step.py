"""What a calibration states beside tables of shapes reaches the step, each figure its own part."""

import pytest

from projector.catalog import CollectiveTimes, DispatchRates, MeasuredRates
from projector.job import ExpertDispatch, Software
from projector.performance.passes import HOST
from projector.projection import PerformanceProjection
from tests.performance.jobs import LLAMA_8B, MIXTRAL, a_job, part, project

MIXTURE = a_job(
    MIXTRAL,
    sequence=4096,
    batch=64,
    expert=8,
    expert_tensor=1,
    software=Software(expert_dispatch=ExpertDispatch.DEEPEP),
)
DENSE = a_job(LLAMA_8B, sequence=4096, batch=64, tensor=8, sequence_parallel=True)
ELEMENTWISE = "element-wise work"
TENSOR = "exposed tensor-parallel communication"
EXPERT = "exposed expert-parallel communication"


def told(projection: PerformanceProjection) -> str:
    return "; ".join(f"{each.what} ({each.why})" for each in projection.measured)


@pytest.mark.parametrize(
    ("rates", "name", "told_of"),
    [
        (MeasuredRates(bandwidths={"permutation": 1e11}), ELEMENTWISE, "measured bandwidth of permutation"),
        (MeasuredRates(bandwidths={"cross_entropy": 1e10}), ELEMENTWISE, "measured bandwidth of cross entropy"),
        (MeasuredRates(kernel_gap_seconds=50e-6), ELEMENTWISE, "measured launch cost kernel gap"),
        (MeasuredRates(host={"kernel_forward_seconds": 1e-3}), HOST, "measured launch cost kernel forward seconds"),
        (MeasuredRates(dispatch=DispatchRates(10e9)), EXPERT, "a dispatcher of 10 GB/s"),
    ],
    ids=["permutation", "cross entropy", "kernel gap", "host", "dispatch"],
)
def test_a_slow_figure_lengthens_its_part_and_is_told(rates: MeasuredRates, name: str, told_of: str) -> None:
    usual, slow = project(MIXTURE, "MI355X"), project(MIXTURE, "MI355X", rates=rates)
    assert part(slow, name) > 1.1 * part(usual, name)
    assert told_of in told(slow)


def test_a_curve_of_collectives_decides_its_part_and_calls_are_counted() -> None:
    slow = CollectiveTimes("reduce_scatter", 8, 1, ((2**20, 1e-2), (2**30, 1.0)))
    usual, found = project(DENSE), project(DENSE, rates=MeasuredRates(curves=(slow,)))
    assert part(found, TENSOR) > 5 * part(usual, TENSOR)
    assert "all-gather: 0 measured, 0 corrected" in told(found)
    assert "reduce-scatter: " in told(found)


def test_a_device_without_a_figure_of_dispatch_says_what_stands_in() -> None:
    assert "a dispatcher of 324 GB/s on MI355X (DeepEP in one node)" in told(project(MIXTURE, "MI355X"))
    assert "the dispatcher as an all-to-all" in told(project(MIXTURE, "A100-SXM-80GB"))
    assert "dispatcher" not in told(project(DENSE, "A100-SXM-80GB"))
