"""Memory that FSDP2 leaves in pools of other streams, and holes of an expandable segment.

The caching allocator gives tensors back only to the pool of the stream on which they were made. FSDP2 gathers weights
on a stream of its own: the flat result of the largest gathering, the one behind it, and the 16-bit shards that go into
them stay reserved beside everything that computation holds (torch 2.6 torch/distributed/fsdp/_fully_shard/
_fsdp_collectives.py `foreach_all_gather`, _fsdp_param_group.py). An expandable segment grows at its end: the 16-bit
logits of an eager loss, given up when their fp32 copy exists, leave a hole that nothing as large fills before the peak.
"""

from collections.abc import Sequence

from projector.job import CrossEntropy, Dialect, Sharding, TrainingJob
from projector.layers.shapes import Shapes
from projector.memory.gathered import group_elements
from projector.memory.stages import ChunkOperations
from projector.parallelism import Layout


def has_stream_pools(job: TrainingJob, layout: Layout) -> bool:
    """Whether weights are gathered by FSDP2 into expandable segments."""
    expandable = job.software.expandable_segments
    return expandable and job.software.dialect is Dialect.TORCHTITAN and layout.sharding is Sharding.PARAMETERS


def stream_pools_bytes(chunks: Sequence[ChunkOperations], job: TrainingJob, layout: Layout, shapes: Shapes) -> int:
    """Bytes reserved beyond what is allocated on a stage."""
    root, layer = group_elements(chunks)
    gathered = job.precision.gathered_bytes * (root + layer)
    casts = gathered // layout.shard if job.precision.weight_bytes != job.precision.gathered_bytes else 0
    return gathered + casts + _logits_hole(chunks, job, shapes)


def _logits_hole(chunks: Sequence[ChunkOperations], job: TrainingJob, shapes: Shapes) -> int:
    software = job.software
    eager = software.cross_entropy is CrossEntropy.UNFUSED and not software.compiled_loss
    if not eager or not any(chunk.output for chunk in chunks):
        return 0
    return shapes.element * shapes.tokens * (shapes.padded_vocabulary // shapes.tensor)
