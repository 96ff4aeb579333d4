"""The whole answer."""

from dataclasses import dataclass
from typing import Any

from projector.job import Target
from projector.projection.memory import MemoryProjection, Verdict
from projector.projection.parameters import ParameterCounts
from projector.projection.performance import PerformanceProjection
from projector.projection.scaling import SmallestLayout
from projector.provenance import Assumption, ConfigValue, Unmodelled

SCHEMA_VERSION = 1
"""Version of the JSON shape; changes when a field changes its meaning or goes away."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedLayout:
    """The layout with every degree resolved, for the report."""

    tensor: int
    """Tensor parallel."""
    pipeline: int
    """Pipeline parallel."""
    virtual_pipeline: int
    """Model chunks per stage."""
    expert: int
    """Expert parallel."""
    expert_tensor: int
    """Tensor parallel inside experts."""
    context: int
    """Context parallel."""
    data: int
    """Data parallel: devices / (tensor x pipeline x context)."""
    sequence_parallel: bool
    """Norms divided along the sequence."""
    shard: str
    """What data parallelism divides (`Sharding`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Suggestion:
    """A change, projected."""

    change: str
    """What to change, in the dialect of the file."""
    memory_bytes: int
    """Device memory of the worst stage after it."""
    iteration_seconds: float | None
    """Iteration time after it."""
    verdict: Verdict
    """Verdict after it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Projection:
    """The whole answer."""

    model: str
    """Name of the model."""
    format: str
    """Dialect in which the configuration was read, such as `primus`."""
    target: Target
    """Where it would run."""
    layout: ResolvedLayout
    """The resolved layout."""
    micro_batch: int
    """Sequences per micro batch."""
    global_batch: int
    """Sequences per iteration, after scaling."""
    sequence_length: int
    """Tokens per sequence."""
    micro_batches: int
    """Micro batches per iteration and data-parallel rank."""
    parameters: ParameterCounts
    """Exact counts."""
    values: tuple[ConfigValue, ...]
    """Effective configuration, sorted by key."""
    ignored: tuple[str, ...]
    """Keys that do not influence the answer."""
    assumed: tuple[Assumption, ...]
    """What nothing stated."""
    unmodelled: tuple[Unmodelled, ...]
    """What was not understood."""
    memory: MemoryProjection | None
    """None when only performance was asked for."""
    performance: PerformanceProjection | None
    """None when only memory was asked for."""
    smallest: SmallestLayout | None = None
    """The same degrees on the fewest nodes; None where nobody asked."""
    suggestions: tuple[Suggestion, ...] = ()
    """Changes that would fit."""

    def to_dict(self) -> dict[str, Any]:
        """The published JSON shape (`projector/projection.schema.json`): ratios 0-1, times ms, sizes bytes."""
        from projector.document import document  # noqa: PLC0415 - only those who want the document load it

        return document(self)
