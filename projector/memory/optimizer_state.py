"""Moments of an optimizer, parameter by parameter: which class a tensor belongs to decides what is kept of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from projector.identity import remembered
from projector.job import ZERO_STAGES, Optimizer, ParameterClass, Precision, Sharding, TrainingJob
from projector.memory.stages import ChunkOperations, distinct_parts
from projector.operations import Held, Operations, Weight, parameter_class
from projector.parallelism import Layout

SUM_BYTES = 4
"""A sum of a row or of a column of a factored second moment, and a scale of a block of a quantised moment, are fp32
(torch/optim/_adafactor.py, transformers optimization.py; bitsandbytes and torchao optimizer states)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Moments:
    """Bytes of moments before data parallelism divides them."""

    held: Held
    """Of parameters outside and inside experts."""
    largest_bytes: int = 0
    """Moments of the single tensor outside experts that has most state."""
    largest_elements: int = 0
    """Its elements."""


def stage_moments(stage: Sequence[ChunkOperations], job: TrainingJob) -> Moments:
    """Moments of all trained parameters of a stage."""
    dense = expert = 0
    largest = Moments(held=Held())
    for count, part in distinct_parts(stage):
        here = _moments(part, job.precision, job.optimizer)
        dense += count * here.held.dense
        expert += count * here.held.expert
        largest = max(largest, here, key=lambda each: each.largest_bytes)
    return Moments(
        held=Held(dense=dense, expert=expert),
        largest_bytes=largest.largest_bytes,
        largest_elements=largest.largest_elements,
    )


@remembered
def _moments(part: Operations, precision: Precision, optimizer: Optimizer) -> Moments:
    sizes = {True: 0, False: 0}
    largest = (0, 0)
    for weight, kind in _trained(part):
        each = round(moment_bytes(weight.shape, kind, precision, optimizer))
        sizes[weight.expert] += each * weight.copies
        if not weight.expert:
            largest = max(largest, (each, prod(weight.shape)))
    return Moments(
        held=Held(dense=sizes[False], expert=sizes[True]), largest_bytes=largest[0], largest_elements=largest[1]
    )


def _trained(part: Operations) -> Iterable[tuple[Weight, ParameterClass]]:
    for operation in part:
        for weight in operation.weights:
            if weight.trainable and not weight.shared and not weight.frozen:
                yield weight, parameter_class(operation, weight)


def moment_bytes(shape: Sequence[int], kind: ParameterClass, precision: Precision, optimizer: Optimizer) -> float:
    """Bytes of both moments of one tensor."""
    elements = prod(shape)
    small = elements < optimizer.quantized_from_elements
    if kind in optimizer.exempt_classes or small:
        return elements * (optimizer.exempt_first_bytes + optimizer.exempt_second_bytes)
    size = elements * (precision.first_moment_bytes + precision.second_moment_bytes)
    if optimizer.factored:
        size += SUM_BYTES * (prod(shape[:-1]) + prod(shape[:-2]) * shape[-1])
    if optimizer.block_elements:
        moments = (precision.first_moment_bytes > 0) + (precision.second_moment_bytes > 0)
        size += moments * SUM_BYTES * -(-elements // optimizer.block_elements)
    return size


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """Optimizer state on one device."""

    size_bytes: float
    """All of it."""
    late_bytes: float
    """Of it, what the first step makes."""


def resident_state(trained: Held, moments: Moments, job: TrainingJob, layout: Layout) -> State:
    """Master weights and moments of the fullest rank, without what lives in host memory."""
    master, optimizer = job.precision.master_weight_bytes, job.optimizer
    here = 1 - optimizer.offload_fraction
    masters = master * divided(trained, layout, Sharding.OPTIMIZER)
    kept = divided(moments.held, layout, Sharding.OPTIMIZER)
    if optimizer.whole_tensors and layout.sharding is not Sharding.NONE:
        # The rank with the largest tensor may have no other one, and no rank is fuller than it must be.
        largest = moments.largest_bytes + master * moments.largest_elements
        if largest > moments.held.dense / layout.shard + master * trained.dense / layout.shard:
            kept = moments.largest_bytes + moments.held.expert / layout.expert_shard
            masters = master * (moments.largest_elements + trained.expert / layout.expert_shard)
    late = 0.0 if optimizer.state_from_start else kept + optimizer.master_in_state * masters
    return State(size_bytes=here * (masters + kept), late_bytes=here * late)


def divided(held: Held, layout: Layout, stage_of: Sharding) -> float:
    """What one rank has of something that data parallelism divides from ZeRO stage `stage_of` on."""
    if ZERO_STAGES.index(layout.sharding) < ZERO_STAGES.index(stage_of):
        return held.total
    return held.dense / layout.shard + held.expert / layout.expert_shard
