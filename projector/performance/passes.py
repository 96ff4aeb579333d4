"""The time of one pass of one micro batch through some operations, split into the parts that a waterfall shows.

What overlaps with what is decided here and in `data_parallel`, by these rules:

- Work of one rank runs one piece after the other; expert- and tensor-parallel collectives are exposed.
- Expert-parallel overlap runs a forward beside the backward of another micro batch (`combined`).
- Tensor-parallel overlap (user buffers, async TP) leaves the first of `tensor` pieces exposed, and slows the GEMMs
  that run beside the others.
- Ring exchange of context parallelism runs beside the attention kernels of all steps but the first.
- The host launches ahead of the device; a pass takes the longer of the two (`host-bound`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from projector.costs import CostModel
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

OVERLAP_SLOWDOWN = 0.15
"""Share of an overlapped collective inside layers by which the work beside it is slowed (prior, from
NVIDIA/dgxc-benchmarking's runs with user buffers of tensor parallelism)."""

RECOMPUTE = "recomputation"
"""Waterfall part of work that backward does again."""
BUBBLE = "pipeline bubble"
"""Waterfall part of waiting for other stages."""
HOST = "host-bound launches"
"""Waterfall part of time in which the device waits for the host."""

SCALES = "exchange of scaling factors"
"""Waterfall part of delayed scaling's all-reduce of largest values."""

CallKey: TypeAlias = tuple[Group, CollectiveKind]


class Traffic(NamedTuple):
    """Calls of one collective over one group."""

    message_bytes: float = 0.0
    """Bytes of all messages."""
    seconds: float = 0.0
    """Time if nothing overlapped."""
    exposed_seconds: float = 0.0
    """Time that lengthens the pass."""
    repeated_seconds: float = 0.0
    """What of it is done again in backward, and so stands under `RECOMPUTE`."""

    def scaled(self, count: float) -> "Traffic":
        """`count` times as many."""
        return Traffic(
            message_bytes=self.message_bytes * count,
            seconds=self.seconds * count,
            exposed_seconds=self.exposed_seconds * count,
            repeated_seconds=self.repeated_seconds * count,
        )

    def plus(self, other: "Traffic") -> "Traffic":
        """Both together."""
        return Traffic(
            message_bytes=self.message_bytes + other.message_bytes,
            seconds=self.seconds + other.seconds,
            exposed_seconds=self.exposed_seconds + other.exposed_seconds,
            repeated_seconds=self.repeated_seconds + other.repeated_seconds,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PassTime:
    """Seconds of a pass by part, and its communication."""

    parts: Mapping[str, float] = field(default_factory=dict)
    """Seconds by waterfall part; they add up to the pass."""
    traffic: Mapping[CallKey, Traffic] = field(default_factory=dict)
    """Communication by group and collective."""

    @property
    def seconds(self) -> float:
        """Length of the pass."""
        return sum(self.parts.values())

    def scaled(self, count: float) -> "PassTime":
        """`count` passes one after the other."""
        return PassTime(
            parts={name: seconds * count for name, seconds in self.parts.items()},
            traffic={key: calls.scaled(count) for key, calls in self.traffic.items()},
        )

    def plus(self, *others: "PassTime") -> "PassTime":
        """This pass and others one after the other."""
        parts, traffic = dict(self.parts), dict(self.traffic)
        for other in others:
            for name, seconds in other.parts.items():
                parts[name] = parts.get(name, 0.0) + seconds
            for key, calls in other.traffic.items():
                traffic[key] = traffic[key].plus(calls) if key in traffic else calls
        return PassTime(parts=parts, traffic=traffic)

    def redone(self) -> "PassTime":
        """The same work done again in backward: one part of the waterfall, communication kept."""
        parts = {RECOMPUTE: self.seconds} if self.parts else {}
        traffic = {key: calls._replace(repeated_seconds=calls.exposed_seconds) for key, calls in self.traffic.items()}
        return PassTime(parts=parts, traffic=traffic)

    def lengthened(self, seconds: float, name: str) -> "PassTime":
        """Lengthened by a part called `name`."""
        return self.plus(PassTime(parts={name: seconds})) if seconds > 0 else self


NOTHING = PassTime()
"""A pass that does nothing."""


_RINGS = frozenset({Group.CONTEXT, Group.CONTEXT_OUTER})
"""Groups whose transfers pass while attention works on what came before."""
_CONTEXTS = _RINGS | {Group.CONTEXT_INNER}


def exposed_part(group: Group) -> str:
    """Waterfall part of exposed communication over a group."""
    kind = Group.CONTEXT if group in _CONTEXTS else group
    return f"exposed {kind.value.replace('_', '-')}-parallel communication"


def pass_time(works: Iterable[Work], costs: CostModel, software: Software) -> PassTime:
    """Time of the works of one operation and direction, in order."""
    works = tuple(works)
    parts: dict[str, float] = {}
    traffic: dict[CallKey, Traffic] = {}
    for work in works:
        seconds = costs.seconds(work)
        if not seconds:
            continue
        if isinstance(work, Collective):
            exposed = exposed_seconds(work, works, costs, software)
            key = work.group, work.kind
            call = Traffic(message_bytes=work.message_bytes, seconds=seconds, exposed_seconds=exposed)
            traffic[key] = traffic[key].plus(call) if key in traffic else call
            name, seconds = exposed_part(work.group), exposed
        else:
            name = _PART_OF[type(work)]
        parts[name] = parts.get(name, 0.0) + seconds
    return PassTime(parts=parts, traffic=traffic)


def exposed_seconds(work: Work, beside: Iterable[Work], costs: CostModel, software: Software) -> float:
    """Seconds by which a piece of work lengthens the pass of an operation that does others `beside` it."""
    seconds = costs.seconds(work)
    if not isinstance(work, Collective):
        return seconds
    size = costs.groups.placement(work.group).size
    if work.group is Group.TENSOR and software.overlap_tensor_parallel:
        return seconds / size + OVERLAP_SLOWDOWN * seconds
    if work.group in _RINGS and work.kind is CollectiveKind.SEND_RECV:
        attention = sum(costs.seconds(other) for other in beside if isinstance(other, AttentionKernel))
        return max(0.0, seconds - attention * (size - 1) / size)
    return seconds


_PART_OF: dict[type, str] = {
    Gemm: "matrix products",
    GroupedGemm: "expert matrix products",
    AttentionKernel: "attention",
    ElementWise: "element-wise work",
}

PARTS = (*_PART_OF.values(), RECOMPUTE, HOST, *map(exposed_part, Group), SCALES)
"""Waterfall parts of passes, in the order in which they are told."""
WORKING = frozenset({_PART_OF[Gemm], _PART_OF[GroupedGemm], _PART_OF[AttentionKernel]})
"""Waterfall parts that draw full power."""
