"""The optimizer step as a moment of its own, and what the first iteration lacks.

Activations are gone when the optimizer steps, and gathered weights are given up; what the step makes on the way is
there instead: copies of gradients in fp32 where they are stored in 16 bits, intermediates of torch's multi-tensor
kernels, and the matrices of Newton-Schulz iterations. Fused kernels make nothing, except for fp32 copies of moments in
16 or 8 bits (TransformerEngine pytorch/optimizers/fused_adam.py `get_unscaled_state`).

State that the step makes when it first runs is not there while the first iteration's activations are: the peak of the
first iteration is lower than that of the second, unless the step itself is the peak.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from projector.identity import remembered
from projector.job import OptimizerKind, Sharding, TrainingJob
from projector.memory.optimizer_state import divided
from projector.memory.stages import ChunkOperations, distinct_parts
from projector.operations import Held, Operations
from projector.parallelism import Layout
from projector.projection import MemoryComponent, MemoryLevel

STEP = "optimizer step"
"""The moment, and the component of what it makes on the way."""
FP32_BYTES = 4
"""Bytes of an element of the update that the iterations start from."""
NEWTON_SCHULZ_WIDE = 3
"""Matrices as large as the weight that an iteration holds: the update in fp32, the iterate and its successor."""
NEWTON_SCHULZ_SQUARE = 2
"""Square matrices of the smaller side: the product with the transpose and the polynomial of it (Jordan et al. 2024)."""


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Allocated memory of a stage at the two moments that may be its peak."""

    # Without slots, so that the sums are made once.

    persistent: tuple[MemoryComponent, ...]
    """What is there at any time from the second iteration on."""
    passes: tuple[MemoryComponent, ...]
    """What the highest moment of the forward and backward passes adds."""
    step: tuple[MemoryComponent, ...]
    """What the optimizer step adds."""
    late_bytes: int
    """Of what is persistent, bytes that the first step makes."""

    @cached_property
    def peaks_in_step(self) -> bool:
        """Whether the optimizer step is the higher of the two."""
        return self._step_bytes > self._passes_bytes

    @property
    def components(self) -> tuple[MemoryComponent, ...]:
        """What is allocated at the peak."""
        return (*self.persistent, *(self.step if self.peaks_in_step else self.passes))

    @property
    def first_iteration_bytes(self) -> int:
        """Peak allocated of the first iteration, whose passes run without the state that its step makes."""
        return _size(self.persistent) + max(self._passes_bytes - self.late_bytes, self._step_bytes)

    @cached_property
    def _passes_bytes(self) -> int:
        return _size(self.passes)

    @cached_property
    def _step_bytes(self) -> int:
        return _size(self.step)


def _size(parts: Sequence[MemoryComponent]) -> int:
    return sum([part.size_bytes for part in parts])


def step_components(
    stage: Sequence[ChunkOperations], trained: Held, job: TrainingJob, layout: Layout
) -> tuple[MemoryComponent, ...]:
    """What the optimizer step of a stage holds beside everything that is persistent."""
    size = _copies(trained, job, layout) + _newton_schulz(stage, job)
    return (MemoryComponent(name=STEP, level=MemoryLevel.ALLOCATED, size_bytes=round(size)),) if size else ()


def _copies(trained: Held, job: TrainingJob, layout: Layout) -> float:
    optimizer = job.optimizer
    updated = divided(trained, layout, Sharding.OPTIMIZER) * (1 - optimizer.offload_fraction)
    at_once = min(updated, optimizer.step_elements) if optimizer.step_elements else updated
    apart = (Held(dense=trained.dense), Held(expert=trained.expert))
    stepping = max(divided(held, layout, Sharding.OPTIMIZER) for held in apart) * (1 - optimizer.offload_fraction)
    return optimizer.step_bytes * at_once + optimizer.moment_copy_bytes * stepping


def _newton_schulz(stage: Sequence[ChunkOperations], job: TrainingJob) -> int:
    """Bytes of the iterations over the largest matrix; they run one matrix at a time."""
    if job.optimizer.kind is not OptimizerKind.MUON:
        return 0
    width = job.optimizer.newton_schulz_bytes
    return max((_largest_iteration(part, width) for _, part in distinct_parts(stage)), default=0)


@remembered
def _largest_iteration(part: Operations, width: int) -> int:
    sizes = [0]
    for operation in part:
        if operation.component == "embedding" or operation.name == "output_layer":
            continue
        for weight in operation.weights:
            if len(weight.shape) > 1 and weight.trainable and not weight.frozen:
                small, large = sorted(weight.shape[-2:])
                wide = FP32_BYTES + (NEWTON_SCHULZ_WIDE - 1) * width
                sizes.append(wide * small * large + NEWTON_SCHULZ_SQUARE * width * small * small)
    return max(sizes)
