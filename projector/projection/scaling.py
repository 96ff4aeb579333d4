"""A job on clusters of several sizes, and the smallest of them."""

from dataclasses import dataclass

from projector.job import Scaling
from projector.projection.memory import Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutDifference:
    """One figure that differs between the smallest cluster and the target."""

    what: str
    """Such as `nodes`, `DP`, `micro batches`."""
    smallest: int
    """On the smallest cluster."""
    target: int
    """On the target."""
    why: str
    """What makes it differ."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SmallestLayout:
    """The same degrees on the fewest nodes that hold them: what Primus calls the minimum of a configuration."""

    nodes: int
    """Hosts."""
    devices: int
    """GPUs."""
    data: int
    """Data parallel."""
    micro_batches: int
    """Micro batches per iteration and data-parallel rank."""
    global_batch: int
    """Sequences per iteration."""
    why: str
    """The products of degrees of which its GPUs are a multiple."""
    differences: tuple[LayoutDifference, ...]
    """What the target has otherwise; none where the target is the smallest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScaledTime:
    """Speed on one cluster."""

    data: int
    """Data parallel."""
    micro_batches: int
    """Micro batches per iteration and data-parallel rank."""
    global_batch: int
    """Sequences per iteration."""
    iteration_seconds: float
    """One optimizer step."""
    iteration_seconds_lower: float
    """Lower end of its interval."""
    iteration_seconds_upper: float
    """Upper end of its interval."""
    tokens_per_second_per_device: float
    """Throughput of one GPU."""
    efficiency: float
    """`tokens_per_second_per_device` over that of the table's smallest cluster."""
    verdict: Verdict | None = None
    """Whether the job fits in memory there; None where memory is not asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalingRow:
    """One cluster of a scaling table."""

    nodes: int
    """Hosts."""
    devices: int
    """GPUs."""
    time: ScaledTime | None = None
    """How fast the job is there; None where it cannot run."""
    refusal: str = ""
    """Why it cannot run there, with the numbers that do not divide."""

    @property
    def tokens_per_second(self) -> float:
        """Throughput of the whole cluster; 0 where the job cannot run."""
        return 0.0 if self.time is None else self.time.tokens_per_second_per_device * self.devices


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalingTable:
    """A job on ever larger clusters."""

    scaling: Scaling
    """What the batch does when the cluster grows."""
    rows: tuple[ScalingRow, ...]
    """By nodes."""
