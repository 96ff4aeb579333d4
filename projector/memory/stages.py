"""The operations of every pipeline stage, by model chunk: what is described once and read by all of memory."""

from dataclasses import dataclass, replace

from projector.job import RecomputeGranularity, TrainingJob
from projector.layers import (
    embedding_operations,
    kept_outputs,
    output_operations,
    recomputed_layers,
    recomputed_modules,
    uniform_group,
)
from projector.layers.decoder import shaped_layer, shaped_prediction
from projector.layers.shapes import Shapes, shapes_of
from projector.memory.footprint import Footprint, joined, layer_footprint, recomputed, summed
from projector.operations import Operation, Weight
from projector.parallelism import Chunk, Layout, Stage

Operations = tuple[Operation, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkOperations:
    """A model chunk, part by part in the order of a forward pass."""

    chunk: Chunk
    """Which chunk."""
    embedding: Operations
    """Token table; empty where the chunk has none."""
    layers: tuple[Operations, ...]
    """Decoder layers."""
    predictions: tuple[Operations, ...]
    """Multi-token-prediction layers, each with its pass through the output layer."""
    output: Operations
    """Final norm, output layer, loss; empty where the chunk has none."""

    @property
    def parts(self) -> tuple[Operations, ...]:
        """All parts in order."""
        return tuple(part for part in (self.embedding, *self.layers, *self.predictions, self.output) if part)


def described_stages(
    job: TrainingJob, layout: Layout, *, routing_factor: float = 1.0
) -> tuple[tuple[ChunkOperations, ...], ...]:
    """Describe every chunk of every stage."""
    shapes = shapes_of(job, layout, routing_factor=routing_factor)
    return tuple(
        tuple(_chunk_operations(job, layout, chunk, stage, shapes) for chunk in stage.chunks) for stage in layout.stages
    )


def _chunk_operations(job: TrainingJob, layout: Layout, chunk: Chunk, stage: Stage, shapes: Shapes) -> ChunkOperations:
    return ChunkOperations(
        chunk=chunk,
        embedding=embedding_operations(job, layout) if chunk.embedding else _lookup_copy(job, layout, chunk, stage),
        layers=tuple(shaped_layer(job.model.layers[index], shapes) for index in chunk.layer_ids),
        predictions=_predictions(job, chunk, stage, shapes),
        output=output_operations(job, layout) if chunk.output else (),
    )


def _holds_output(stage: Stage) -> bool:
    return any(chunk.output for chunk in stage.chunks)


def _lookup_copy(job: TrainingJob, layout: Layout, chunk: Chunk, stage: Stage) -> Operations:
    """A prediction layer looks up the next token: a rank without the token table holds a copy for it.

    Megatron-LM gpt_model.py builds the embedding where `pre_process or mtp_process`. With tied embeddings the output
    layer's table serves.
    """
    served = any(each.embedding for each in stage.chunks) or (job.model.tied_embeddings and _holds_output(stage))
    if not chunk.mtp_layers or served:
        return ()
    return tuple(
        replace(operation, weights=tuple(_copied(weight) for weight in operation.weights))
        for operation in embedding_operations(job, layout)
    )


def _copied(weight: Weight) -> Weight:
    """A tensor that the model already counts elsewhere, held here too."""
    return replace(weight, full_copies=0, padding_elements=0, shared=False)


def _predictions(job: TrainingJob, chunk: Chunk, stage: Stage, shapes: Shapes) -> tuple[Operations, ...]:
    """Prediction layers; the first holds a copy of the output layer where its rank has none (gpt_model.py)."""
    if not chunk.mtp_layers:
        return ()
    each = shaped_prediction(job.model.layers[-1], shapes)
    if _holds_output(stage) or job.model.tied_embeddings:
        return (each,) * chunk.mtp_layers
    first = tuple(
        replace(operation, weights=tuple(_copied(weight) for weight in operation.weights))
        if operation.name == "output_layer"
        else operation
        for operation in each
    )
    return (first, *(each,) * (chunk.mtp_layers - 1))


class Footprints:
    """Footprints of the chunks of one job; equal layers, which share one tuple of operations, are replayed once."""

    def __init__(self, job: TrainingJob, shapes: Shapes) -> None:
        """`shapes` are those with which the chunks were described."""
        self._recompute = job.recompute
        self._compiled = job.software.compiled_layers
        self._modules = recomputed_modules(job.recompute)
        self._group = uniform_group(job.recompute)
        self._input_bytes = shapes.residual_bytes
        self._known: dict[int, tuple[Operations, Footprint]] = {}

    def chunk(self, described: ChunkOperations) -> Footprint:
        """What one micro batch keeps in the chunk under the job's recomputation, and the peaks of its passes."""
        if self._recompute.granularity is RecomputeGranularity.OPERATIONS:
            ends = [self._part(operations) for operations in (*described.predictions, described.output)]
            layers = [self._by_operation(operations) for operations in described.layers]
            return joined([self._part(described.embedding), *layers, *ends])
        again = recomputed_layers(self._recompute, described.chunk.layer_ids)
        parts = [self._part(described.embedding)]
        group: list[Footprint] = []
        for index, operations in zip(described.chunk.layer_ids, described.layers, strict=True):
            if index not in again:
                parts += [*self._closed(group), self._part(operations)]
                group = []
                continue
            group.append(self._part(operations))
            if len(group) == self._group:
                parts += self._closed(group)
                group = []
        parts += self._closed(group)
        parts += [self._part(operations) for operations in (*described.predictions, described.output)]
        return joined(parts)

    def _part(self, operations: Operations) -> Footprint:
        known = self._known.get(id(operations))
        if known is None:
            known = operations, layer_footprint(operations, self._modules)
            self._known[id(operations)] = known
        return known[1]

    def _by_operation(self, operations: Operations) -> Footprint:
        """A layer of which only the outputs of costly operations are kept."""
        outputs = kept_outputs(operations, products=self._recompute.keeps_products, compiled=self._compiled)
        pairs = zip(operations, outputs, strict=True)
        kept = summed({operation.component: sum(sizes)} for operation, sizes in pairs if any(sizes))
        return recomputed(self._part(operations), self._input_bytes, "recomputed layers", kept)

    def _closed(self, group: list[Footprint]) -> list[Footprint]:
        """The layers of a recomputation group as one footprint; nothing for an empty group."""
        return [recomputed(joined(group), self._input_bytes, "recomputed layers")] if group else []
