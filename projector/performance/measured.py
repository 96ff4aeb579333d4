"""A site's measured rates in a projection, and what the answer says of them."""

from collections import Counter
from dataclasses import replace

from projector.catalog import Device, HardwareOverrides, MeasuredRates
from projector.costs import CostModel
from projector.costs.measured import MeasuredCosts, Use
from projector.identity import remembered
from projector.job import Software, TrainingJob
from projector.parallelism import LayerGroups, Layout
from projector.provenance import Assumption

_WHY = "`--calibration`; a shape it lacks takes the model's time x the median ratio of measured shapes of its size"


class Measurements:
    """Cost models of a job with measured rates, or without any."""

    def __init__(
        self, rates: MeasuredRates | None, job: TrainingJob, layout: Layout, device: Device, *, backend: str
    ) -> None:
        """Take what was measured; without rates every cost is the catalog's."""
        self._rates, self._backend = rates, backend
        self._software, self._groups = job.software, layout.layer_groups
        self._shapes = None
        self.device = device
        """The device with the bandwidth that was measured."""
        if rates is not None:
            rate = rates.elementwise_bytes_per_second or device.elementwise_bytes_per_second
            self.device = replace(device, elementwise_bytes_per_second=rate)
            nominal = CostModel(self.device, self._groups, software=job.software, backend=backend)
            self._shapes = MeasuredCosts(rates, self.device, nominal.seconds)

    def costs(self, device: Device, overrides: HardwareOverrides | None) -> CostModel:
        """The cost model at one clock; without rates one object for all layouts whose layers cost the same."""
        if self._rates is None:
            return _modelled(device, self._groups, self._software, self._backend, overrides)
        return CostModel(
            device,
            self._groups,
            software=self._software,
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


@remembered
def _modelled(
    device: Device, groups: LayerGroups, software: Software, backend: str, overrides: HardwareOverrides | None
) -> CostModel:
    return CostModel(device, groups, software=software, backend=backend, overrides=overrides)


def _counts(counts: Counter[Use]) -> str:
    return ", ".join(f"{counts[use]} {use.value}" for use in Use) + " shapes"
