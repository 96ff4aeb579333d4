"""A site's measured rates in a projection, and what the answer says of them."""

from collections import Counter
from dataclasses import replace

from projector.catalog import Device, HardwareOverrides, MeasuredRates
from projector.costs import CostModel
from projector.costs.measured import MeasuredCosts, Use
from projector.job import TrainingJob
from projector.parallelism import Layout
from projector.provenance import Assumption

_WHY = "`--calibration`; a shape it lacks takes the model's time x the median ratio of measured shapes of its size"


class Measurements:
    """Cost models of a job with measured rates, or without any."""

    def __init__(
        self, rates: MeasuredRates | None, job: TrainingJob, layout: Layout, device: Device, *, backend: str
    ) -> None:
        """Take what was measured; without rates every cost is the catalog's."""
        self._rates = rates or MeasuredRates()
        self._job, self._layout, self._backend = job, layout, backend
        self.device = self._measured_device(device)
        """The device with the bandwidth that was measured."""
        nominal = CostModel(self.device, layout, software=job.software, backend=backend)
        self._shapes = None if rates is None else MeasuredCosts(rates, self.device, nominal.seconds)

    def _measured_device(self, device: Device) -> Device:
        rates = self._rates
        return replace(
            device,
            elementwise_bytes_per_second=rates.elementwise_bytes_per_second or device.elementwise_bytes_per_second,
        )

    def costs(self, device: Device, overrides: HardwareOverrides | None) -> CostModel:
        """The cost model at one clock."""
        return CostModel(
            device,
            self._layout,
            software=self._job.software,
            backend=self._backend,
            overrides=overrides,
            measured=self._shapes,
            collectives=self._rates.collectives,
        )

    def notes(self) -> tuple[Assumption, ...]:
        """How many shapes of each kind were measured, corrected or modelled; none without a calibration."""
        if self._shapes is None:
            return ()
        return tuple(
            Assumption(what=f"{kind}: {_counts(counts)}", why=_WHY) for kind, counts in self._shapes.uses().items()
        )


def _counts(counts: Counter[Use]) -> str:
    return ", ".join(f"{counts[use]} {use.value}" for use in Use) + " shapes"
