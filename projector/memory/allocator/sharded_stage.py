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
from projector.memory.persistent import GRADIENTS, PLACEHOLDERS, STATE, WEIGHTS
from projector.memory.stages import described_stages, recomputation_groups
from projector.operations import Operations
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
        self._tapes: dict[tuple[int, bool], tuple[Operations, Tape]] = {}
        self._layers = [
            Unit(weights=self._weights(layer), tape=self._layer(layer, again=again))
            for layers, again in recomputation_groups(self._chunk, job.recompute)
            for layer in layers
        ]

    def steps(self, stage: int) -> int:  # noqa: ARG002 - one stage
        """Allocations and frees of a replay, about."""
        count = min(MICRO_BATCHES, self._layout.micro_batches)
        tapes = [unit.tape for unit in self._layers]
        return ITERATIONS * count * sum(len(tape.forward) + len(tape.backward) + STEPS_PER_LAYER for tape in tapes)

    def play(self, stage: int, *, ranks: int) -> Peaks:  # noqa: ARG002 - one stage, and equal ranks
        """Play it: every rank has its share of every weight, so that all are alike."""
        job, precision = self._job, self._job.precision
        played = (WEIGHTS, GRADIENTS, STATE, PLACEHOLDERS)
        moments = (precision.first_moment_bytes, precision.second_moment_bytes)
        here = not job.optimizer.offload_shards
        resident = here * (1 - job.optimizer.offload_fraction)
        model = ShardedModel(
            first=self._unit(self._chunk.embedding),
            layers=tuple(self._layers),
            last=self._unit(self._chunk.output),
            widths=Widths(
                shard=here * precision.weight_bytes,
                gathered=precision.gathered_bytes,
                reduced=precision.reduced_bytes,
                gradient=here * precision.gradient_bytes,
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

    def _layer(self, layer: Operations, *, again: bool) -> Tape:
        """The tape of a layer, which may run `again` in backward."""
        known = self._tapes.get((id(layer), again))
        if known is None:
            known = self._tapes[id(layer), again] = layer, self._recorded(layer, again=again)
        return known[1]

    def _recorded(self, layer: Operations, *, again: bool) -> Tape:
        recompute = self._job.recompute
        tape = record(layer, self._shapes, recomputed_modules(recompute))
        if recompute.granularity is RecomputeGranularity.OPERATIONS:
            compiled = self._job.software.compiled_layers
            outputs = kept_outputs(layer, products=recompute.keeps_products, compiled=compiled)
            return checkpointed(tape, [size for pair in outputs for size in pair], self._shapes.carried_bytes)
        return checkpointed(tape, (), self._shapes.carried_bytes) if again else tape
