"""What one micro batch keeps for backward in one layer of each kind, under the job's recomputation."""

from collections.abc import Iterator, Mapping

from projector.job import RecomputeGranularity, TrainingJob
from projector.layers import recomputed_layers
from projector.layers.shapes import shapes_of
from projector.memory.parameters import PREDICTION, layer_branch
from projector.memory.stages import ChunkOperations, Footprints, described_stages
from projector.parallelism import Layout
from projector.projection import LayerActivations, SavedActivations


def saved_activations(job: TrainingJob, layout: Layout) -> tuple[LayerActivations, ...]:
    """One entry for each kind of layer that keeps something else, in the order of a forward pass.

    Experts receive the balanced share of rows. Layers that are recomputed in groups share one kept input, so that each
    keeps its part of it.
    """
    footprints = Footprints(job, shapes_of(job, layout))
    counts: dict[tuple[str, str, tuple[SavedActivations, ...]], int] = {}
    for stage in described_stages(job, layout):
        for chunk in stage:
            for name, recompute, kept in _parts(chunk, job, footprints):
                key = name, recompute, kept
                counts[key] = counts.get(key, 0) + 1
    return tuple(
        LayerActivations(name=name, count=count, recompute=recompute, components=components)
        for (name, recompute, components), count in counts.items()
        if components
    )


def _parts(
    chunk: ChunkOperations, job: TrainingJob, footprints: Footprints
) -> Iterator[tuple[str, str, tuple[SavedActivations, ...]]]:
    """Name, mode of recomputation and saved bytes of every part of a chunk."""
    granularity = job.recompute.granularity
    again = recomputed_layers(job.recompute, chunk.chunk.layer_ids)
    selective = granularity is RecomputeGranularity.SELECTIVE
    ends = granularity if selective else RecomputeGranularity.NONE
    yield "embedding", str(ends), _kept(footprints.part(chunk.embedding).kept)
    for index, operations in zip(chunk.chunk.layer_ids, chunk.layers, strict=True):
        full = granularity is RecomputeGranularity.FULL
        mode = RecomputeGranularity.NONE if full and index not in again else granularity
        yield layer_branch(operations), str(mode), _kept(footprints.layer(operations, again=index in again))
    for operations in chunk.predictions:
        yield PREDICTION, str(ends), _kept(footprints.part(operations).kept)
    yield "output", str(ends), _kept(footprints.part(chunk.output).kept)


def _kept(sizes: Mapping[str, int]) -> tuple[SavedActivations, ...]:
    return tuple(SavedActivations(name=name, size_bytes=size) for name, size in sizes.items() if size)
