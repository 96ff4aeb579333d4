"""What the host spends on starting a piece of work.

Small micro batches are bound by this and not by the device: a Megatron layer in eager mode starts tens of kernels from
Python. Costs are those of single calls, so the sum is a lower bound: loops of real frameworks were seen at one to
several times of it. Work in a CUDA graph costs a launch of the graph, whatever it holds.
"""

from projector.catalog import Device, HostCosts, host_software
from projector.job import Dialect, ExpertBackend, Software
from projector.operations import (
    AttentionKernel,
    Collective,
    ElementWise,
    Gemm,
    GroupedGemm,
    Operation,
    Work,
)

_ROUTER = "router"
"""Component whose matrix product is torch's own."""
_ATTENTION_KERNELS_BACKWARD = 3
"""Launches of attention's backward pass: preparation, the kernel itself, conversion of the queries' gradient."""
_RESIDUAL, _RESIDUAL_KERNELS_BACKWARD = ".residual", 2
"""End of the name of an addition to the residual stream, and launches of its backward pass: the sum of the gradients of
both branches, whose traffic the norm's backward pass counts."""
_FUSED_GROUP_KERNELS = {False: 4, True: 3}
"""Launches of one kernel for all experts, forward and backward, with offsets and arguments beside it: 8 and 12 a layer
are read in AMD-AGI/Primus-Turbo grouped_gemm."""


class HostWork:
    """Host seconds of work under the software of a job."""

    def __init__(self, host: HostCosts, device: Device, software: Software) -> None:
        """Keep what decides how long the host takes."""
        self._software = software
        self._host = host
        self._bound = host_software().processes_bound if software.processes_bound else 1.0
        self._python = host_software().python(software.transformer_engine)
        # Transformer Engine's lists of experts run cuBLAS; a framework's own loop asks hipBLASLt each time.
        self._queries = device.vendor == "AMD"

    @property
    def graph_seconds(self) -> float:
        """Launch of one CUDA graph."""
        return self._software.host_factor * self._host.graph_launch_seconds

    @property
    def readback_seconds(self) -> float:
        """One readback, beyond the wait for the device."""
        return self._software.host_factor * self._host.synchronisation_seconds

    def seconds(self, work: Work, *, backward: bool) -> float:
        """Start of one piece of work; the Python around it is `operation_seconds`."""
        python, calls = self._work(work, backward=backward), self._calls(work)
        return self._software.host_factor * (self._bound * python + calls)

    def operation_seconds(self, operation: Operation, *, backward: bool) -> float:
        """Python of an operation in one direction, beyond that of its pieces of work.

        A linear layer is an autograd function; each trained parameter has a hook that counts its gradient (Megatron-LM
        distributed_data_parallel.py).
        """
        if self._software.dialect is Dialect.TORCHTITAN:
            return 0.0
        is_linear = operation.component != _ROUTER and any(isinstance(work, Gemm) for work in operation.forward)
        seconds = self._linear(backward=backward) if is_linear else 0.0
        if backward:
            seconds += self._hooks(operation) * self._host.hook_seconds
            if operation.name.endswith(_RESIDUAL) and not operation.backward_input:
                seconds += _RESIDUAL_KERNELS_BACKWARD * self._host.kernel_backward_seconds
        return self._software.host_factor * self._bound * seconds

    def _linear(self, *, backward: bool) -> float:
        host = self._host
        own = host.te_linear_backward_seconds if backward else host.te_linear_forward_seconds
        return host.autograd_function_seconds + self._python * own

    def _hooks(self, operation: Operation) -> int:
        trained = [weight for weight in operation.weights if weight.trainable and not weight.frozen]
        return sum(1 if weight.expert and self._stacked else weight.copies for weight in trained)

    @property
    def _stacked(self) -> bool:
        return self._software.stacked_experts or self._queries

    def _work(self, work: Work, *, backward: bool) -> float:
        host = self._host
        kernel = host.kernel_backward_seconds if backward else host.kernel_forward_seconds
        match work:
            case ElementWise():
                return work.kernels * kernel + work.functions * host.autograd_function_seconds
            case Collective():
                return host.collective_seconds
            case AttentionKernel():
                own = host.attention_backward_seconds if backward else host.attention_forward_seconds
                launches = _ATTENTION_KERNELS_BACKWARD if backward else 1
                return launches * kernel + host.autograd_function_seconds + own
            case GroupedGemm():
                return self._grouped(work, kernel, backward=backward)
            case Gemm():
                return kernel

    def _grouped(self, work: GroupedGemm, kernel: float, *, backward: bool) -> float:
        """A product of each expert: the calls of a loop, and the Python of the layer, once for either pass."""
        host = self._host
        once = 0.0 if work.weight_gradient else 1.0
        if work.fused:
            return _FUSED_GROUP_KERNELS[backward] * kernel + once * host.autograd_function_seconds
        if self._software.expert_backend is ExpertBackend.SEQUENTIAL:
            return work.groups * (kernel + once * self._linear(backward=backward))
        if self._queries:
            return once * host.autograd_function_seconds
        listed = host.expert_list_backward_seconds if backward else host.expert_list_forward_seconds
        return once * (self._linear(backward=backward) + work.groups * self._python * listed)

    def _calls(self, work: Work) -> float:
        """Calls of a loop over experts, into libraries whose time no binding shortens."""
        if not isinstance(work, GroupedGemm) or work.fused:
            return 0.0
        if self._software.expert_backend is ExpertBackend.SEQUENTIAL:
            return 0.0
        each = self._host.hipblaslt_call_seconds if self._queries else self._host.gemm_call_seconds
        return work.groups * each


def readbacks(work: Work) -> int:
    """Times that the host waits for the device behind a piece of work."""
    return work.readbacks if isinstance(work, ElementWise) else 0
