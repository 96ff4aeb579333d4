"""How the host's launches and the device's work interleave, as a map of two clocks.

The host starts work ahead of the device; the device begins a piece when it is started and the piece before has ended. A
readback makes the host wait for the device and so takes its lead away. Each step maps the two clocks (host free, device
free) to later ones by sums and maxima, so that steps compose like matrices of the max-plus algebra: a layer is composed
once, and a chunk of any depth from its layers.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from math import inf
from typing import NamedTuple

from projector.catalog import Device, HostCosts
from projector.costs import CostModel
from projector.costs.host import host_seconds, linear_seconds, readbacks
from projector.job import Software
from projector.operations import Gemm, Operation, Work
from projector.performance.passes import exposed_seconds


class Clocks(NamedTuple):
    """A map of the times at which host and device are free: a matrix of the max-plus algebra, in seconds."""

    host_to_host: float = 0.0
    """Least time from the host's clock to itself."""
    device_to_host: float = -inf
    """From the device's clock to the host's."""
    host_to_device: float = -inf
    """From the host's clock to the device's."""
    device_to_device: float = 0.0
    """From the device's clock to itself: its own work, and what a host that waits for it adds."""
    busy_seconds: float = 0.0
    """Work of the device alone."""

    def then(self, later: "Clocks") -> "Clocks":
        """This and later steps one after the other."""
        return Clocks(
            max(later.host_to_host + self.host_to_host, later.device_to_host + self.host_to_device),
            max(later.host_to_host + self.device_to_host, later.device_to_host + self.device_to_device),
            max(later.host_to_device + self.host_to_host, later.device_to_device + self.host_to_device),
            max(later.host_to_device + self.device_to_host, later.device_to_device + self.device_to_device),
            self.busy_seconds + later.busy_seconds,
        )

    def repeated(self, count: int) -> "Clocks":
        """These steps `count` times, one after the other: a power by squaring."""
        whole, power = NO_STEPS, self
        while count:
            if count % 2:
                whole = whole.then(power)
            count //= 2
            if count:
                power = power.then(power)
        return whole

    def waiting_seconds(self, *, keeps_lead: bool) -> float:
        """How long the device idles for the host in one pass of many.

        Where the host `keeps_lead` from one pass to the next, passes follow one another at the largest cycle mean of
        this map; else each finds host and device free at once.
        """
        if keeps_lead:
            cycle = (self.host_to_device + self.device_to_host) / 2
            passed = max(self.host_to_host, cycle, self.device_to_device)
        else:
            passed = max(self.host_to_device, self.device_to_device)
        return max(0.0, passed - self.busy_seconds)


NO_STEPS = Clocks()
"""Nothing happens."""


def launched(host: float, device: float) -> Clocks:
    """The host takes `host` seconds to start work that keeps the device busy for `device` seconds."""
    return Clocks(host, -inf, host + device, device, device)


def readback(host: float) -> Clocks:
    """The host waits until the device is free, and for `host` seconds more."""
    return Clocks(host, host, -inf, 0.0)


def composed(steps: Iterable[Clocks]) -> Clocks:
    """Steps one after the other."""
    return reduce(Clocks.then, steps, NO_STEPS)


class Launches:
    """Clocks of operations under the costs and software of a job."""

    def __init__(self, costs: CostModel, software: Software) -> None:
        """Keep what decides how long host and device take."""
        self._costs = costs
        self._software = software
        self._host: HostCosts = costs.host

    @property
    def _device(self) -> Device:
        return self._costs.device

    def forward(self, operations: Iterable[Operation]) -> Clocks:
        """The forward pass of operations in order."""
        return composed(self._pass(operation.forward, backward=False) for operation in operations)

    def backward(self, operations: Sequence[Operation], again: Iterable[Operation]) -> Clocks:
        """The backward pass of operations, behind the forward pass of those that run `again`."""
        passes = ((*each.backward_input, *each.backward_weight) for each in reversed(operations))
        return self.forward(again).then(composed(self._pass(works, backward=True) for works in passes))

    def _pass(self, works: tuple[Work, ...], *, backward: bool) -> Clocks:
        linear = any(isinstance(work, Gemm) for work in works)
        python = linear_seconds(self._host, backward=backward) * self._software.host_factor
        before = launched(python, 0.0) if linear else NO_STEPS
        return composed([before, *(self._step(work, works, backward=backward) for work in works)])

    def _step(self, work: Work, beside: tuple[Work, ...], *, backward: bool) -> Clocks:
        factor = self._software.host_factor
        host = factor * host_seconds(work, self._host, self._device, backward=backward)
        step = launched(host, exposed_seconds(work, beside, self._costs, self._software))
        waiting = readback(factor * self._host.synchronisation_seconds)
        return composed([step, *[waiting] * readbacks(work)])
