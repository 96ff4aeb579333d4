"""The host's time to start work is the sum of what it does for it."""

import pytest

from projector.catalog import device, host_costs
from projector.costs.host import host_seconds
from projector.operations import ElementWise, GroupedGemm

MI300X, H100 = device("MI300X"), device("H100-SXM-80GB")
X86 = host_costs("x86")


def test_kernels_are_started_one_by_one() -> None:
    one, many = (ElementWise(name="norm", bytes_read=1, bytes_written=1, kernels=kernels) for kernels in (1, 25))
    times = [host_seconds(work, X86, MI300X, backward=False) for work in (one, many)]
    assert times[1] == pytest.approx(25 * times[0])


def test_a_loop_over_experts_asks_hipblaslt_each_time_and_one_kernel_does_not() -> None:
    """ROCm/hipBLASLt pull request 1754: 115 us of heuristic query a call."""
    loop, fused = (GroupedGemm(groups=8, m=1, n=1, k=1, fused=each) for each in (False, True))
    amd, nvidia, one = (
        host_seconds(work, X86, part, backward=False) for work, part in ((loop, MI300X), (loop, H100), (fused, MI300X))
    )
    assert amd - one > 8 * 115e-6
    assert one < nvidia < amd
