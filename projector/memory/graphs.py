"""Memory of CUDA graphs that Transformer Engine captures of modules of each layer, one per micro batch in flight.

Megatron-LM transformer/cuda_graphs.py and TransformerEngine pytorch/graph.py: a graph reads inputs that lie still, the
layer's hidden states and, with attention, a boolean mask of every sequence; micro batches share them once a backward
pass has given them up. What a captured pass keeps lives in the graphs' own pool. torch counts it as allocated while
passes are captured, in the order of the schedule and before the first step has made the optimizer's moments; later it
counts as reserved alone.
"""

from typing import NamedTuple

from projector.catalog import Device
from projector.job import TrainingJob
from projector.layers.shapes import Shapes
from projector.memory.persistent import BLAS_THREADS, torch_blas_bytes
from projector.projection import MemoryComponent, MemoryLevel

CAPTURED = {
    "attn": ("self_attention",),
    "mlp": ("mlp",),
    "moe_router": ("router",),
    "moe": ("router", "shared_expert", "experts"),
}
"""Components of a layer by the module of `cuda_graph_modules` that captures them; dispatch itself keeps nothing."""
CAPTURE_STREAMS = 2
"""Streams on which torch's matmuls open workspaces of their own: that of the warm-up and that of the capture."""
BUFFERS, CAPTURE, POOL = "CUDA graph inputs", "capture of CUDA graphs", "CUDA graph pool"
"""Components at the levels persistent, allocated and reserved."""


class GraphMemory(NamedTuple):
    """What graphs of a stage's layers change."""

    persistent: tuple[MemoryComponent, ...] = ()
    """Their static inputs and workspaces."""
    passes: tuple[MemoryComponent, ...] = ()
    """What the passes still allocate where the allocator counts it, or what capturing them does, if that is more."""
    pool: tuple[MemoryComponent, ...] = ()
    """What the graphs' pool reserves beyond it."""

    @property
    def peaks_in_capture(self) -> bool:
        """Whether more is allocated while passes are captured, before the first step, than ever later."""
        return any(part.name == CAPTURE for part in self.passes)


def graph_memory(  # noqa: PLR0913 - the moment, and where it is
    passes: tuple[MemoryComponent, ...],
    layers_in_flight: int,
    job: TrainingJob,
    shapes: Shapes,
    device: Device,
    *,
    late_bytes: int,
) -> GraphMemory:
    """A stage's passes at their peak, as CUDA graphs change them; `late_bytes` are made by the first step."""
    inside = _captured_components(job)
    captured = [part for part in passes if part.name.rpartition(": ")[2] in inside]
    rest = tuple(part for part in passes if part not in captured)
    buffers = layers_in_flight * _input_bytes(job, shapes) + _workspaces(job, device)
    kept = sum(part.size_bytes for part in captured)
    capture = kept + sum(part.size_bytes for part in rest if part.name == "transients") - late_bytes
    training = sum(part.size_bytes for part in rest)
    if capture > training:
        rest = (MemoryComponent(name=CAPTURE, level=MemoryLevel.ALLOCATED, size_bytes=capture),)
    return GraphMemory(
        persistent=(MemoryComponent(name=BUFFERS, level=MemoryLevel.PERSISTENT, size_bytes=buffers),),
        passes=rest,
        pool=_pool(kept + training - max(capture, training)),
    )


def _captured_components(job: TrainingJob) -> frozenset[str]:
    return frozenset(name for module in job.software.graphed_layers for name in CAPTURED.get(module, ()))


def _input_bytes(job: TrainingJob, shapes: Shapes) -> int:
    """Static inputs of one layer for one micro batch."""
    batch = job.batch
    attends = "attn" in job.software.graphed_layers
    mask = batch.micro * batch.sequence_length**2 // job.parallelism.context if attends else 0
    return shapes.carried_bytes + mask


def _workspaces(job: TrainingJob, device: Device) -> int:
    """Workspaces of attention that multiplies with torch's matmul, on each stream and for either pass."""
    if job.software.flash_attention or "attn" not in job.software.graphed_layers:
        return 0
    return CAPTURE_STREAMS * BLAS_THREADS * torch_blas_bytes(job, device)


def _pool(size: int) -> tuple[MemoryComponent, ...]:
    return (MemoryComponent(name=POOL, level=MemoryLevel.RESERVED, size_bytes=size),) if size > 0 else ()
