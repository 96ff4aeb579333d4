"""What Megatron-LM allocates before the first iteration, and what the first optimizer step adds.

In order (Megatron-LM 23e00ed0, param_and_grad_buffer.py and distrib_optimizer.py): weights one by one as layers are
built; one buffer for all weights and one for all main gradients, of dense parameters and of experts apart; the single
weights are given up, and what they leave free is where activations and optimizer state settle; main weights, each a
16-bit clone first. Parameters lie in buffers in reverse order, and a data-parallel rank owns one slice of each buffer:
ranks with other slices end with other holes. Optimizer groups with weight decay come before those without.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import lcm, prod

from projector.job import Sharding, TrainingJob
from projector.memory.allocator.caching import CachingAllocator
from projector.memory.stages import ChunkOperations
from projector.operations import Weight
from projector.parallelism import Layout

ALIGNED_ELEMENTS = 64
"""Parameters start at multiples of this many elements of a buffer (Megatron-LM param_and_grad_buffer.py)."""
FP32_BYTES = 4
"""Bytes of an element of the copies that an optimizer step makes."""
BUCKET_ELEMENTS = 128
"""Buckets end at multiples of this and of the ranks that share them (the same)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """A tensor that is trained."""

    elements: int
    """Its size on this device."""
    decays: bool
    """Weight decay acts on it: it has more than one dimension."""
    expert: bool
    """It is replicated over the expert-data group."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Startup:
    """What stays from before the first iteration to the end, and what its step adds; bytes in order."""

    weights: tuple[int, ...]
    """Single weights, given up once buffers hold them."""
    buffers: tuple[int, ...]
    """Buffers of weights and gradients."""
    masters: tuple[tuple[int, int], ...]
    """Main weights, each with its clone in the weights' format, which is given up at once."""
    moments: tuple[int, ...]
    """What the first step makes."""
    copies: tuple[tuple[int, ...], ...] = ()
    """What every step makes and gives up again, of dense weights and of experts, which step one after the other."""

    def play(self, allocator: CachingAllocator) -> None:
        """Allocate what the framework does before the first iteration."""
        single = [allocator.allocate(size) for size in self.weights]
        for size in self.buffers:
            allocator.allocate(size)
        for block in single:
            allocator.free(block)
        for clone_bytes, size in self.masters:
            clone = allocator.allocate(clone_bytes)
            allocator.allocate(size)
            allocator.free(clone)

    def step(self, allocator: CachingAllocator) -> None:
        """Allocate what the first optimizer step makes."""
        for size in self.moments:
            allocator.allocate(size)
        self.repeat(allocator)

    def repeat(self, allocator: CachingAllocator) -> None:
        """Allocate and give up what every optimizer step makes on the way."""
        for group in self.copies:
            for block in [allocator.allocate(size) for size in group]:
                allocator.free(block)


def parameters(stage: Sequence[ChunkOperations], *, stacked_experts: bool = False) -> tuple[Parameter, ...]:
    """Trained tensors of a stage in the order in which the model is built.

    `stacked_experts` are one tensor per matrix, which no hole of a single expert's size can hold.
    """
    found: list[Parameter] = []
    for weight in _trained(stage):
        together = weight.copies if stacked_experts and weight.expert else 1
        tensor = Parameter(elements=together * prod(weight.shape), decays=len(weight.shape) > 1, expert=weight.expert)
        found += [tensor] * (weight.copies // together)
    return tuple(found)


def _trained(stage: Sequence[ChunkOperations]) -> Iterator[Weight]:
    for chunk in stage:
        for part in chunk.parts:
            for operation in part:
                for weight in operation.weights:
                    if weight.trainable and not weight.frozen and not weight.shared:
                        yield weight


def startup(held: Sequence[Parameter], job: TrainingJob, layout: Layout, rank: int) -> Startup:
    """Startup of data-parallel `rank` of a stage that trains these parameters."""
    precision = job.precision
    buffers: list[int] = []
    owned: list[tuple[Parameter, int]] = []
    for expert in (False, True):
        own = [parameter for parameter in reversed(held) if parameter.expert is expert]
        if not own:
            continue
        ranks = layout.expert_shard if expert else layout.shard
        total, parts = _slices(own, 1 if layout.sharding is Sharding.NONE else ranks, rank)
        buffers += (precision.weight_bytes * total, precision.gradient_bytes * total)
        owned += parts
    ordered = sorted((part for part in owned if part[1]), key=lambda part: not part[0].decays)
    moments = [precision.first_moment_bytes, precision.second_moment_bytes]
    resident = 1 - job.optimizer.offload_fraction
    return Startup(
        weights=tuple(precision.weight_bytes * parameter.elements for parameter in held),
        buffers=tuple(buffers),
        masters=tuple(
            (precision.weight_bytes * size, round(resident * precision.master_weight_bytes * size))
            for _, size in ordered
        )
        if precision.master_weight_bytes
        else (),
        moments=tuple(round(resident * each * size) for _, size in ordered for each in moments if each),
        copies=tuple(_copies(ordered, job, expert=expert) for expert in (False, True)),
    )


def _copies(ordered: Sequence[tuple[Parameter, int]], job: TrainingJob, *, expert: bool) -> tuple[int, ...]:
    """fp32 copies that a step makes of gradients and of narrow moments, one by one."""
    optimizer = job.optimizer
    each = round((optimizer.step_bytes + optimizer.moment_copy_bytes) / FP32_BYTES)
    resident = 1 - optimizer.offload_fraction
    sizes = [round(resident * FP32_BYTES * size) for parameter, size in ordered if parameter.expert is expert]
    return tuple(size for size in sizes for _ in range(each))


def _slices(own: Sequence[Parameter], ranks: int, rank: int) -> tuple[int, list[tuple[Parameter, int]]]:
    """Elements of a buffer, and what of each parameter lies in the slice of a rank."""
    starts = []
    at = 0
    for parameter in own:
        at = -(-at // ALIGNED_ELEMENTS) * ALIGNED_ELEMENTS
        starts.append(at)
        at += parameter.elements
    unit = lcm(ranks, BUCKET_ELEMENTS)
    total = -(-at // unit) * unit
    first, last = total // ranks * (rank % ranks), total // ranks * (rank % ranks + 1)
    return total, [
        (parameter, max(0, min(start + parameter.elements, last) - max(start, first)))
        for parameter, start in zip(own, starts, strict=True)
    ]
