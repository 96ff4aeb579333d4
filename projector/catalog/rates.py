"""Rates that somebody measured at one site: seconds of shapes, bandwidths, collectives, launches."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

Shape = TypeVar("Shape")
"""What tells one piece of work of a kind from another."""


class Regime(StrEnum):
    """How long the work ran that was timed."""

    BURST = "burst"
    """For so short a time that the power limit did not act; training runs slower."""
    SUSTAINED = "sustained"
    """For seconds, at the clock that the chip holds."""


class GemmShape(NamedTuple):
    """What tells one matrix product from another."""

    batch: int
    """Independent products."""
    m: int
    """Rows of the result."""
    k: int
    """Width that is summed over."""
    n: int
    """Columns of the result."""
    accumulates: bool
    """The result is added to."""
    output_bytes: int
    """Bytes of a result element."""
    layout: str | None = None
    """How the operands lie, TN, NN or NT; None where a table does not tell."""


class GroupedShape(NamedTuple):
    """What tells one grouped product from another; widths are those of the product itself."""

    groups: int
    """Experts."""
    rows: int
    """Tokens of one expert."""
    n: int
    """Columns of each result."""
    k: int
    """Width that is summed over; with `weight_gradient`, the other side of the gradient."""
    weight_gradient: bool
    """The tokens are summed over."""
    output_bytes: int
    """Bytes of a result element."""


class AttentionShape(NamedTuple):
    """What tells one causal flash-attention kernel from another."""

    batch: int
    """Sequences."""
    length: int
    """Queries and keys of a sequence."""
    heads: int
    """Query heads."""
    key_value_heads: int
    """Key and value heads."""
    query_key_dim: int
    """Width of a query or key head."""
    value_dim: int
    """Width of a value head."""
    backward: bool
    """The backward kernel."""


class MeasuredCollective(NamedTuple):
    """A collective inside one node as latency and rate."""

    bytes_per_second: float
    """Bus bandwidth as nccl-tests defines it, without the latency."""
    fixed_seconds: float
    """Latency of any number of ranks."""
    fixed_seconds_by_ranks: Mapping[int, float]
    """Latency that takes the place of `fixed_seconds` where it was measured for a number of ranks."""
    step_seconds: float
    """Latency that each rank after the first adds."""

    def latency_seconds(self, ranks: int) -> float:
        """Fixed part of one call over a number of ranks."""
        return self.fixed_seconds_by_ranks.get(ranks, self.fixed_seconds) + self.step_seconds * (ranks - 1)


class CollectiveTimes(NamedTuple):
    """Measured seconds of one collective over message size, for some ranks on some nodes."""

    collective: str
    """A value of `CollectiveKind`."""
    ranks: int
    """Ranks that took part."""
    nodes: int
    """Hosts that they were on, evenly."""
    seconds: tuple[tuple[int, float], ...]
    """(bytes of the message as `Collective` counts them, seconds of one call), ascending in bytes."""


class DispatchRates(NamedTuple):
    """A DeepEP class of dispatch, as `Device` states it; None where it was not measured."""

    bytes_per_second: float | None = None
    """Inside a node or domain of NVLink, bytes of unique ranks."""
    network_bytes_per_second: float | None = None
    """Between them, bytes of one rank to other nodes."""
    seconds: float | None = None
    """Fixed part."""


class Rates(NamedTuple, Generic[Shape]):
    """Seconds of every measured shape of one kind of work."""

    seconds: Mapping[Shape, float]
    """The benchmark's seconds."""
    regime: Regime
    """How long it ran."""


class MeasuredRates(NamedTuple):
    """Everything that decides time in a calibration file."""

    gemm: Rates[GemmShape] | None = None
    """Dense matrix products in 16 bits."""
    grouped: Rates[GroupedShape] | None = None
    """Grouped matrix products in 16 bits."""
    attention: Rates[AttentionShape] | None = None
    """Causal flash attention."""
    elementwise_bytes_per_second: float | None = None
    """What large element-wise kernels move."""
    bandwidths: Mapping[str, float] = MappingProxyType({})
    """The same for kernels with a bandwidth of their own: `permutation` and `cross_entropy`, bytes per second."""
    collectives: Mapping[str, MeasuredCollective] = MappingProxyType({})
    """Inside one node, by the names of `CollectiveKind`."""
    curves: tuple[CollectiveTimes, ...] = ()
    """Times over message size, at most one of a collective on as many ranks and nodes; they win over `collectives`."""
    dispatch: DispatchRates = DispatchRates()
    """Dispatch of tokens to experts by a DeepEP class of library."""
    kernel_gap_seconds: float | None = None
    """Time between the work of two kernels of one stream."""
    host: Mapping[str, float] = MappingProxyType({})
    """Host seconds of one item of work, by field of `HostCosts`."""
