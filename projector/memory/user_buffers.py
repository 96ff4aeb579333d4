"""Buffers through which Transformer Engine overlaps tensor-parallel collectives with GEMMs, outside torch's allocator.

One set serves all layers (TransformerEngine pytorch/module/base.py `initialize_ub`); each buffer is a device
allocation of its own (common/comm_gemm_overlap/comm_gemm_overlap.cpp `register_user_buffer_collective`), as large as
the residual stream of all tensor-parallel ranks (Megatron-LM training/initialize.py `_initialize_tp_communicators`).
"""

from projector.job import Dialect, TrainingJob
from projector.parallelism import Layout

GATHER_BUFFERS = 6
"""`qkv_fprop`, `qkv_dgrad`, `proj_dgrad`, `fc1_fprop`, `fc1_dgrad` and `fc2_dgrad`: one byte an element under fp8."""
REDUCE_BUFFERS = 4
"""`proj_fprop`, `fc2_fprop`, `qkv_wgrad` and `fc1_wgrad`, in 16 bits always."""
FP8_BYTES = 1


def user_buffer_bytes(job: TrainingJob, layout: Layout) -> int:
    """Bytes on one device; 0 where tensor parallelism does not overlap, or does it through symmetric memory."""
    software = job.software
    megatron = software.dialect in (Dialect.MEGATRON_TE, Dialect.PRIMUS_TURBO)
    if not (megatron and software.overlap_tensor_parallel and layout.tensor > 1):
        return 0
    elements = job.batch.micro * job.batch.sequence_length // layout.context * job.model.hidden
    wide = job.precision.activation_bytes
    narrow = FP8_BYTES if job.precision.low_precision else wide
    return elements * (GATHER_BUFFERS * narrow + REDUCE_BUFFERS * wide)
