"""The operations of every pipeline stage, by model chunk: what is described once and read by all of memory."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType

from projector.identity import remembered
from projector.job import DecoderLayer, Dialect, MixtureOfExperts, Recompute, RecomputeGranularity, TrainingJob
from projector.job.architecture import runs_of
from projector.layers import (
    kept_outputs,
    offloaded_names,
    recomputed_layers,
    recomputed_modules,
    uniform_group,
    with_offload,
)
from projector.layers.decoder import shaped_layer, shaped_prediction
from projector.layers.ends import shaped_embedding, shaped_output
from projector.layers.shapes import Shapes, shapes_of
from projector.memory.footprint import (
    Footprint,
    before_experts,
    beside_forward,
    joined,
    layer_footprint,
    recomputed,
    summed,
)
from projector.operations import Operations, Weight
from projector.parallelism import Chunk, Layout, Stage

RECOMPUTED = "recomputed layers"
"""Component of what is kept of layers that run again."""
Run = tuple[int, Operations]
"""A part and how many equal ones follow one another."""
Rerouted = Mapping[int, Operations]
"""What takes the place of parts under another routing, by the identity of the part that balanced routing makes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkOperations:
    """A model chunk, part by part in the order of a forward pass."""

    chunk: Chunk
    """Which chunk."""
    embedding: Operations
    """Token table; empty where the chunk has none."""
    layer_runs: tuple[Run, ...]
    """Decoder layers."""
    predictions: tuple[Operations, ...]
    """Multi-token-prediction layers, each with its pass through the output layer."""
    output: Operations
    """Final norm, output layer, loss; empty where the chunk has none."""
    runs: tuple[Run, ...] = field(init=False, repr=False, compare=False)
    """All parts in order."""
    content: tuple[tuple[int, int], ...] = field(init=False, repr=False, compare=False)
    """Equal for chunks of the same parts in the same order, as long as both live."""

    def __post_init__(self) -> None:
        """Put the parts in order."""
        before = ((1, self.embedding),) if self.embedding else ()
        behind = [(1, part) for part in (*self.predictions, self.output) if part]
        runs = (*before, *self.layer_runs, *behind)
        object.__setattr__(self, "runs", runs)
        object.__setattr__(self, "content", tuple([(count, id(part)) for count, part in runs]))

    @property
    def layers(self) -> tuple[Operations, ...]:
        """Decoder layers, one by one."""
        return tuple(part for count, part in self.layer_runs for _ in range(count))

    @property
    def parts(self) -> tuple[Operations, ...]:
        """All parts, one by one."""
        return tuple(part for count, part in self.runs for _ in range(count))

    def rerouted(self, others: "Rerouted") -> "ChunkOperations":
        """The chunk under another routing."""
        if not others:
            return self
        return replace(
            self,
            layer_runs=tuple((count, others.get(id(part), part)) for count, part in self.layer_runs),
            predictions=tuple(others.get(id(part), part) for part in self.predictions),
        )


@remembered
def distinct_parts(stage: Sequence[ChunkOperations]) -> Sequence[Run]:
    """Parts of a stage, each with the number of times that it is there."""
    found: dict[int, Run] = {}
    for chunk in stage:
        for count, part in chunk.runs:
            before = found.get(id(part))
            found[id(part)] = (count if before is None else before[0] + count, part)
    return list(found.values())


def _cut(runs: Sequence[tuple[int, Operations]], layer_ids: Sequence[int]) -> tuple[Run, ...]:
    """The layers of a chunk, which follow one another; `runs` are all layers, each with the first behind its run."""
    if not layer_ids:
        return ()
    at, behind = layer_ids[0], layer_ids[-1] + 1
    cut = []
    for end, part in runs[bisect_right(runs, at, key=itemgetter(0)) :]:
        cut.append((min(end, behind) - at, part))
        at = end
        if at >= behind:
            break
    return tuple(cut)


def described_stages(
    job: TrainingJob, layout: Layout, *, routing_factor: float = 1.0
) -> tuple[tuple[ChunkOperations, ...], ...]:
    """Describe every chunk of every stage; equal parts are one object, and so are those that no routing changes."""
    shapes = shapes_of(job, layout)
    runs = runs_of(job.model.layers)
    known = {key: shaped_layer(layer, shapes) for key, layer in {id(layer): layer for _, layer in runs}.items()}
    layers = [(end, known[id(layer)]) for end, layer in runs]
    others = rerouted(job, layout, shapes, routing_factor)
    return tuple(
        tuple(
            ChunkOperations(
                chunk=chunk,
                embedding=_embedding(job, chunk, stage, shapes),
                layer_runs=_cut(layers, chunk.layer_ids),
                predictions=_predictions(job, chunk, stage, shapes),
                output=shaped_output(shapes, tied_elsewhere=layout.tied_across_stages) if chunk.output else (),
            ).rerouted(others)
            for chunk in stage.chunks
        )
        for stage in layout.stages
    )


