"""A pipeline stage on the caching allocator.

Ranks with other slices of the optimizer's buffers leave other holes, and what counts is the rank that reserves most:
several are played, as many as the effort allows.
"""

from projector.catalog import Device
from projector.job import Schedule, Sharding, TrainingJob
from projector.layers import recomputed_modules
from projector.layers.routing import routing_decides
from projector.layers.shapes import Shapes
from projector.memory.allocator.backward import record
from projector.memory.allocator.iterations import ITERATIONS, Passes, Peaks, play
from projector.memory.allocator.settings import allocator_of
from projector.memory.allocator.startup import parameters, startup
from projector.memory.allocator.tape import Tape, recomputed
from projector.memory.content import StageContents
from projector.memory.persistent import GRADIENTS, PLACEHOLDERS, STATE, WEIGHTS, placeholders
from projector.memory.stages import ChunkOperations, described_stages, recomputation_groups
from projector.operations import Operations
from projector.parallelism import Layout
from projector.schedule import order

SPARE_MICRO_BATCHES = 1
"""Micro batches beyond those that fill the pipeline: the steady phase repeats itself from there on."""
PLAYED = (WEIGHTS, GRADIENTS, STATE, PLACEHOLDERS)
"""Persistent components that startup and passes allocate tensor by tensor; others are there from the first pass on."""
MOST_RANKS = 8
"""Data-parallel ranks of a stage that are played at most."""


UNEVEN = (0.85, 0.95, 1.05, 1.15, 1.25)
"""Rows of a device's experts over the balanced share, in turn, where the router decides them. An estimate:
Megatron-LM's functional tests (d98e8a64) show 1.1 to 2.3 for the busiest device of the first steps; the mean is 1."""
UNEVEN_ITERATIONS = 3
"""Iterations played where passes differ, after which little is added."""


class Replays:
    """Replays of the stages of one job under one schedule."""

    def __init__(self, job: TrainingJob, layout: Layout, shapes: Shapes, device: Device, schedule: Schedule) -> None:
        """`shapes` are those of balanced routing."""
        self._job, self._layout, self._shapes = job, layout, shapes
        factors = UNEVEN if routing_decides(job, layout) else (1.0,)
        self._described = [described_stages(job, layout, routing_factor=factor) for factor in factors]
        self._iterations = UNEVEN_ITERATIONS if len(factors) > 1 else ITERATIONS
        self._contents = StageContents(job, layout, shapes, device)
        self._device = device
        self._modules = recomputed_modules(job.recompute)
        self._tapes: dict[int, tuple[Operations, Tape]] = {}
        group = layout.micro_batch_group
        chunks = layout.virtual_pipeline
        count = min(layout.run_micro_batches, group * chunks + (group if chunks > 1 else SPARE_MICRO_BATCHES))
        self._order = order(schedule, layout.pipeline, chunks, count, group)

    @property
    def splits_backward(self) -> bool:
        """Weight gradients are passes of their own."""
        return self._order.splits_backward

    def steps(self, stage: int) -> int:
        """Allocations and frees of one data-parallel rank of a stage, about."""
        tapes = [variants[0] for chunk in self._chunks(stage) for variants in chunk]
        lengths = sum(len(tape.forward) + len(tape.backward) for tape in tapes)
        return self._iterations * self._order.micro_batches * lengths

    def play(self, stage: int, *, ranks: int) -> Peaks:
        """The highest of up to `ranks` data-parallel ranks of a stage, evenly spread."""
        chunks = self._described[0][stage]
        content = self._contents.of(chunks)
        held = parameters(chunks, stacked_experts=self._job.software.stacked_experts)
        passes = self._passes(stage)
        caches = [part.size_bytes for part in content.persistent if part.name not in PLAYED]
        degree = 1 if self._layout.sharding is Sharding.NONE else self._layout.shard
        count = max(1, min(ranks, degree, MOST_RANKS))
        chosen = {round(number * (degree - 1) / max(1, count - 1)) for number in range(count)}
        peaks = [
            play(
                startup(held, self._job, self._layout, rank),
                passes,
                caches=caches,
                placeholders=placeholders(content.weights, self._job)[::-1],
                boundary_bytes=self._shapes.carried_bytes,
                allocator=allocator_of(self._job.software),
                iterations=self._iterations,
            )
            for rank in sorted(chosen)
        ]
        return max(peaks, key=lambda each: each.reserved_bytes)

    def _passes(self, stage: int) -> Passes:
        order = self._order
        last = order.pipeline * order.chunks - 1
        places = [order.virtual_stage(stage, number) for number in range(order.chunks)]
        return Passes(
            events=order.ranks[stage],
            chunks=self._chunks(stage),
            receives=[place > 0 for place in places],
            sends=[place < last for place in places],
        )

    def _chunks(self, stage: int) -> list[list[tuple[Tape, ...]]]:
        """Parts of the chunks of a stage, each in one variant or, where routing changes it, in several."""
        described = [[self._chunk(chunk) for chunk in stages[stage]] for stages in self._described]
        return [
            [tuple(dict.fromkeys(variants)) for variants in zip(*chunk, strict=True)]
            for chunk in zip(*described, strict=True)
        ]

    def _chunk(self, chunk: ChunkOperations) -> list[Tape]:
        tapes = [self._tape(chunk.embedding)] if chunk.embedding else []
        for layers, again in recomputation_groups(chunk, self._job.recompute):
            recorded = [self._tape(layer) for layer in layers]
            tapes += [recomputed(recorded)] if again else recorded
        return tapes + [self._tape(part) for part in (*chunk.predictions, chunk.output) if part]

    def _tape(self, part: Operations) -> Tape:
        known = self._tapes.get(id(part))
        if known is None:
            known = self._tapes[id(part)] = part, record(part, self._shapes, self._modules)
        return known[1]
