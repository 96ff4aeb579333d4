"""Which fully sharded jobs are replayed, and as what."""

from projector.catalog import Device
from projector.job import RecomputeGranularity, TrainingJob
from projector.layers import kept_outputs, recomputed_modules
from projector.layers.shapes import Shapes
from projector.memory.allocator.backward import record
from projector.memory.allocator.iterations import ITERATIONS, Peaks
from projector.memory.allocator.settings import allocator_of
from projector.memory.allocator.sharded import ShardedModel, ShardedWeight, Unit, Widths, checkpointed, play_sharded
from projector.memory.allocator.tape import Tape
from projector.memory.content import StageContents
from projector.memory.identity import Operations
from projector.memory.persistent import GRADIENTS, PLACEHOLDERS, STATE, WEIGHTS
from projector.memory.stages import described_stages, recomputation_groups
from projector.parallelism import Layout

MICRO_BATCHES = 2
"""Micro batches of an iteration that are played at most; later ones repeat the second."""
STEPS_PER_LAYER = 60
"""Allocations and frees around a layer's own: gathering and reduction, about."""


class ShardedReplays:
    """Replays of a job whose weights FSDP2 shards, without pipeline stages."""

    def __init__(self, job: TrainingJob, layout: Layout, shapes: Shapes, device: Device) -> None:
        """`shapes` are those of balanced routing."""
        self._job, self._layout, self._shapes = job, layout, shapes
        self._chunk = described_stages(job, layout)[0][0]
        self._content = StageContents(job, layout, shapes, device).of([self._chunk])
        self._tapes: dict[int, tuple[Operations, Tape]] = {}

    def steps(self, stage: int) -> int:  # noqa: ARG002 - one stage
        """Allocations and frees of a replay, about."""
        count = min(MICRO_BATCHES, self._layout.micro_batches)
        tapes = [self._layer(layer) for layer in self._chunk.layers]
        return ITERATIONS * count * sum(len(tape.forward) + len(tape.backward) + STEPS_PER_LAYER for tape in tapes)

    def play(self, stage: int, *, ranks: int) -> Peaks:  # noqa: ARG002 - one stage, and equal ranks
        """Play it: every rank has its share of every weight, so that all are alike."""
        job, precision = self._job, self._job.precision
        played = (WEIGHTS, GRADIENTS, STATE, PLACEHOLDERS)
        moments = (precision.first_moment_bytes, precision.second_moment_bytes)
        resident = 0.0 if job.optimizer.offload_shards else 1 - job.optimizer.offload_fraction
        model = ShardedModel(
            first=self._unit(self._chunk.embedding),
            layers=tuple(Unit(weights=self._weights(layer), tape=self._layer(layer)) for layer in self._chunk.layers),
            last=self._unit(self._chunk.output),
            widths=Widths(
                shard=precision.weight_bytes,
                gathered=precision.gathered_bytes,
                reduced=precision.reduced_bytes,
                gradient=precision.gradient_bytes,
                moments=tuple(resident * width for width in moments if width),
            ),
            micro_batches=min(MICRO_BATCHES, self._layout.micro_batches),
            reshards=job.parallelism.reshard_after_forward,
            unsummed=precision.local_gradient_bytes,
        )
        caches = [part.size_bytes for part in self._content.persistent if part.name not in played]
        return play_sharded(model, caches=caches, allocator=allocator_of(job.software))

    def _unit(self, part: Operations) -> Unit:
        return Unit(weights=self._weights(part), tape=record(part, self._shapes))

    def _weights(self, part: Operations) -> tuple[ShardedWeight, ...]:
        shares = {True: self._layout.expert_shard, False: self._layout.shard}
        return tuple(
            ShardedWeight(weight.elements, shares[weight.expert])
            for operation in part
            for weight in operation.weights
            if weight.trainable and not weight.shared
        )

    def _layer(self, layer: Operations) -> Tape:
        known = self._tapes.get(id(layer))
        if known is None:
            known = self._tapes[id(layer)] = layer, self._recorded(layer)
        return known[1]

    def _recorded(self, layer: Operations) -> Tape:
        recompute = self._job.recompute
        tape = record(layer, self._shapes, recomputed_modules(recompute))
        match recompute.granularity:
            case RecomputeGranularity.OPERATIONS:
                compiled = self._job.software.compiled_layers
                outputs = kept_outputs(layer, products=recompute.keeps_products, compiled=compiled)
                return checkpointed(tape, [size for pair in outputs for size in pair], self._shapes.residual_bytes)
            case RecomputeGranularity.FULL if all(again for _, again in recomputation_groups(self._chunk, recompute)):
                return checkpointed(tape, (), self._shapes.residual_bytes)
            case _:
                return tape
