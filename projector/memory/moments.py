"""Named moments of forward and backward that may be the peak of a stage, and what sharded training adds to each.

FSDP of PyTorch has no sharded gradients when an iteration begins: the training loop gave them up, and they appear in
backward, layer by layer, and live until the step. Whole weights come and go. So the batch decides what is highest: the
loss, with the root group and the last layer whole; a layer's backward, with the next one gathered ahead, the whole
gradient of the output layer and two inputs of reduction; or the reduction of the root group, when activations are gone.

Source: torch 2.6 torch/distributed/fsdp/_fully_shard (`_fsdp_param_group.py`, `_fsdp_collectives.py`). With pipeline
stages weights and gradients stay whole from the first backward pass to the end of the schedule, where all groups are
reduced one after the other (torch/distributed/pipelining/stage.py `backward_maybe_with_nosync`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from projector.job import TrainingJob
from projector.memory.footprint import Footprint, PassPeak, joined
from projector.memory.gathered import (
    GATHERED,
    REDUCE_INPUTS,
    UNREDUCED,
    UNSUMMED,
    elements,
    gathered_components,
    gradients_appear,
    local_gradients,
    shard_elements,
)
from projector.memory.persistent import GRADIENTS
from projector.memory.stages import ChunkOperations, Footprints
from projector.operations import Operations
from projector.parallelism import Layout
from projector.projection import MemoryComponent, MemoryLevel

LAYER_REDUCTION, ROOT_REDUCTION = "reduction of a layer", "reduction of the root group"
"""Moments without an operation of their own."""
NOTHING = PassPeak(size_bytes=-1)
"""Lower than any pass: the other one is meant."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PassMoment:
    """Moments of the passes that share what is there beside activations."""

    footprints: tuple[Footprint, ...]
    """What a micro batch leaves in each chunk, and how high its passes rise at these moments."""
    parts: tuple[MemoryComponent, ...]
    """What is there beside activations and what is persistent."""


def pass_moments(
    chunks: Sequence[ChunkOperations],
    footprints: tuple[Footprint, ...],
    known: Footprints,
    job: TrainingJob,
    layout: Layout,
) -> tuple[PassMoment, ...]:
    """Moments of a stage; one where only activations tell them apart."""
    if not gradients_appear(job, layout):
        return (PassMoment(footprints=footprints, parts=gathered_components(chunks, job, layout)),)
    if layout.pipeline > 1:
        return _staged(chunks, footprints, job, layout)
    sharded = _Sharded(chunks[0], footprints[0], known, job, layout)
    return tuple(sharded.moments())


def _staged(
    chunks: Sequence[ChunkOperations], footprints: tuple[Footprint, ...], job: TrainingJob, layout: Layout
) -> tuple[PassMoment, ...]:
    """Moments of a pipeline stage: its passes, and the reduction behind them, which takes one group after the other.

    Gradients are added up whole, in the type of reduction, until the last micro batch of the run; those of the running
    pass are beside them (`to_accumulated_grad_if_needed` of torch's _fsdp_param.py).
    """
    gathered, reduced = job.precision.gathered_bytes, job.precision.reduced_bytes
    parts = [run for chunk in chunks for run in chunk.runs]
    trained = [elements(part, trained=True) for _, part in parts]
    sizes = {part.name: part.size_bytes for part in gathered_components(chunks, job, layout)}
    waiting = {
        GATHERED: sizes.get(GATHERED, 0),
        UNSUMMED: reduced * sum(count * each for (count, _), each in zip(parts, trained, strict=True)),
    }
    earlier = layout.micro_batches > layout.run_micro_batches
    shards = sum(part.size_bytes for part in appearing_gradients(chunks, job, layout)) if earlier else 0
    groups = sorted((each for (count, _), each in zip(parts, trained, strict=True) for _ in range(count)), reverse=True)
    ends = sum(elements(chunk.output, trained=True) for chunk in chunks)
    layer = max((elements(part, trained=True) for chunk in chunks for _, part in chunk.layer_runs), default=0)
    running = waiting | {UNREDUCED: gathered * (ends + layer), GRADIENTS: shards}
    ending = waiting | {UNREDUCED: reduced * sum(groups[:REDUCE_INPUTS]), GRADIENTS: shards}
    reduction = PassPeak(operation=LAYER_REDUCTION)
    empty = tuple(
        replace(each, saved=0, shares=(), waiting=(), output_gradients=(), forward=NOTHING, backward=reduction)
        for each in footprints
    )
    return (
        PassMoment(footprints=footprints, parts=_components(running)),
        PassMoment(footprints=empty, parts=_components(ending)),
    )


