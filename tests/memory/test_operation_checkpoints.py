"""What TorchTitan does beside Megatron: checkpointing by operation, weights that stay gathered, shards on the host."""

from dataclasses import replace

import pytest

from projector import catalog
from projector.api import project_job
from projector.job import (
    DenseMLP,
    LatentAttention,
    Recompute,
    RecomputeGranularity,
    Sharding,
    Target,
    TrainingJob,
)
from projector.layers import kept_outputs, layer_operations
from projector.parallelism import resolve
from projector.projection import MemoryLevel
from tests.cases.torchtitan import FULL, titan

GIB = 2**30
BY_OPERATION = Recompute(granularity=RecomputeGranularity.OPERATIONS)
NODE = Target(device="H100-96GB-500W", nodes=1, devices_per_node=8)


def job(
    model: str = "llama3-8b", *, tensor: int = 1, expert: int = 1, recompute: Recompute = BY_OPERATION
) -> TrainingJob:
    return titan(model, micro=2, sequence=8192, devices=8, tensor=tensor, expert=expert, recompute=recompute)


def kept_bytes_per_token(job: TrainingJob, index: int) -> float:
    """Bytes of outputs kept by a layer, per token of the micro batch on one device."""
    layer = job.model.layers[index]
    operations = layer_operations(layer, job, resolve(job, NODE))
    kept = kept_outputs(operations, products=job.recompute.keeps_products)
    return sum(map(sum, kept)) / (job.batch.micro * job.batch.sequence_length)


def test_a_llama_layer_keeps_attention_and_every_second_product() -> None:
    # wq, wv, w1 and w2 of wq wk wv wo w1 w3 w2 in bf16, attention's output, and its fp32 log-sum-exp of 32 heads.
    products, attention = 2 * (4096 + 1024 + 14336 + 4096), 2 * 4096 + 4 * 32
    assert kept_bytes_per_token(job(), 0) == products + attention
    without = replace(BY_OPERATION, keeps_products=False)
    assert kept_bytes_per_token(job(recompute=without), 0) == attention


def test_tensor_parallelism_keeps_what_reduce_scatter_brings() -> None:
    # wq, wv and w1 are divided over 4 ranks, w2's output is a whole partial sum; two scattered outputs of a quarter.
    products = 2 * (4096 // 4 + 1024 // 4 + 14336 // 4 + 4096)
    attention, scattered = 2 * 4096 // 4 + 4 * 32 // 4, 2 * 2 * 4096 // 4
    assert kept_bytes_per_token(job(tensor=4), 0) == products + attention + scattered


def test_products_are_counted_through_the_layer() -> None:
    deepseek = job("deepseek-v2-lite")
    latent, dense = deepseek.model.layers[0].mixer, deepseek.model.layers[0].feed_forward
    assert isinstance(latent, LatentAttention)
    assert isinstance(dense, DenseMLP)
    # wq and wkv_b of wq wkv_a wkv_b wo, then w1 and w2 of w1 w3 w2.
    products = 2 * (16 * 192 + 16 * 256 + dense.ffn + 2048)
    assert kept_bytes_per_token(deepseek, 0) == products + 2 * 16 * 128 + 4 * 16


def test_it_lies_between_keeping_all_and_keeping_inputs_in_memory_and_time() -> None:
    choices = {"none": Recompute(), "operations": BY_OPERATION, "full": FULL}
    halves = {name: project_job(job(recompute=recompute), NODE) for name, recompute in choices.items()}
    peaks = [halves[name][0].worst.level_bytes(MemoryLevel.ALLOCATED) for name in ("full", "operations", "none")]
    times = [halves[name][1].iteration_seconds for name in ("none", "operations", "full")]
    assert peaks == sorted(set(peaks))
    assert times == sorted(set(times))


def test_it_has_the_reserved_memory_that_torchtitan_measured() -> None:
    # pytorch/torchtitan b5bcd76c benchmarks/llama3_h100_202412_torchtitan.md, table 1: eager FSDP on 8 GPUs, 82.4 GiB.
    memory, _ = project_job(job(), NODE)
    assert memory.worst.level_bytes(MemoryLevel.RESERVED) / GIB == pytest.approx(82.4, rel=0.12)


def component(job: TrainingJob, name: str) -> int:
    memory, _ = project_job(job, NODE)
    return sum(each.size_bytes for each in memory.worst.components if each.name == name)


def test_weights_that_are_not_sharded_again_stay_whole() -> None:
    resharding = job(recompute=FULL)
    staying = replace(resharding, parallelism=replace(resharding.parallelism, reshard_after_forward=False))
    parameters = catalog.model("llama3-8b").parameters
    assert parameters is not None
    assert component(staying, "gathered weights") == pytest.approx(2 * parameters, rel=1e-6)
    assert component(resharding, "gathered weights") < 0.25 * component(staying, "gathered weights")
    again, once = (project_job(each, NODE)[1].communication for each in (resharding, staying))
    traffic = [sum(call.message_bytes for call in calls if call.collective == "all_gather") for calls in (again, once)]
    assert traffic[0] == pytest.approx(2 * traffic[1])


def test_gradients_summed_in_bf16_halve_what_waits_for_it_and_what_travels() -> None:
    wide = job(recompute=FULL)
    narrow = replace(wide, precision=replace(wide.precision, reduction_bytes=2))
    # The bf16 gradient of the output layer stays, and two inputs of a layer's reduce-scatter shrink.
    layer = 2 * 4096 * (4096 + 1024) + 3 * 4096 * 14336 + 2 * 4096
    gone = component(wide, "gradients before reduction") - component(narrow, "gradients before reduction")
    assert gone == 2 * 2 * layer
    sent = [
        sum(
            call.message_bytes
            for call in project_job(each, NODE)[1].communication
            if call.collective == "reduce_scatter"
        )
        for each in (wide, narrow)
    ]
    assert sent[0] == pytest.approx(2 * sent[1])


def test_offloaded_shards_leave_only_what_is_gathered() -> None:
    here = job(recompute=FULL)
    there = replace(here, optimizer=replace(here.optimizer, offload_fraction=1.0, offload_shards=True))
    for name in ("weights", "gradients", "optimizer state"):
        assert component(here, name) > 0
        assert component(there, name) == 0
    assert component(there, "gathered weights") == component(here, "gathered weights")


@pytest.mark.parametrize(("replicas", "shard"), [(1, 8), (2, 4), (8, 1)])
def test_copies_divide_the_ranks_that_share_one(replicas: int, shard: int) -> None:
    base = job(recompute=FULL)
    layout = resolve(replace(base, parallelism=replace(base.parallelism, replicas=replicas)), NODE)
    assert (layout.sharding, layout.shard) == (Sharding.PARAMETERS, shard)
