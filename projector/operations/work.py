"""Kinds of work that a device does; a cost model turns each into seconds."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from projector.job import LowPrecision


@dataclass(frozen=True, kw_only=True, slots=True)
class Gemm:
    """A dense matrix product of m x k by k x n, `batch` times."""

    m: int
    """Rows of the result; for a forward pass, the tokens."""
    n: int
    """Columns of the result."""
    k: int
    """Width that is summed over."""
    batch: int = 1
    """Independent products of this shape in one kernel."""
    output_bytes: int = 2
    """Bytes of a result element: 4 where a weight gradient goes into an fp32 main gradient."""
    accumulates: bool = False
    """The result is read and added to (fused weight-gradient accumulation)."""
    low_precision: LowPrecision | None = None
    """Format of both inputs; None for 16-bit."""

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.batch * self.m * self.n * self.k


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupedGemm:
    """One GEMM per local expert over its own tokens."""

    groups: int
    """Local experts."""
    m: int
    """Rows of all groups together (the tokens received), balanced."""
    n: int
    """Columns of each result."""
    k: int
    """Width that is summed over."""
    weight_gradient: bool = False
    """The rows are what is summed over: each group yields an n x k gradient."""
    output_bytes: int = 2
    """Bytes of a result element."""
    fused: bool = False
    """One kernel for all groups, instead of one call per group."""
    low_precision: LowPrecision | None = None
    """Format of both inputs; None for 16-bit."""

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.m * self.n * self.k


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionKernel:
    """Scaled-dot-product attention over heads of one device."""

    batch: int
    """Sequences."""
    heads: int
    """Query heads."""
    key_value_heads: int
    """Key and value heads."""
    query_length: int
    """Queries per sequence and head."""
    key_length: int
    """Keys per sequence and head."""
    query_key_dim: int
    """Width of a query or key head."""
    value_dim: int
    """Width of a value head."""
    causal: bool = True
    """Only the past is attended to, which halves the work when both lengths are equal."""
    window: int | None = None
    """Sliding window in keys."""
    chunk: int | None = None
    """Keys of one chunk, outside of which a query attends to nothing."""
    backward: bool = False
    """The backward kernel: five products instead of two (FlashAttention-2, arXiv 2307.08691)."""
    flash: bool = True
    """Scores never reach memory."""
    backend: str | None = None
    """Family of flash kernels; None for the device's usual one."""

    @property
    def attended_pairs(self) -> float:
        """Query-key pairs of one sequence and head that are computed.

        Fewer queries than keys are one device's even share of a sequence that context parallelism divides.
        """
        if self.window is not None and self.window < self.key_length:
            start = self.window * (self.window - 1) / 2 if self.causal else 0
            return self.query_length * (self.window - start / self.key_length)
        keys = self.key_length if self.chunk is None else min(self.chunk, self.key_length)
        pairs = float(self.query_length) * keys
        return pairs / 2 if self.causal else pairs

    @property
    def flops(self) -> float:
        """Multiplications and additions; the backward pass recomputes the scores."""
        forward = 2.0 * self.batch * self.heads * self.attended_pairs * (self.query_key_dim + self.value_dim)
        return forward * 2.5 if self.backward else forward


@dataclass(frozen=True, kw_only=True, slots=True)
class ElementWise:
    """Work bound by memory: norms, rotary, activation, permutation, router, loss, casts, copies."""

    name: str
    """What it is, for reports and measured tables, such as `rms_norm` or `permute`."""
    bytes_read: int
    """Bytes read from device memory."""
    bytes_written: int
    """Bytes written to device memory."""
    kernels: int = 1
    """Kernel launches."""
    functions: int = 0
    """Python around them: autograd functions, quantisers and the like."""
    readbacks: int = 0
    """Times that the host waits for a result before it goes on."""


class CollectiveKind(StrEnum):
    """Collective operations, by their NCCL names."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    SEND_RECV = "send_recv"


class Group(StrEnum):
    """Process groups, by what they divide."""

    TENSOR = "tensor"
    CONTEXT = "context"
    EXPERT = "expert"
    EXPERT_TENSOR = "expert_tensor"
    PIPELINE = "pipeline"
    DATA = "data"
    """Ranks with the same dense weights: data and context parallel ranks together."""
    EXPERT_DATA = "expert_data"
    """Ranks with the same experts."""
    EMBEDDING = "embedding"
    """First and last pipeline stage when they share the token table."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Collective:
    """One collective call."""

    kind: CollectiveKind
    """Which collective."""
    group: Group
    """Over which process group."""
    message_bytes: int
    """Bytes of the full message: the buffer that is reduced, the gathered result, the input that is scattered, what
    one rank sends in an all-to-all (its own share included), what travels in a send."""


Work: TypeAlias = Gemm | GroupedGemm | AttentionKernel | ElementWise | Collective