def appearing_gradients(
    chunks: Sequence[ChunkOperations], job: TrainingJob, layout: Layout
) -> tuple[MemoryComponent, ...]:
    """Shards of all gradients, as the optimizer step finds them, where they are not persistent."""
    if not gradients_appear(job, layout):
        return ()
    runs = [run for chunk in chunks for run in chunk.runs]
    return _components({GRADIENTS: sum(count * _shard_bytes(part, job, layout) for count, part in runs)})


def given_up(appearing: Sequence[MemoryComponent], there: Sequence[MemoryComponent]) -> tuple[MemoryComponent, ...]:
    """What stays reserved of gradients that are not there at the peak, in the pool of the stream that reduces.

    `appearing` is what the optimizer step adds, `there` what is allocated at the peak.
    """
    total, alive = (sum(part.size_bytes for part in parts if part.name == GRADIENTS) for parts in (appearing, there))
    missing = max(0, total - alive)
    return (MemoryComponent(name=GRADIENTS, level=MemoryLevel.RESERVED, size_bytes=missing),) if missing else ()


def pooled_gradients(parts: Sequence[MemoryComponent]) -> int:
    """Bytes of gradients that are reserved and not allocated."""
    return sum(part.size_bytes for part in parts if part.name == GRADIENTS and part.level is MemoryLevel.RESERVED)


def _shard_bytes(part: Operations, job: TrainingJob, layout: Layout) -> float:
    """Bytes of a part's sharded gradients on the device."""
    if job.optimizer.offload_gradients or job.optimizer.offload_shards:
        return 0.0
    return job.precision.gradient_bytes * shard_elements(part, ranks=layout.shard, expert_ranks=layout.expert_shard)


def _components(sizes: Mapping[str, float]) -> tuple[MemoryComponent, ...]:
    return tuple(
        MemoryComponent(name=name, level=MemoryLevel.ALLOCATED, size_bytes=round(size))
        for name, size in sizes.items()
        if size
    )