def rerouted(job: TrainingJob, layout: Layout, balanced: Shapes, routing_factor: float) -> Rerouted:
    """Parts that are others where the experts of a device receive more rows than the balanced share."""
    if routing_factor == 1:
        return {}
    routed = shapes_of(job, layout, routing_factor=routing_factor)
    layers = {id(layer): layer for _, layer in runs_of(job.model.layers) if _routes(layer)}.values()
    found = {id(shaped_layer(layer, balanced)): shaped_layer(layer, routed) for layer in layers}
    last = job.model.layers[-1]
    if job.model.multi_token_prediction_layers and _routes(last):
        before, after = shaped_prediction(last, balanced), shaped_prediction(last, routed)
        found |= {id(before): after, id(_with_own_output(before)): _with_own_output(after)}
    return found


def _routes(layer: DecoderLayer) -> bool:
    return isinstance(layer.feed_forward, MixtureOfExperts)


def _holds_output(stage: Stage) -> bool:
    return any(chunk.output for chunk in stage.chunks)


def _embedding(job: TrainingJob, chunk: Chunk, stage: Stage, shapes: Shapes) -> Operations:
    """The token table. A prediction layer looks up the next token: a rank without the table holds a copy for it.

    Megatron-LM gpt_model.py builds the embedding where `pre_process or mtp_process`. With tied embeddings the output
    layer's table serves.
    """
    if chunk.embedding:
        return shaped_embedding(shapes)
    if not chunk.mtp_layers:
        return ()
    served = any(each.embedding for each in stage.chunks) or (job.model.tied_embeddings and _holds_output(stage))
    return () if served else _copy_of(shaped_embedding(shapes))


def _predictions(job: TrainingJob, chunk: Chunk, stage: Stage, shapes: Shapes) -> tuple[Operations, ...]:
    """Prediction layers; the first holds a copy of the output layer where its rank has none (gpt_model.py)."""
    if not chunk.mtp_layers:
        return ()
    each = shaped_prediction(job.model.layers[-1], shapes)
    served = _holds_output(stage) or job.model.tied_embeddings
    return (each if served else _with_own_output(each), *(each,) * (chunk.mtp_layers - 1))


def _with_own_output(prediction: Operations) -> Operations:
    return _copy_of(prediction, "output_layer")


@remembered
def _copy_of(operations: Operations, only: str | None = None) -> Operations:
    """Operations of which all, or the `only` one, hold copies of tensors that the model already counts elsewhere."""
    return tuple(
        replace(operation, weights=tuple(_copied(weight) for weight in operation.weights))
        if only in (None, operation.name)
        else operation
        for operation in operations
    )


