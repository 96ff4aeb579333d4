"""From job, layout and device to memory per stage at four levels, with an interval and a verdict."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from projector.catalog import Device, reserved_ratio
from projector.job import Schedule, TrainingJob
from projector.layers.shapes import Shapes, shapes_of
from projector.memory.footprint import Footprint
from projector.memory.gathered import gathered_components
from projector.memory.outside import outside_allocator, outside_uncertainty
from projector.memory.persistent import persistent_components, stage_weights
from projector.memory.replay import Peak, peak
from projector.memory.stages import ChunkOperations, Footprints, described_stages
from projector.memory.unmodelled import unknown_figures, unmodelled_layers
from projector.memory.verdict import confidence_of, device_capacity, verdict_of
from projector.parallelism import Layout
from projector.projection import MemoryComponent, MemoryLevel, MemoryProjection, StageMemory
from projector.schedule import framework_schedule

ROUTING_EXPECTED, ROUTING_UPPER = 1.15, 2.0
"""Rows that the busiest rank's experts receive over the balanced share, dropless routing: Megatron-LM's functional
tests (d98e8a64) show 1.1 to 2.3 over the first hundred steps."""
ALLOCATED_UNCERTAINTY = 0.01
"""Half width of the interval around allocated memory of deterministic jobs, as a share. An estimate: single dense runs
of `tests/accuracy` deviate by less or by far more, the latter where a mechanism is missing."""
BOUNDARY_TENSORS = 2
"""Stage-boundary tensors per model chunk that interleaved schedules keep (Megatron-LM schedules.py)."""
SENT_GRADIENTS = 1
"""Without interleaving the loop still refers to the gradient it sent last while the next backward runs."""


def project_memory(  # noqa: PLR0913 - the job, where it runs, and how to judge
    job: TrainingJob,
    layout: Layout,
    device: Device,
    *,
    schedule: Schedule | None = None,
    safety_margin: float = 0.0,
    understood: bool = True,
) -> MemoryProjection:
    """Memory of every pipeline stage.

    `schedule` replaces the one the framework would run; `safety_margin` widens the upper end by a share; `understood`
    False says that something that decides was not understood, so that no verdict may be given.
    """
    chosen = framework_schedule(layout.virtual_pipeline, schedule or job.schedule)

    balanced = _Case(job=job, layout=layout, device=device, schedule=chosen, routing_factor=1.0)
    lowest = expected = highest = balanced.stages()
    if _dropless(job):
        expected = replace(balanced, routing_factor=ROUTING_EXPECTED).stages()
        highest = replace(balanced, routing_factor=ROUTING_UPPER).stages()
    stages = tuple(
        _with_interval(stage, low, high, balanced, safety_margin)
        for stage, low, high in zip(expected, lowest, highest, strict=True)
    )
    known = understood and not unmodelled_layers(job)
    complete = not unknown_figures(job, layout, device)
    return MemoryProjection(
        verdict=verdict_of(stages, device, understood=known, complete=complete),
        confidence=confidence_of(job, device, understood=known, complete=complete),
        device_capacity_bytes=device_capacity(device),
        stages=stages,
    )


def _dropless(job: TrainingJob) -> bool:
    """Whether routing decides how many rows a rank's experts receive."""
    if job.software.force_load_balancing or job.software.expert_capacity_factor is not None:
        return False
    return job.parallelism.expert > 1 and bool(job.model.expert_blocks)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Case:
    """What all stages of one projection share."""

    job: TrainingJob
    layout: Layout
    device: Device
    schedule: Schedule
    routing_factor: float

    def stages(self) -> list[StageMemory]:
        """Memory of every stage, without its interval."""
        shapes = shapes_of(self.job, self.layout, routing_factor=self.routing_factor)
        footprints = Footprints(self.job, shapes)
        described = described_stages(self.job, self.layout, routing_factor=self.routing_factor)
        return [
            _stage(rank, chunks, [footprints.chunk(chunk) for chunk in chunks], shapes, self)
            for rank, chunks in enumerate(described)
        ]


def _stage(
    rank: int, chunks: Sequence[ChunkOperations], footprints: Sequence[Footprint], shapes: Shapes, case: _Case
) -> StageMemory:
    job, layout, device = case.job, case.layout, case.device
    weights = stage_weights(chunks)
    top = peak(footprints, schedule=case.schedule, layout=layout, rank=rank, forward_extra=_mask_bytes(job))
    parts = [
        *persistent_components(weights, job, layout, shapes, device),
        *_activations(top, rank, layout, shapes),
        *gathered_components(chunks, job, layout),
    ]
    parts.append(_allocator_slack(parts, device))
    parts += [
        MemoryComponent(name=name, level=MemoryLevel.DEVICE, size_bytes=size)
        for name, size in outside_allocator(job, layout, device).items()
    ]
    return StageMemory(
        stage=rank,
        layers=layout.stages[rank].layer_ids,
        parameters=weights.held.total,
        components=tuple(parts),
        device_bytes_lower=0,
        device_bytes_upper=0,
        peak_cause=_cause(top),
    )


def _mask_bytes(job: TrainingJob) -> int:
    """The boolean attention mask that lives during a forward pass."""
    return job.batch.micro * job.batch.sequence_length**2 if job.software.attention_mask_tensor else 0


def _activations(top: Peak, rank: int, layout: Layout, shapes: Shapes) -> list[MemoryComponent]:
    boundary = _boundary_tensors(rank, layout) * shapes.residual_bytes
    parts = [(f"saved activations: {name}", size) for name, size in top.kept.items()]
    parts += [("transients", top.transient_bytes), ("stage-boundary tensors", boundary)]
    return [MemoryComponent(name=name, level=MemoryLevel.ALLOCATED, size_bytes=size) for name, size in parts if size]


def _boundary_tensors(rank: int, layout: Layout) -> int:
    """Tensors of the residual stream's size that pipeline communication keeps alive."""
    if layout.virtual_pipeline > 1:
        return BOUNDARY_TENSORS * layout.virtual_pipeline
    return SENT_GRADIENTS if rank > 0 and layout.micro_batches > 1 else 0


def _allocator_slack(parts: Sequence[MemoryComponent], device: Device) -> MemoryComponent:
    allocated = sum(part.size_bytes for part in parts)
    slack = round(allocated * (reserved_ratio(device.vendor).expected - 1))
    return MemoryComponent(name="allocator slack", level=MemoryLevel.RESERVED, size_bytes=slack)


def _cause(top: Peak) -> str:
    plural = "" if top.in_flight == 1 else "es"
    return f"{top.direction} of {top.operation} with {top.in_flight} micro-batch pass{plural} in flight"


def _with_interval(
    stage: StageMemory, low: StageMemory, high: StageMemory, case: _Case, safety_margin: float
) -> StageMemory:
    """Add the interval: routing decides allocated memory, the allocator reserved, the device what lies outside."""
    ratio = reserved_ratio(case.device.vendor)
    spread = outside_uncertainty(case.job, case.layout, case.device)
    outside = stage.device_bytes - stage.level_bytes(MemoryLevel.RESERVED)
    least = low.level_bytes(MemoryLevel.ALLOCATED) * (1 - ALLOCATED_UNCERTAINTY) * ratio.lower
    most = high.level_bytes(MemoryLevel.ALLOCATED) * (1 + ALLOCATED_UNCERTAINTY) * ratio.upper
    upper = (most + outside + spread) * (1 + safety_margin)
    return replace(
        stage,
        device_bytes_lower=min(stage.device_bytes, round(least + max(0, outside - spread))),
        device_bytes_upper=max(stage.device_bytes, round(upper)),
    )
