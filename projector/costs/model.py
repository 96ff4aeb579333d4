"""The cost model: a piece of work in, seconds out."""

from collections.abc import Mapping

from projector.catalog import Device, HardwareOverrides, MeasuredCollective
from projector.costs.backends import gemm_backend
from projector.costs.gemm import grouped_gemm_seconds
from projector.costs.kernels import attention_seconds, elementwise_seconds
from projector.costs.measured import Measurable, MeasuredCosts
from projector.costs.network import Network
from projector.job import Software
from projector.operations import (
    AttentionKernel,
    Collective,
    CollectiveKind,
    ElementWise,
    Gemm,
    Group,
    GroupedGemm,
    Work,
)
from projector.parallelism import Layout


class CostModel:
    """Seconds of any work on one device of a laid-out job. Equal work is costed once."""

    def __init__(  # noqa: PLR0913 - what a site states beside the device
        self,
        device: Device,
        layout: Layout,
        *,
        software: Software | None = None,
        backend: str = "analytical",
        overrides: HardwareOverrides | None = None,
        measured: MeasuredCosts | None = None,
        collectives: Mapping[str, MeasuredCollective] | None = None,
    ) -> None:
        """Take the device's figures, the placement of groups and the framework's choices.

        `measured` times of shapes and `collectives` inside one node win over the model.

        Raises `NotAvailable` for a GEMM backend that is not installed or does not know the device.
        """
        self.device = device
        self.layout = layout
        self.network = Network(device, layout.devices_per_node, overrides, collectives)
        self._software = software or Software()
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
                return elementwise_seconds(work, self.device)
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
        placement = self.layout.placement(work.group)
        if (
            work.group is Group.EXPERT
            and work.kind is CollectiveKind.ALL_TO_ALL
            and self._software.expert_dispatch.sends_once
        ):
            seconds = self.network.dispatch_seconds(work.message_bytes, placement)
            if seconds is not None:
                return seconds
        return self.network.seconds(work.kind, work.message_bytes, placement)
