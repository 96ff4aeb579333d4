"""A site's measured rates in a projection, and what the answer says of them."""

from collections import Counter
from dataclasses import replace

from projector.catalog import Device, HardwareOverrides, MeasuredRates
from projector.costs import GEMM_BACKENDS, CostModel, Network
from projector.costs.curves import MeasuredCollectives
from projector.costs.figures import GIGA
from projector.costs.measured import MeasuredCosts, Use
from projector.identity import remembered
from projector.job import MixtureOfExperts, TrainingJob
from projector.parallelism import LayerGroups, Layout
from projector.provenance import Assumption

_WHY = "`--calibration`; a shape it lacks takes the model's time x the median ratio of measured shapes of its size"

_WHY_LINKS = "`--hardware-config`; what it leaves out is the catalog's, as `projector devices --output json` lists it"
_WHY_CALLS = "`--calibration`; a group it lacks takes the model's time x the ratio of the nearest measured group"


class Measurements:
    """Cost models of a job with measured rates, or without any."""

    def __init__(
        self, rates: MeasuredRates | None, job: TrainingJob, layout: Layout, device: Device, *, backend: str
    ) -> None:
        """Take what was measured; without rates every cost is the catalog's."""
        self._job, self._layout, self._backend = job, layout, backend
        self._groups = layout.layer_groups
        self._rates, self._shapes = rates or MeasuredRates(), None
        self._curves = MeasuredCollectives(self._rates.curves)
        self.device = device
        """The device with the figures that were measured."""
        if rates is not None:
            self.device = self._measured_device(rates, device)
            nominal = CostModel(self.device, self._groups, backend=backend)
            self._shapes = MeasuredCosts(rates, self.device, nominal.seconds)

    def _measured_device(self, rates: MeasuredRates, device: Device) -> Device:
        dispatch = rates.dispatch
        measured = {
            "elementwise_bytes_per_second": rates.elementwise_bytes_per_second,
            "kernel_gap_seconds": rates.kernel_gap_seconds,
            "expert_dispatch_bytes_per_second": dispatch.bytes_per_second,
            "expert_dispatch_network_bytes_per_second": dispatch.network_bytes_per_second,
            "expert_dispatch_seconds": dispatch.seconds,
        }
        stated = {name: value for name, value in measured.items() if value is not None}
        return replace(device, **stated)  # type: ignore[arg-type]

    def costs(self, device: Device, overrides: HardwareOverrides | None) -> CostModel:
        """The cost model at one clock; without rates one object for all layouts whose layers cost the same."""
        # A name of somebody else's backend may stand for another one later.
        if self._shapes is None and self._backend in GEMM_BACKENDS:
            return _modelled(device, self._groups, self._backend, overrides)
        return CostModel(
            device,
            self._groups,
            backend=self._backend,
            overrides=overrides,
            measured=self._shapes,
            rates=self._rates,
            curves=self._curves,
        )

    def notes(self, overrides: HardwareOverrides | None) -> tuple[Assumption, ...]:
        """What dispatch rests on, and of a calibration what it decides and for how many shapes and calls it does."""
        links = () if overrides is None else (Assumption(what=self._links(overrides), why=_WHY_LINKS),)
        if self._shapes is None:
            return (*links, *self._dispatch())
        shapes = self._shapes.uses().items()
        collectives = self._curves.uses().items()
        return (
            *links,
            *self._dispatch(),
            *self._figures(),
            *(Assumption(what=f"{kind}: {_counts(counts, 'shapes')}", why=_WHY) for kind, counts in shapes),
            *(Assumption(what=f"{kind}: {_counts(counts, 'calls')}", why=_WHY_CALLS) for kind, counts in collectives),
        )

    def _links(self, overrides: HardwareOverrides) -> str:
        network = Network(self.device, self._layout.devices_per_node, overrides)
        return f"links of {network.described()}"

    def _figures(self) -> tuple[Assumption, ...]:
        """The figures of the calibration that stand in the place of the catalog's."""
        rates = self._rates
        bandwidths = ("elementwise",) if rates.elementwise_bytes_per_second else ()
        found = {
            "bandwidth of": (*bandwidths, *rates.bandwidths),
            "rate in one node of": rates.collectives,
            "launch cost": ("kernel gap",) * (rates.kernel_gap_seconds is not None) + tuple(rates.host),
        }
        told = (f"measured {what} {', '.join(names)}".replace("_", " ") for what, names in found.items() if names)
        return tuple(Assumption(what=what, why="`--calibration`") for what in told)

    def _dispatch(self) -> tuple[Assumption, ...]:
        """What the time of a DeepEP class of dispatch rests on; nothing where nothing is dispatched so."""
        exchanged = self._layout.expert > 1 and any(
            isinstance(layer.feed_forward, MixtureOfExperts) for layer in self._job.model.layers
        )
        if not (self._job.software.expert_dispatch.sends_once and exchanged):
            return ()
        name, rate = "expert_dispatch_bytes_per_second", self.device.expert_dispatch_bytes_per_second
        if rate is None:
            why = f"no figure of {self.device.name} is known; `expert_dispatch` of a calibration states one"
            return (Assumption(what="the dispatcher as an all-to-all of one copy for each rank", why=why),)
        if self._rates.dispatch.bytes_per_second is not None:
            return (Assumption(what=f"a dispatcher of {rate / GIGA:,.0f} GB/s", why="`--calibration`"),)
        if not self.device.estimated(name):
            return ()
        what = f"a dispatcher of {rate / GIGA:,.0f} GB/s on {self.device.name}"
        return (Assumption(what=what, why=self.device.provenance[name].why),)


@remembered
def _modelled(device: Device, groups: LayerGroups, backend: str, overrides: HardwareOverrides | None) -> CostModel:
    return CostModel(device, groups, backend=backend, overrides=overrides)


def _counts(counts: Counter[Use], what: str) -> str:
    return ", ".join(f"{counts[use]} {use.value}" for use in Use) + f" {what}"
