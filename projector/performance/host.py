"""How long the host needs to launch a layer.

The host runs ahead while the device works, so only the longer of the two counts over a pass of a model chunk.
"""

from collections.abc import Iterable

from projector.catalog import Device, host_costs
from projector.costs.host import host_seconds, linear_seconds
from projector.layers import is_recomputed
from projector.operations import Gemm, Operation, Work


def launch_seconds(
    operations: Iterable[Operation], device: Device, modules: frozenset[str], *, recomputed: bool
) -> tuple[float, float]:
    """Host time of the forward and of the backward pass of operations.

    The second holds what is recomputed: everything if `recomputed`, else the operations of `modules`.
    """
    host = host_costs(device.host_platform)

    def started(works: Iterable[Work], *, backward: bool) -> float:
        works = tuple(works)
        linears = linear_seconds(host, backward=backward) if any(isinstance(work, Gemm) for work in works) else 0.0
        return linears + sum(host_seconds(work, host, device, backward=backward) for work in works)

    forward = backward = 0.0
    for operation in operations:
        ahead = started(operation.forward, backward=False)
        forward += ahead
        backward += started((*operation.backward_input, *operation.backward_weight), backward=True)
        if recomputed or is_recomputed(operation, modules):
            backward += ahead
    return forward, backward