class _Sharded:
    """Moments of training without pipeline stages."""

    def __init__(
        self, chunk: ChunkOperations, whole: Footprint, known: Footprints, job: TrainingJob, layout: Layout
    ) -> None:
        self._whole, self._parts = whole, known.in_order(chunk)
        self._gathered_bytes, self._reduced_bytes = job.precision.gathered_bytes, job.precision.reduced_bytes
        self._local_bytes = job.precision.local_gradient_bytes
        ends = (chunk.embedding, *chunk.predictions, chunk.output)
        layers = chunk.layers
        runs = chunk.layer_runs
        self._sizes = [size for count, layer in runs for size in [elements(layer)] * count]
        self._trained = [size for count, layer in runs for size in [elements(layer, trained=True)] * count]
        self._root = sum(map(elements, ends))
        self._table, *heads = (elements(part, trained=True) for part in ends)
        self._heads = sum(heads)
        self._reshards = job.parallelism.reshard_after_forward
        self._local = local_gradients([chunk], job, layout)
        shards = {id(part): _shard_bytes(part, job, layout) for _, part in chunk.runs}
        self._shards = [shards[id(layer)] for layer in layers]
        self._all_shards = sum(shards[id(part)] for part in chunk.parts)
        self._sums_up = layout.micro_batches > 1 and not self._local

    def moments(self) -> Iterator[PassMoment]:
        """All that may be the highest."""
        last = len(self._sizes) - 1
        flat = max(self._sizes, default=0)
        yield self._moment(self._before(last, ahead=flat), forward=self._whole.forward)
        if self._local:
            yield self._moment(self._before(last, ahead=flat), backward=self._through(last).backward)
        yield self._moment(self._before(last), backward=self._loss())
        for index in self._candidates():
            through, before = self._through(index), self._through(index - 1)
            yield self._moment(self._behind(index, reduces=False), backward=through.backward)
            reduction = PassPeak(size_bytes=before.saved, shares=before.shares, operation=LAYER_REDUCTION)
            yield self._moment(self._behind(index, reduces=True), backward=reduction)
        yield self._moment(self._at_root(), backward=PassPeak(operation=ROOT_REDUCTION))

    def _moment(
        self, sizes: Mapping[str, float], *, forward: PassPeak = NOTHING, backward: PassPeak = NOTHING
    ) -> PassMoment:
        footprint = replace(self._whole, forward=forward, backward=backward)
        return PassMoment(footprints=(footprint,), parts=_components(sizes))

    def _before(self, last: int, *, ahead: int = 0) -> dict[str, float]:
        """Before layers run backward; a layer may lie flat `ahead` of its use, or after it."""
        return {
            GATHERED: self._gathered_bytes * (self._root + self._kept(last) + ahead),
            UNSUMMED: self._local,
            GRADIENTS: self._all_shards if self._sums_up else 0,
        }

    def _behind(self, index: int, *, reduces: bool) -> dict[str, float]:
        """While a layer runs backward, with those behind it in reduction, or while it `reduces` its own gradient."""
        done = index if reduces else index + 1
        own = self._trained[index] if reduces else 0
        inputs = sum(self._trained[done : done + REDUCE_INPUTS])
        ahead = self._sizes[index - 1] if index and self._reshards else 0
        return {
            GATHERED: self._gathered_bytes * (self._root + self._kept(index) + ahead),
            UNSUMMED: self._unsummed(done),
            UNREDUCED: self._reduced_bytes * inputs + self._whole_gradients(self._heads + own),
            GRADIENTS: self._shards_from(done, running=self._shards[index] if reduces else 0),
        }

    def _at_root(self) -> dict[str, float]:
        """Gradients of the root group, and its input of reduction beside that of the first layer."""
        trained = self._table + self._heads
        return {
            GATHERED: self._gathered_bytes * self._root,
            UNREDUCED: self._reduced_bytes * (trained + sum(self._trained[:1])) + self._whole_gradients(trained),
            UNSUMMED: self._unsummed(0),
            GRADIENTS: self._all_shards + (self._all_shards - sum(self._shards) if self._sums_up else 0),
        }

    def _whole_gradients(self, count: int) -> int:
        """Bytes of gradients that are whole before their reduction, unless they wait among all others."""
        return 0 if self._local else self._gathered_bytes * count

    def _unsummed(self, done: int) -> int:
        """What waits for its reduction when layers from `done` on have theirs."""
        return max(0, self._local - self._local_bytes * sum(self._trained[done:])) if self._local else 0

    def _shards_from(self, done: int, *, running: float) -> float:
        """Sharded gradients; of later micro batches they are added to those that are there, the `running` ones last."""
        return self._all_shards + running if self._sums_up else sum(self._shards[done:])

    def _candidates(self) -> list[int]:
        """Of a run of equal layers the last ones stand highest in activations, and the first has most gradients."""
        found: set[int] = set()
        start = 0
        for count, _ in self._parts.layers:
            end = start + count
            found |= {start, *range(max(start, end - 1 - REDUCE_INPUTS), end)}
            start = end
        return sorted(found, reverse=True)

    def _through(self, index: int) -> Footprint:
        """Everything from the token table to a layer."""
        left = index + 1
        runs = [(1, self._parts.first)]
        for count, layer in self._parts.layers:
            if left > 0:
                runs.append((min(count, left), layer))
            left -= count
        return joined(runs)

    def _kept(self, index: int) -> int:
        """Elements of layers that are whole when backward reaches one: it alone, or all from the first."""
        return sum(self._sizes[index : index + 1] if self._reshards else self._sizes[: index + 1])

    def _loss(self) -> PassPeak:
        """The highest moment of the end of the model in backward, with all that layers keep."""
        before, end = self._through(len(self._sizes) - 1), self._parts.last.backward
        size = before.saved + end.size_bytes
        return PassPeak(size_bytes=size, shares=before.shares + end.shares, operation=end.operation)
