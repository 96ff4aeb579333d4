"""How the global batch divides, and the fewest nodes that hold one copy of the model."""

from math import gcd, lcm

from projector.errors import BatchIndivisible
from projector.job import Parallelism, Scaling, Target, TrainingJob


def expert_tensor_degree(parallelism: Parallelism) -> int:
    """Tensor-parallel degree inside experts; unset, it follows dense layers (Megatron-LM arguments.py)."""
    return parallelism.tensor if parallelism.expert_tensor is None else parallelism.expert_tensor


def replica_devices(job: TrainingJob) -> int:
    """Devices of which every cluster must be a multiple: dense and expert groups both have to come out even."""
    degrees = job.parallelism
    dense = degrees.tensor * degrees.pipeline * degrees.context
    if not job.model.expert_blocks:
        return dense
    return lcm(dense, expert_tensor_degree(degrees) * degrees.expert * degrees.pipeline)


def minimum_nodes(job: TrainingJob, devices_per_node: int) -> int:
    """Fewest whole nodes whose devices divide into the job's model-parallel groups; at least 1."""
    replica = replica_devices(job)
    return replica // gcd(replica, devices_per_node)


def global_batch(job: TrainingJob, target: Target, data: int) -> int:
    """Sequences per iteration on the target: as written, or grown with data parallelism under weak scaling.

    Where the job states micro batches per rank, the batch grows with data parallelism in the run itself.
    """
    stated = job.batch.global_
    if stated is None:
        return job.batch.micro * job.batch.micro_batches * data
    if target.scaling is Scaling.STRONG:
        return stated
    degrees = job.parallelism
    smallest = minimum_nodes(job, target.devices_per_node) * target.devices_per_node
    base = smallest // (degrees.tensor * degrees.pipeline * degrees.context)
    if stated * data % base:
        raise BatchIndivisible(
            f"global batch {stated} for data parallel {base} does not grow to data parallel {data} evenly",
            place="global_batch_size",
            expected=f"a multiple of {base // gcd(base, data)}",
        )
    return stated * data // base


def groups_suit(pipeline: int, micro_batches: int, group: int) -> bool:
    """Whether interleaving can take micro batches in groups: each of several has to fill the pipeline, the last too.

    Megatron-LM core/pipeline_parallel/schedules.py, `forward_backward_pipelining_with_interleaving`; PyTorch
    torch/distributed/pipelining/schedules.py, `ScheduleInterleaved1F1B`, which also takes one group of fewer.
    """
    if group == micro_batches:
        return True
    return pipeline <= group < micro_batches and (micro_batches % group == 0 or micro_batches % group >= pipeline)


def pipeline_runs(job: TrainingJob, micro_batches: int, data: int) -> int:
    """How often an iteration of some `micro_batches` fills and drains the pipeline.

    Raises `BatchIndivisible` where the last run would have fewer than the others.
    """
    each = job.batch.pipeline_micro_batches
    if each is None:
        return 1
    if micro_batches % each:
        raise BatchIndivisible(
            f"{micro_batches} micro batches an iteration are no whole number of pipeline runs of {each}",
            place="global_batch_size",
            expected=f"a multiple of {each * job.batch.micro * data}",
        )
    return micro_batches // each


def micro_batches(batch: int, micro: int, data: int) -> int:
    """Micro batches per iteration and data-parallel rank.

    Raises `BatchIndivisible` with the nearest batches that divide.
    """
    step = micro * data
    if batch > 0 and batch % step == 0:
        return batch // step
    below = batch // step * step
    nearest = f"{below} or {below + step}" if below > 0 else f"{step}"
    raise BatchIndivisible(
        f"global batch {batch} does not divide over micro batch {micro} x data parallel {data} = {step}",
        place="global_batch_size",
        expected=f"the nearest that does: {nearest}",
    )
