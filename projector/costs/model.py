"""The cost model: a piece of work in, seconds out."""

from dataclasses import replace

from projector.catalog import Device, HardwareOverrides, HostCosts, MeasuredRates, host_costs
from projector.costs.backends import gemm_backend
from projector.costs.curves import MeasuredCollectives
from projector.costs.gemm import grouped_gemm_seconds
from projector.costs.kernels import attention_seconds, elementwise_seconds
from projector.costs.measured import Measurable, MeasuredCosts
from projector.costs.network import Network
from projector.operations import (
    AttentionKernel,
    Collective,
    ElementWise,
    Gemm,
    GroupedGemm,
    Work,
)
from projector.parallelism import LayerGroups

_BANDWIDTH_OF = {
    "permute": "permutation",
    "cross_entropy": "cross_entropy",
    "cross_entropy_backward": "cross_entropy",
}
"""Name of the measured bandwidth of element-wise work that has one of its own."""


class CostModel:
    """Seconds of any work of layers on one device. Equal work is costed once."""

    def __init__(  # noqa: PLR0913 - what a site states beside the device
        self,
        device: Device,
        groups: LayerGroups,
        *,
        backend: str = "analytical",
        overrides: HardwareOverrides | None = None,
        measured: MeasuredCosts | None = None,
        rates: MeasuredRates | None = None,
        curves: MeasuredCollectives | None = None,
    ) -> None:
        """Take the device's figures and the placement of groups.

        `measured` times of shapes, `curves` of collectives and the other `rates` of a site win over the model.

        Raises `NotAvailable` for a GEMM backend that is not installed or does not know the device.
        """
        self.device = device
        self.groups = groups
        self._rates = rates or MeasuredRates()
        self.network = Network(device, groups.devices_per_node, overrides, self._rates.collectives, curves)
        self.host: HostCosts = replace(host_costs(device.host_platform), **self._rates.host)  # type: ignore[arg-type]
        """What work costs the host."""
        self._measured = measured
        self._gemm = gemm_backend(backend, device)
        self._known: dict[Work, float] = {}

    def seconds(self, work: Work) -> float:
        """Seconds of one piece of work, as if nothing else ran.

        Raises `NotAvailable` when the device lacks a figure that is needed.
        """
        found = self._known.get(work)
        if found is None:
            found = self._known[work] = self._compute(work)
        return found

    def _compute(self, work: Work) -> float:
        match work:
            case ElementWise():
                own = self._rates.bandwidths.get(_BANDWIDTH_OF.get(work.name, ""))
                return elementwise_seconds(work, self.device, own)
            case Collective():
                return self._collective(work)
            case _:
                modelled = self._arithmetic(work)
                return modelled if self._measured is None else self._measured.seconds(work, modelled, self.device)

    def _arithmetic(self, work: Measurable) -> float:
        match work:
            case Gemm():
                return self._gemm(work)
            case GroupedGemm():
                return grouped_gemm_seconds(work, self.device, self._gemm)
            case AttentionKernel():
                return attention_seconds(work, self.device, self._gemm)

    def _collective(self, work: Collective) -> float:
        placement = self.groups.placement(work.group)
        if work.visits is not None:
            seconds = self.network.dispatch_seconds(work.visits, placement)
            if seconds is not None:
                return seconds
        return self.network.seconds(work.kind, work.message_bytes, placement)