def _copied(weight: Weight) -> Weight:
    return replace(weight, full_copies=0, padding_elements=0, shared=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class OrderedFootprints:
    """Footprints of a chunk part by part."""

    first: Footprint
    """Token table."""
    layers: tuple[tuple[int, Footprint], ...]
    """Decoder layers, each with how many equal ones follow one another."""
    last: Footprint
    """Everything behind them."""


_offloaded = remembered(with_offload)


def recomputation_groups(described: ChunkOperations, recompute: Recompute) -> Iterator[tuple[list[Operations], bool]]:
    """Layers of a chunk in order: those that run again together, with one kept input, and those that do not."""
    again = recomputed_layers(recompute, described.chunk.layer_ids)
    repeated = [index in again for index in described.chunk.layer_ids]
    return _groups(described.layers, repeated, uniform_group(recompute))


def _groups(
    layers: Sequence[Operations], repeated: Sequence[bool], size: int
) -> Iterator[tuple[list[Operations], bool]]:
    group: list[Operations] = []
    for operations, again in zip(layers, repeated, strict=True):
        if group and (not again or len(group) == size):
            yield group, True
            group = []
        if again:
            group.append(operations)
        else:
            yield [operations], False
    if group:
        yield group, True


class Footprints:
    """Footprints of the chunks of one job; equal layers, which share one tuple of operations, are replayed once."""

    def __init__(self, job: TrainingJob, shapes: Shapes, others: Rerouted = MappingProxyType({})) -> None:
        """`shapes` are those with which the chunks were described; `others` take the place of parts of theirs."""
        self._others = others
        self._recompute = job.recompute
        self._recomputes_layers = job.recompute.granularity is RecomputeGranularity.FULL
        self._compiled = job.software.compiled_layers
        self._modules = recomputed_modules(job.recompute)
        self._combines = job.combines_passes
        self._keeps_graph = job.software.dialect is Dialect.TORCHTITAN
        self._offload = job.offload
        self._group = uniform_group(job.recompute)
        self._input_bytes = shapes.carried_bytes
        self._chunks: dict[tuple[object, ...], tuple[ChunkOperations, Footprint]] = {}
        self._groups: dict[tuple[int, ...], Footprint] = {}
        self._checkpointed: dict[int, Footprint] = {}

    def chunk(self, described: ChunkOperations) -> Footprint:
        """What one micro batch keeps in the chunk under the job's recomputation, and the peaks of its passes."""
        repeated = self._repeated(described.chunk.layer_ids)
        key = described.content, repeated
        known = self._chunks.get(key)
        if known is None:
            known = self._chunks[key] = described, self._footprint(described.rerouted(self._others), repeated)
        return known[1]

    def _repeated(self, layer_ids: Sequence[int]) -> tuple[bool, ...]:
        """Which layers full recomputation does again; empty for none."""
        again = recomputed_layers(self._recompute, layer_ids) if self._recomputes_layers else ()
        return tuple([index in again for index in layer_ids]) if again else ()

    def in_order(self, described: ChunkOperations) -> OrderedFootprints:
        """Footprints of the chunk's parts under the job's recomputation."""
        repeated = self._repeated(described.chunk.layer_ids)
        described = described.rerouted(self._others)
        behind = [(1, self.part(operations)) for operations in (*described.predictions, described.output)]
        return OrderedFootprints(
            first=self.part(described.embedding),
            layers=tuple(self._layers(described, repeated)),
            last=joined(behind),
        )

    def _footprint(self, described: ChunkOperations, repeated: tuple[bool, ...]) -> Footprint:
        before = [(1, self.part(described.embedding))]
        behind = [(1, self.part(operations)) for operations in (*described.predictions, described.output)]
        layers = self._layers(described, repeated)
        whole = joined([*before, *layers, *behind])
        if not (self._combines and layers):
            return whole
        distinct = {id(operations): operations for _, operations in described.layer_runs}.values()
        attentions = [self.part(before_experts(operations)) for operations in distinct]
        inside = joined([*before, *layers])
        return beside_forward(whole, inside, [self.part(operations) for operations in distinct], attentions)

    def _layers(self, described: ChunkOperations, repeated: tuple[bool, ...]) -> list[tuple[int, Footprint]]:
        """Footprints of the layers, each with how many equal ones follow one another."""
        if self._recompute.granularity is RecomputeGranularity.OPERATIONS:
            return [(count, self._by_operation(operations)) for count, operations in described.layer_runs]
        if not repeated:
            return [(count, self.part(operations)) for count, operations in described.layer_runs]
        if self._group == 1:
            return list(self._one_by_one(described, repeated))
        parts: list[Footprint] = []
        for layers, again in _groups(described.layers, repeated, self._group):
            group = [self.part(operations) for operations in layers]
            parts += [self._again(group)] if again else group
        return [(len(run), run[0]) for run in (list(equal) for _, equal in groupby(parts, key=id))]

    def _one_by_one(self, described: ChunkOperations, repeated: tuple[bool, ...]) -> Iterator[tuple[int, Footprint]]:
        """The same where no two layers share what they keep."""
        at = 0
        for count, operations in described.layer_runs:
            part = self.part(operations)
            for again, equal in groupby(repeated[at : at + count]):
                yield len(list(equal)), self._again([part]) if again else part
            at += count

    def part(self, operations: Operations) -> Footprint:
        """What one micro batch keeps in a part that does not run again as a whole."""
        if not self._offload.modules:
            return layer_footprint(operations, self._modules, keeps_graph=self._keeps_graph)
        marked = _offloaded(operations, self._offload, self._modules)
        modules = self._modules | offloaded_names(self._offload)
        return layer_footprint(marked, modules, keeps_graph=self._keeps_graph)

    def layer(self, operations: Operations, *, again: bool) -> Mapping[str, int]:
        """What one micro batch keeps of a layer, by component; `again` where full recomputation covers it."""
        if self._recompute.granularity is RecomputeGranularity.OPERATIONS:
            return self._by_operation(operations).kept
        return {RECOMPUTED: self._input_bytes // self._group} if again else self.part(operations).kept

    def _by_operation(self, operations: Operations) -> Footprint:
        """A layer of which only the outputs of costly operations are kept."""
        whole = self.part(operations)
        known = self._checkpointed.get(id(whole))
        if known is None:
            outputs = kept_outputs(operations, products=self._recompute.keeps_products, compiled=self._compiled)
            pairs = zip(operations, outputs, strict=True)
            kept = summed({operation.component: sum(sizes)} for operation, sizes in pairs if any(sizes))
            known = recomputed(whole, self._input_bytes, RECOMPUTED, kept, keeps_graph=self._keeps_graph)
            self._checkpointed[id(whole)] = known
        return known

    def _again(self, group: Sequence[Footprint]) -> Footprint:
        """The layers of a recomputation group as one footprint."""
        key = tuple(map(id, group))
        if key not in self._groups:
            whole = joined([(1, part) for part in group])
            self._groups[key] = recomputed(whole, self._input_bytes, RECOMPUTED, keeps_graph=self._keeps_graph)
        return self._groups[key]
