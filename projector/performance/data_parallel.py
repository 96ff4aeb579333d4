"""What data parallelism adds to an iteration: gradient reduction, weight gathering, and what of it is exposed."""

from typing import NamedTuple

from projector.costs import CostModel
from projector.job import Precision, Sharding, Software
from projector.operations import CollectiveKind, Group, Held
from projector.parallelism import Layout, Placement
from projector.performance.passes import NOTHING, CallKey, PassTime, Traffic, exposed_part

_BUCKET_PARAMETERS = 40_000_000
_BUCKET_PARAMETERS_PER_RANK = 1_000_000
"""Gradient bucket of Megatron-LM's distributed data parallelism: the larger of the first and ranks x the second
(core/distributed/distributed_data_parallel.py)."""
_OVERLAP_WINDOW = 0.8
"""Share of the last backward (first forward) pass that communication can hide in: the first bucket is ready late, the
last one early (prior, from NVIDIA/dgxc-benchmarking's ladders)."""
_INTERFERENCE = 0.2
"""Share of hidden communication by which compute beside it is slowed (prior, same source)."""


class Communicator(NamedTuple):
    """Data-parallel calls of a job."""

    costs: CostModel
    """What a call costs."""
    layout: Layout
    """Groups."""
    precision: Precision
    """Bytes of weights and gradients."""

    def call(self, kind: CollectiveKind, held: Held, *, element_bytes: int, sharded: bool = False) -> PassTime:
        """One collective over the dense and one over the experts' parameters, as if nothing overlapped."""
        total = NOTHING
        for group, elements in ((Group.DATA, held.dense), (Group.EXPERT_DATA, held.expert)):
            placement = self._placement(group, sharded=sharded)
            message = elements * element_bytes
            seconds = self.costs.network.seconds(kind, message, placement)
            if seconds:
                total = total.plus(_exposed_call((group, kind), message, seconds))
        return total

    def _placement(self, group: Group, *, sharded: bool) -> Placement:
        """Where a group's ranks sit; only those that share one sharded copy, if asked."""
        size = self.layout.shard if group is Group.DATA else self.layout.expert_shard
        narrow = sharded and size < self.layout.size(group)
        return self.layout.placement(group, ranks=size if narrow else None)

    def replicas(self, held: Held) -> PassTime:
        """All-reduce of sharded gradients between copies of the shards (hybrid sharding); nothing with one copy."""
        total = NOTHING
        pairs = (
            (Group.DATA, held.dense, self.layout.shard),
            (Group.EXPERT_DATA, held.expert, self.layout.expert_shard),
        )
        for group, elements, shard in pairs:
            copies = self.layout.size(group) // max(1, shard)
            message = elements // max(1, shard) * self.precision.reduced_bytes
            across = self.layout.placement(group, ranks=copies, every=max(1, shard))
            seconds = self.costs.network.seconds(CollectiveKind.ALL_REDUCE, message, across)
            if seconds:
                total = total.plus(_exposed_call((group, CollectiveKind.ALL_REDUCE), message, seconds))
        return total

    @property
    def bucket_parameters(self) -> int:
        """Parameters of one gradient bucket."""
        return max(_BUCKET_PARAMETERS, _BUCKET_PARAMETERS_PER_RANK * self.layout.size(Group.DATA))


def _exposed_call(key: CallKey, message: float, seconds: float) -> PassTime:
    return PassTime(
        parts={exposed_part(key[0]): seconds},
        traffic={key: Traffic(message_bytes=message, seconds=seconds, exposed_seconds=seconds)},
    )


class Window(NamedTuple):
    """What a stage's once-an-iteration communication can hide behind."""

    chunks: int
    """Model chunks of the stage. With several, all but the last are complete while others still run."""
    forward_seconds: float
    """Forward passes of the first micro batches: of the one chunk, or of a group through all but one."""
    backward_seconds: float
    """Backward passes of the last micro batches, likewise."""


def step_communication(communicator: Communicator, held: Held, software: Software, window: Window) -> PassTime:
    """Gradient reduction and weight gathering of a stage, once an iteration, without weight sharding."""
    layout, precision = communicator.layout, communicator.precision
    if not held.total:
        return NOTHING
    least = min(1.0, max(communicator.bucket_parameters / held.total, 1 / window.chunks if window.chunks > 1 else 0.0))
    if layout.sharding is Sharding.NONE:
        reduce = communicator.call(CollectiveKind.ALL_REDUCE, held, element_bytes=precision.gradient_bytes)
        return _hidden(reduce, least, window.backward_seconds) if software.overlap_gradient_reduce else reduce
    reduce = communicator.call(
        CollectiveKind.REDUCE_SCATTER, held, element_bytes=precision.gradient_bytes, sharded=True
    )
    gather = communicator.call(CollectiveKind.ALL_GATHER, held, element_bytes=precision.weight_bytes, sharded=True)
    if software.overlap_gradient_reduce:
        reduce = _hidden(reduce, least, window.backward_seconds)
    if software.overlap_parameter_gather:
        gather = _hidden(gather, least, window.forward_seconds)
    return reduce.plus(gather, communicator.replicas(held))


def _hidden(call: PassTime, least_share: float, window_seconds: float) -> PassTime:
    """The call beside a pass: what does not fit, at least one bucket, and the slowing of what it hides behind."""
    total = call.seconds
    if not total:
        return call
    exposed = max(least_share * total, total - _OVERLAP_WINDOW * window_seconds)
    exposed = min(total, exposed + _INTERFERENCE * (total - exposed))
    return scaled_exposure(call, exposed / total)


def scaled_exposure(call: PassTime, share: float) -> PassTime:
    """A call of which only a share lengthens the iteration."""
    return PassTime(
        parts={name: seconds * share for name, seconds in call.parts.items()},
        traffic={
            key: Traffic(
                message_bytes=calls.message_bytes,
                seconds=calls.seconds,
                exposed_seconds=calls.exposed_seconds * share,
            )
            for key, calls in call.traffic.items()
        },
    )


def sharded_layer(
    communicator: Communicator, held: Held, trained: Held, *, hiding_seconds: float, backward: bool
) -> PassTime:
    """Weight gathering of one layer in one pass under full sharding, and gradient scattering in backward.

    `trained` are those of the parameters `held` that have gradients.
    Prefetching hides it behind the compute of the neighbouring layer, of `hiding_seconds`: exposed is what exceeds it
    (torch FSDP2 and Megatron-FSDP prefetch one layer); 0 hides nothing.
    """
    precision = communicator.precision
    call = communicator.call(CollectiveKind.ALL_GATHER, held, element_bytes=precision.gathered_bytes, sharded=True)
    if backward:
        call = call.plus(
            communicator.call(
                CollectiveKind.REDUCE_SCATTER, trained, element_bytes=precision.reduced_bytes, sharded=True
            )
        )
    total = call.seconds
    if not total:
        return call
    exposed = max(0.0, total - hiding_seconds)
    exposed += _INTERFERENCE * (total - exposed)
    return scaled_exposure(call, exposed / total)
