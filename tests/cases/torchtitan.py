"""TorchTitan's jobs, as values and as its files.

TorchTitan keeps fp32 shards of weights, gradients and moments and computes in bf16 (FSDP2 mixed precision).
"""

from projector import catalog
from projector.job import (
    Batch,
    Dialect,
    Parallelism,
    Precision,
    Recompute,
    RecomputeGranularity,
    RecomputeMethod,
    Sharding,
    Software,
    TrainingJob,
)

FULL = Recompute(granularity=RecomputeGranularity.FULL, method=RecomputeMethod.UNIFORM, layers=1)


def titan(
    model: str,
    *,
    micro: int,
    sequence: int,
    devices: int,
    tensor: int = 1,
    context: int = 1,
    expert: int = 1,
    recompute: Recompute | None = None,
) -> TrainingJob:
    """A model of the catalog under FSDP2 on so many devices, one micro batch an iteration."""
    return TrainingJob(
        model=catalog.model(model).architecture,
        parallelism=Parallelism(tensor=tensor, context=context, expert=expert, sharding=Sharding.PARAMETERS),
        batch=Batch(micro=micro, global_=micro * devices // (tensor * context), sequence_length=sequence),
        precision=Precision(weight_bytes=4, gradient_bytes=4, master_weight_bytes=0),
        recompute=recompute or Recompute(),
        software=Software(dialect=Dialect.TORCHTITAN, gradient_accumulation_fusion=False),
    )


def toml(
    model: str,
    flavor: str,
    *,
    micro: int,
    sequence: int,
    tensor: int = 1,
    context: int = 1,
    expert: int = 1,
    checkpointing: str = "none",
) -> str:
    """A file of TorchTitan for a model under FSDP2 over all devices, in the words of late 2025."""
    return f"""
[model]
name = "{model}"
flavor = "{flavor}"

[training]
local_batch_size = {micro}
seq_len = {sequence}

[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = {tensor}
context_parallel_degree = {context}
expert_parallel_degree = {expert}

[activation_checkpoint]
mode = "{checkpointing}"
selective_ac_option = "op"
"""
