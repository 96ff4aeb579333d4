"""The memory half of the answer: per pipeline stage, at four levels, with its interval."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple


class Verdict(StrEnum):
    """Whether the job fits in every device's memory."""

    FITS = "Fits"
    AT_RISK = "AtRisk"
    """The interval contains the capacity."""
    DOES_NOT_FIT = "DoesNotFit"
    UNKNOWN = "Unknown"
    """Something that decides was not understood."""


class Confidence(StrEnum):
    """How far the figures can be trusted."""

    HIGH = "High"
    MEDIUM = "Medium"
    LOW = "Low"


class MemoryLevel(StrEnum):
    """The four levels of device memory; each holds the ones before it."""

    PERSISTENT = "persistent"
    """Weights, gradients, optimizer state."""
    ALLOCATED = "allocated"
    """Adds saved activations and transients at the peak."""
    RESERVED = "reserved"
    """Adds what the caching allocator holds back."""
    DEVICE = "device"
    """Adds runtime context, communicators and dispatch buffers."""


SAVED = "saved activations: "
"""What the names of parts begin with that are activations kept for backward."""
_ORDER = {level: place for place, level in enumerate(MemoryLevel)}


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryComponent:
    """One part of a stage's memory. Parts add up: those up to a level sum to that level."""

    name: str
    """Such as `weights`, `gradients`, `optimizer state`, `saved activations: mlp`, `communicators`."""
    level: MemoryLevel
    """The level at which it is added."""
    size_bytes: int
    """Bytes per device."""


class Uncertainty(NamedTuple):
    """One reason why memory may differ from what is expected."""

    name: str
    """Such as `routing`, `what is counted`, `allocator`, `outside the allocator`."""
    level: MemoryLevel
    """The level at which it enters; it holds for those above too."""
    below_bytes: int
    """By how much memory may be less."""
    above_bytes: int
    """By how much memory may be more."""


@dataclass(frozen=True, kw_only=True)
class StageMemory:
    """Memory of the devices of one pipeline stage."""

    # Without slots, so that the sums are made once.

    stage: int
    """Pipeline rank, from 0."""
    layers: tuple[int, ...]
    """Global indices of its decoder layers, all model chunks together."""
    parameters: int
    """Parameters per device before data-parallel sharding, padding included."""
    components: tuple[MemoryComponent, ...]
    """The parts, in order of level."""
    device_bytes_lower: int
    """Lower end of the interval of device memory."""
    device_bytes_upper: int
    """Upper end of the interval of device memory."""
    peak_cause: str
    """What is going on at the peak, in words."""
    first_iteration_allocated_bytes: int | None = None
    """Peak allocated of the first iteration, which runs without the optimizer state that its step makes; the figures at
    all levels are those from the second iteration on. None where nobody projected it."""
    first_iteration_reserved_bytes: int | None = None
    """What the caching allocator holds when the first iteration is over; None where its allocations were
    not replayed."""
    uncertainties: tuple[Uncertainty, ...] = ()
    """What makes up the interval, in order of level."""
    routing_imbalance: tuple[float, float, float] | None = None
    """Rows that the experts of the busiest device receive over the balanced share: least, expected and most; None where
    routing decides nothing."""
    passes_in_flight: tuple[int, ...] = ()
    """Passes of micro batches through each of its model chunks whose activations are alive at the peak, the running one
    included; none where the optimizer step is the peak."""
    layers_in_flight: int = 0
    """The same in decoder layers: passes x layers of the chunk, over all chunks."""

    def level_bytes(self, level: MemoryLevel) -> int:
        """Bytes at a level: the sum of the parts up to it."""
        return self._levels[level]

    @cached_property
    def _levels(self) -> Mapping[MemoryLevel, int]:
        added = dict.fromkeys(_ORDER, 0)
        for part in self.components:
            added[part.level] += part.size_bytes
        return dict(zip(_ORDER, accumulate(added.values()), strict=True))

    def interval_bytes(self, level: MemoryLevel) -> tuple[int, int]:
        """Lower and upper end at a level, from the uncertainties that have entered up to it."""
        if level is MemoryLevel.DEVICE:
            return self.device_bytes_lower, self.device_bytes_upper
        order = list(MemoryLevel)
        entered = [each for each in self.uncertainties if order.index(each.level) <= order.index(level)]
        expected = self.level_bytes(level)
        below, above = sum(each.below_bytes for each in entered), sum(each.above_bytes for each in entered)
        return max(0, expected - below), expected + above

    @property
    def device_bytes(self) -> int:
        """Expected bytes as the device sees them."""
        return self.level_bytes(MemoryLevel.DEVICE)

    @property
    def first_step_effect_bytes(self) -> int:
        """By how much the peak rises after the first iteration."""
        first = self.first_iteration_allocated_bytes
        return 0 if first is None else self.level_bytes(MemoryLevel.ALLOCATED) - first


class SavedActivations(NamedTuple):
    """Activations of one component."""

    name: str
    """Component, such as `self_attention`; `recomputed layers` is the input from which a layer runs again."""
    size_bytes: int
    """Bytes kept on one device from forward until backward."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerActivations:
    """What one micro batch keeps for backward in one layer of a kind."""

    name: str
    """Kind: embedding, dense_layer, moe_layer, multi_token_prediction or output."""
    count: int
    """Layers of this kind in the whole model."""
    recompute: str
    """How they are recomputed (`RecomputeGranularity`)."""
    components: tuple[SavedActivations, ...]
    """The parts."""

    @property
    def size_bytes(self) -> int:
        """All of them."""
        return sum(part.size_bytes for part in self.components)


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryProjection:
    """The memory half of the answer."""

    verdict: Verdict
    """Against usable capacity, over all stages."""
    confidence: Confidence
    """How far the figures can be trusted."""
    device_capacity_bytes: int
    """What the runtime reports as total memory."""
    stages: tuple[StageMemory, ...]
    """One per pipeline stage, in order."""
    confidence_reasons: tuple[str, ...] = ()
    """Why the confidence is what it is."""
    activations: tuple[LayerActivations, ...] = ()
    """What one micro batch keeps, by kind of layer."""

    @property
    def worst(self) -> StageMemory:
        """The stage whose upper end is largest; the first of equals."""
        return max(self.stages, key=lambda stage: (stage.device_bytes_upper, -stage.stage))
