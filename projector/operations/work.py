"""Kinds of work that a device does; a cost model turns each into seconds."""

from dataclasses import dataclass
from enum import StrEnum
from math import comb
from typing import NamedTuple, TypeAlias

from projector.job import LowPrecision


class GemmLayout(StrEnum):
    """How the operands of a product lie: BLAS's letters, transposed or not, for the first and the second.

    A linear layer y = x W^T computes its output as TN, the gradient of its input as NN and that of its weight as NT:
    the side that is summed over is contiguous in both operands, in one, and in neither.
    """

    TN = "TN"
    NN = "NN"
    NT = "NT"


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
    layout: GemmLayout = GemmLayout.TN
    """How the operands lie."""
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
    further_keys: float = 0.0
    """Keys that a query sees beside those, on average over the queries: compressed ones."""
    chunk: int | None = None
    """Keys of one chunk, outside of which a query attends to nothing."""
    packed: int | None = None
    """Tokens of one of the samples that a sequence is packed with, outside of which a query attends to nothing."""
    backward: bool = False
    """The backward kernel: five products instead of two (FlashAttention-2, arXiv 2307.08691)."""
    flash: bool = True
    """Scores never reach memory."""
    backend: str | None = None
    """Family of flash kernels; None for the device's usual one."""
    deterministic: bool = False
    """Backward adds up the queries' gradients in a fixed order."""

    @property
    def attended_pairs(self) -> float:
        """Query-key pairs of one sequence and head that are computed.

        Fewer queries than keys are one device's even share of a sequence that context parallelism divides. Chunks and
        packed samples are sequences of their own: a query sees on average half of its own when the past alone counts.
        """
        further = self.query_length * self.further_keys
        keys = min(self.key_length, self.packed or self.key_length, self.chunk or self.key_length)
        if self.window is not None and self.window < keys:
            start = self.window * (self.window - 1) / 2 if self.causal else 0
            return self.query_length * (self.window - start / keys) + further
        pairs = float(self.query_length) * keys
        return (pairs / 2 if self.causal else pairs) + further

    @property
    def flops(self) -> float:
        """Multiplications and additions; the backward pass recomputes the scores."""
        forward = 2.0 * self.batch * self.heads * self.attended_pairs * (self.query_key_dim + self.value_dim)
        return forward * 2.5 if self.backward else forward


class StatedSpeed(NamedTuple):
    """How fast a person says that work bound by memory runs, in place of the cost model's figures."""

    bandwidth_share: float | None = None
    """Share of the peak of memory bandwidth; None for what large kernels achieve."""
    efficiency: float = 1.0
    """Factor on what large kernels achieve."""
    launch_seconds: float | None = None
    """Time between two kernels; None for the cost model's gap."""
    fixed_seconds: float = 0.0
    """Time beside that of bytes and kernels."""


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
    speed: StatedSpeed | None = None
    """What a person states of its speed; None for the cost model's figures."""


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
    CONTEXT_INNER = "context_inner"
    """Ranks of the context-parallel group that exchange heads, where a ring runs between such groups."""
    CONTEXT_OUTER = "context_outer"
    """Ranks that hold the same place in those groups, which the ring joins."""
    EXPERT = "expert"
    EXPERT_TENSOR = "expert_tensor"
    PIPELINE = "pipeline"
    DATA = "data"
    """Ranks with the same dense weights: data and context parallel ranks together."""
    EXPERT_DATA = "expert_data"
    """Ranks with the same experts."""
    EMBEDDING = "embedding"
    """First and last pipeline stage when they share the token table."""


class TokenVisits(NamedTuple):
    """Where the tokens of one device go when each place that holds experts of a token gets one copy of it."""

    token_bytes: int
    """Bytes of all of the device's tokens, once."""
    top_k: int
    """Experts that a token visits, no two of them alike."""
    experts: int
    """Experts of a layer, as many in each place."""
    groups: int = 1
    """Groups that the router divides the experts into."""
    chosen_groups: int = 1
    """Groups of them that a token's experts lie in (group-limited routing, arXiv 2412.19437, section 2.1.2)."""

    def places(self, places: int) -> float:
        """Of so many places with as many experts each, how many a token visits on average under balanced routing.

        A place with E' of E experts within reach is missed by K of them in C(E - E', K) of C(E, K) ways.
        """
        limited = self.chosen_groups < self.groups and not (places % self.groups and self.groups % places)
        if not limited:
            return places * self._hit(self.experts // places, self.experts)
        pool = self.experts * self.chosen_groups // self.groups
        if places >= self.groups:
            return places // self.groups * self.chosen_groups * self._hit(self.experts // places, pool)
        held, group = self.groups // places, self.experts // self.groups
        ways = [
            comb(held, chosen) * comb(self.groups - held, self.chosen_groups - chosen)
            for chosen in range(min(held, self.chosen_groups) + 1)
        ]
        hits = (way * self._hit(chosen * group, pool) for chosen, way in enumerate(ways))
        return places * sum(hits) / comb(self.groups, self.chosen_groups)

    def _hit(self, held: int, pool: int) -> float:
        """How likely one of the experts of a token, drawn from a pool, is among those that a place holds."""
        others = pool - held
        return 1.0 if others < self.top_k else 1 - comb(others, self.top_k) / comb(pool, self.top_k)


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
    visits: TokenVisits | None = None
    """Where tokens go in an exchange that sends one once to each place that needs it; None for any other."""


Work: TypeAlias = Gemm | GroupedGemm | AttentionKernel | ElementWise | Collective
