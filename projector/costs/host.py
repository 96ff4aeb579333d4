"""What the host spends on starting a piece of work.

Small micro batches are bound by this and not by the device: a Megatron layer in eager mode starts tens of kernels from
Python. Costs are those of single calls, so the sum is a lower bound: loops of real frameworks were seen at one to
several times of it. Graph capture removes most of it and is not modelled here.
"""

from projector.catalog.device import Device
from projector.catalog.host import HostCosts
from projector.operations import (
    AttentionKernel,
    Collective,
    ElementWise,
    Gemm,
    GroupedGemm,
    Work,
)


def host_seconds(work: Work, host: HostCosts, device: Device, *, backward: bool) -> float:
    """Host time to start one piece of work; the Python of the linear layer around a GEMM is not included."""
    kernel = host.kernel_backward_seconds if backward else host.kernel_forward_seconds
    match work:
        case ElementWise():
            seconds = work.kernels * kernel
        case Collective():
            seconds = host.collective_seconds
        case AttentionKernel():
            seconds = kernel + (host.attention_backward_seconds if backward else host.attention_forward_seconds)
        case GroupedGemm():
            seconds = kernel + _grouped(work, host, device)
        case Gemm():
            seconds = kernel
    return seconds


def readbacks(work: Work) -> int:
    """Times that the host waits for the device behind a piece of work."""
    return work.readbacks if isinstance(work, ElementWise) else 0


def linear_seconds(host: HostCosts, *, backward: bool) -> float:
    """Python of one linear layer, beyond its kernels."""
    return host.te_linear_backward_seconds if backward else host.te_linear_forward_seconds


def _grouped(work: GroupedGemm, host: HostCosts, device: Device) -> float:
    """Calls of a loop over experts, and the gradient hooks of their weights."""
    hooks = work.groups * host.hook_seconds if work.weight_gradient else 0.0
    if work.fused:
        return hooks
    call = host.hipblaslt_call_seconds if device.vendor == "AMD" else host.gemm_call_seconds
    return hooks + work.groups * call
