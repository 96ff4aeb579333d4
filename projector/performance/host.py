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

from projector.costs import CostModel
from projector.costs.host import HostWork, readbacks
from projector.job import GraphCapture, Software
from projector.layers.capture import Captured, captured
from projector.operations import ElementWise, Operation, Work
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
        self._host = HostWork(costs.host, costs.device, software)

    def forward(self, operations: Sequence[Operation]) -> Clocks:
        """The forward pass of operations in order."""
        return self._run(operations, self._captured(operations), backward=False)

    def backward(self, operations: Sequence[Operation], again: Sequence[Operation]) -> Clocks:
        """The backward pass of operations, behind the forward pass of those that run `again`.

        A graph of a backward pass holds what it runs again of the modules in it.
        """
        inside = dict(zip(operations, self._captured(operations), strict=True))
        repeated = self._run(again, [inside[operation] for operation in again], backward=False, launches=0.0)
        backwards = operations[::-1]
        return repeated.then(self._run(backwards, [inside[operation] for operation in backwards], backward=True))

    def _captured(self, operations: Sequence[Operation]) -> Sequence[Captured]:
        """How much of each operation graphs hold; of anything but a layer, only a graph of the iteration does."""
        software = self._software
        if software.graphed_modules and software.graph_capture is GraphCapture.FULL_ITERATION:
            return [Captured.ALL] * len(operations)
        return captured(operations, software.graphed_modules)

    def _run(
        self,
        operations: Sequence[Operation],
        inside: Sequence[Captured],
        *,
        backward: bool,
        launches: float | None = None,
    ) -> Clocks:
        """One direction of operations; graphs begin with a launch, but for that of the iteration, long before it."""
        whole = self._software.graph_capture is GraphCapture.FULL_ITERATION
        launch = (0.0 if whole else self._host.graph_seconds) if launches is None else launches
        steps: list[Clocks] = []
        graphed = False
        for operation, held in zip(operations, inside, strict=True):
            begins = held is not Captured.NOTHING and not graphed
            graphed = held is not Captured.NOTHING
            steps += [launched(launch, 0.0)] if begins else []
            steps += self._steps(operation, held, backward=backward)
        return composed(steps)

    def _steps(self, operation: Operation, held: Captured, *, backward: bool) -> list[Clocks]:
        works = (*operation.backward_input, *operation.backward_weight) if backward else operation.forward
        if held is Captured.ALL:
            whole = self._software.graph_capture is GraphCapture.FULL_ITERATION
            waits = 0 if whole else sum(readbacks(work) for work in works)
            steps = [launched(0.0, self._device_seconds(work, works)) for work in works]
            return [*steps, *[self._readback()] * waits]
        steps = [launched(self._host.operation_seconds(operation, backward=backward), 0.0)]
        for work in works:
            free = held is Captured.PREPARATION and isinstance(work, ElementWise)
            host = 0.0 if free else self._host.seconds(work, backward=backward)
            steps.append(launched(host, self._device_seconds(work, works)))
            steps += [self._readback()] * readbacks(work)
        return steps

    def _readback(self) -> Clocks:
        return readback(self._host.readback_seconds)

    def _device_seconds(self, work: Work, beside: tuple[Work, ...]) -> float:
        return exposed_seconds(work, beside, self._costs, self._software)
