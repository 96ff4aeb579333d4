"""What follows from the chunks of a stage alone, and so is the same on every stage of equal chunks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from projector.catalog import Device
from projector.job import TrainingJob
from projector.layers.shapes import Shapes
from projector.memory.footprint import Footprint
from projector.memory.moments import PassMoment, appearing_gradients, pass_moments
from projector.memory.optimizer_state import resident_state, stage_moments
from projector.memory.persistent import StageWeights, persistent_components, stage_weights
from projector.memory.stages import ChunkOperations, Footprints, Rerouted
from projector.memory.step import step_components
from projector.parallelism import Layout
from projector.projection import MemoryComponent


@dataclass(frozen=True, kw_only=True, slots=True)
class StageContent:
    """All of a stage's memory but what depends on its place in the pipeline."""

    weights: StageWeights
    """Its weights, counted."""
    footprints: tuple[Footprint, ...]
    """What a micro batch leaves in each chunk."""
    persistent: tuple[MemoryComponent, ...]
    """What is there at any time from the second iteration on."""
    late_bytes: int
    """Of it, what the first step makes."""
    moments: tuple[PassMoment, ...]
    """Moments of the passes that may be the peak, with weights and gradients that are there then alone."""
    gradients: tuple[MemoryComponent, ...]
    """Gradients that exist from backward to the optimizer step only."""
    step: tuple[MemoryComponent, ...]
    """What the optimizer step adds."""
    chunk_layers: tuple[int, ...]
    """Decoder layers of each chunk."""

    def layers_of(self, passes: Sequence[int]) -> int:
        """Layers that so many passes through each chunk run through."""
        return sum(count * layers for count, layers in zip(passes, self.chunk_layers, strict=True))


class StageContents:
    """Contents of the stages of one job; equal stages share one."""

    def __init__(  # noqa: PLR0913 - the job, where it runs, and how it differs from balanced routing
        self,
        job: TrainingJob,
        layout: Layout,
        shapes: Shapes,
        device: Device,
        *,
        unrouted: dict[int, StageContent] | None = None,
        others: Rerouted = MappingProxyType({}),
    ) -> None:
        """`shapes` are those with which the chunks were described; `others` take the place of parts of theirs.

        `unrouted` are contents by rank under another routing, which changes no weights; what is not there is added.
        """
        self._unrouted = {} if unrouted is None else unrouted
        self._job, self._layout, self._shapes, self._device = job, layout, shapes, device
        self._footprints = Footprints(job, shapes, others)
        self._known: dict[tuple[int, ...], StageContent] = {}

    def of(self, chunks: Sequence[ChunkOperations], rank: int = -1) -> StageContent:
        """The content of a stage of these chunks; its `rank` tells where it was found under another routing."""
        footprints = tuple([self._footprints.chunk(chunk) for chunk in chunks])
        key = tuple(map(id, footprints))
        known = self._known.get(key)
        if known is None:
            other = self._unrouted.get(rank)
            routed = other and replace(other, footprints=footprints, moments=self._moments(chunks, footprints))
            known = self._known[key] = routed or self._content(chunks, footprints)
        if rank >= 0:
            self._unrouted.setdefault(rank, known)
        return known

    def _moments(self, chunks: Sequence[ChunkOperations], footprints: tuple[Footprint, ...]) -> tuple[PassMoment, ...]:
        return pass_moments(chunks, footprints, self._footprints, self._job, self._layout)

    def _content(self, chunks: Sequence[ChunkOperations], footprints: tuple[Footprint, ...]) -> StageContent:
        job, layout = self._job, self._layout
        weights = stage_weights(chunks)
        gradients = appearing_gradients(chunks, job, layout)
        state = resident_state(weights.trained, stage_moments(chunks, job), job, layout)
        return StageContent(
            weights=weights,
            footprints=footprints,
            persistent=persistent_components(weights, job, layout, self._shapes, self._device, state=state),
            late_bytes=round(state.late_bytes),
            moments=self._moments(chunks, footprints),
            gradients=gradients,
            step=gradients + step_components(chunks, weights.trained, job, layout),
            chunk_layers=tuple(len(chunk.chunk.layer_ids) for chunk in chunks),
        )
