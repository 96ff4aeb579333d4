"""Gradients that stay whole while they accumulate are counted, and DeepSpeed's optimizers and batches are its own."""

import json
from typing import Any

import pytest

from projector.api import Question, project
from projector.config import LoadedConfiguration
from projector.errors import BatchIndivisible, ConfigurationError
from projector.job import Sharding
from tests.config.huggingface.builders import LLAMA, RUN, load

RANKS = 16
WAITING = "gradients that ranks have not summed"


def fsdp(strategy: str = "FULL_SHARD", *, precision: str = "bf16") -> dict[str, Any]:
    section = {"fsdp_sharding_strategy": strategy}
    return {"distributed_type": "FSDP", "mixed_precision": precision, "fsdp_config": section}


def zero(stage: int, kind: str = "bf16", accumulated: str | None = None, **section: object) -> dict[str, Any]:
    types = {} if accumulated is None else {"data_types": {"grad_accum_dtype": accumulated}}
    return {"zero_optimization": {"stage": stage, **section}, kind: {"enabled": True}, **types}


def bytes_a_parameter(content: dict[str, Any], **overrides: str) -> dict[str, float]:
    """Memory of the first stage by component, a parameter, on two nodes of eight."""
    question = Question(
        text=json.dumps(LLAMA),
        companions={"file.json": json.dumps(content)},
        overrides={"seq_length": "4096", "micro_batch_size": "1", **overrides},
        nodes=2,
        devices_per_node=8,
        performance=False,
    )
    memory = project(question).memory
    assert memory is not None
    stage = memory.stages[0]
    return {part.name: part.size_bytes / stage.parameters for part in stage.components}


FSDP = {
    # Bytes of a waiting gradient: the type of a forward pass (torch fsdp `no_sync`, `set_requires_gradient_sync`).
    "one micro batch": (fsdp(), {}, 0),
    "eight": (fsdp(), {"gradient_accumulation_steps": "8"}, 2),
    "eight by the total": (fsdp(), {"global_batch_size": str(8 * RANKS)}, 2),
    "eight in fp32": (fsdp(precision="no"), {"gradient_accumulation_steps": "8"}, 4),
    "eight with whole weights": (fsdp("SHARD_GRAD_OP"), {"gradient_accumulation_steps": "8"}, 2),
    "eight, nothing divided": (fsdp("NO_SHARD"), {"gradient_accumulation_steps": "8"}, 0),
    "eight, summed each": (fsdp(), {"gradient_accumulation_steps": "8", "sync_each_batch": "true"}, 0),
    "eight under DeepSpeed": (zero(3), {"gradient_accumulation_steps": "8"}, 0),
}


@pytest.mark.parametrize(("content", "overrides", "wanted"), FSDP.values(), ids=FSDP)
def test_fsdp_keeps_whole_gradients_between_micro_batches(
    content: dict[str, Any], overrides: dict[str, str], wanted: float
) -> None:
    assert bytes_a_parameter(content, **overrides).get(WAITING, 0) == pytest.approx(wanted)


def test_gradient_of_the_output_layer_waits_among_the_others_once() -> None:
    hidden = LLAMA["hidden_size"]
    ends = hidden * (2 * LLAMA["vocab_size"] + 1)
    layer = hidden * hidden * (2 + 2 / 4) + 3 * hidden * LLAMA["intermediate_size"] + 2 * hidden
    parameters = ends + LLAMA["num_hidden_layers"] * layer
    # A batch so small that reduction is the peak: of token table and output layer with the first layer's, or of layers.
    short = {"seq_length": "64"}
    at_once, waiting = (bytes_a_parameter(fsdp(), **short, gradient_accumulation_steps=steps) for steps in ("1", "8"))
    name = "gradients before reduction"
    assert at_once[name] == pytest.approx((2 * ends + 2 * (ends + layer)) / parameters)
    assert waiting[name] == pytest.approx(2 * 2 * layer / parameters)


def test_whole_gradients_are_assumed_by_name() -> None:
    said = [item.what for item in load(LLAMA, *RUN, beside={"a.json": fsdp()}).assumed]
    asked = [item.what for item in load(LLAMA, *RUN, "sync_each_batch=true", beside={"a.json": fsdp()}).assumed]
    assert [what for what in said if what not in asked] == [
        "gradients that stay whole between the micro batches of an iteration"
    ]


def test_accelerate_reduces_in_the_type_of_a_forward_pass() -> None:
    assert load(LLAMA, *RUN, beside={"a.json": fsdp()}).job.precision.reduced_bytes == 2


OPTIMIZERS = {
    # Gradients (main, waiting) and optimizer state: deepspeed/runtime/engine.py `_do_optimizer_sanity_check`.
    "no ZeRO, bf16 gradients": (zero(0), (2, 0, 12)),
    "no ZeRO, fp32 gradients": (zero(0, accumulated="fp32"), (4, 2, 12 / RANKS)),
    "no ZeRO, fp16": (zero(0, "fp16"), (2, 0, 12)),
    "ZeRO-1, bf16 gradients": (zero(1), (2, 0, 12 / RANKS)),
    "ZeRO-1, fp32 gradients": (zero(1, accumulated="fp32"), (4, 2, 12 / RANKS)),
    "ZeRO-1, fp32 gradients, offloaded": (zero(1, accumulated="fp32", offload_optimizer={"device": "cpu"}), (4, 0, 0)),
}


@pytest.mark.parametrize(("content", "wanted"), OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_bf16_optimizer_divides_its_state_at_any_stage(
    content: dict[str, Any], wanted: tuple[float, float, float]
) -> None:
    held = bytes_a_parameter(content)
    assert [held.get(name, 0) for name in ("gradients", WAITING, "optimizer state")] == pytest.approx(wanted, rel=1e-6)


STEPS = {
    # DeepSpeed 0.19.8 runtime/fp16/fused_optimizer.py, zero/stage_1_and_2.py and zero/stage3.py, `step`.
    "no ZeRO": (zero(0), 4 + 4, 0),
    "no ZeRO, fp16": (zero(0, "fp16"), 4 + 4, 0),
    "ZeRO-1": (zero(1), 2 + 4, 0),
    "ZeRO-2, fp32 gradients": (zero(2, accumulated="fp32"), 4, 0),
    "ZeRO-3": (zero(3), 2 + 4, 10**9),
    "ZeRO-3 in tiles": (zero(3, sub_group_size=1e7), 2 + 4, 10**7),
    "ZeRO-3 in one tile": (zero(3, sub_group_size=1e14), 2 + 4, 0),
    "ZeRO-3 by accelerate": (
        {"distributed_type": "DEEPSPEED", "mixed_precision": "bf16", "deepspeed_config": {"zero_stage": 3}},
        2 + 4,
        10**9,
    ),
    "BF16_Optimizer": (zero(1, accumulated="fp32"), 0, 0),
}
"""A run, the bytes per parameter that its step makes, and the parameters that it takes at a time; 0 for all."""


@pytest.mark.parametrize(("content", "each", "tile"), STEPS.values(), ids=STEPS)
def test_a_step_widens_gradients_as_deepspeed_does(content: dict[str, Any], each: float, tile: int) -> None:
    optimizer = load(LLAMA, *RUN, beside={"ds.json": content}).job.optimizer
    assert (optimizer.step_bytes, optimizer.step_elements, optimizer.state_from_start) == (each, tile, True)


@pytest.mark.parametrize(("content", "said"), [(zero(0), True), (zero(0, "fp16"), False), (zero(1), False)], ids=str)
def test_the_optimizer_that_runs_in_bf16_without_zero_is_assumed_by_name(
    content: dict[str, Any], *, said: bool
) -> None:
    loaded = load(LLAMA, *RUN, beside={"ds.json": content})
    assert any("BF16_Optimizer" in item.why for item in loaded.assumed) is said
    assert not [note for note in loaded.unmodelled if "without ZeRO" in note.what]


def test_bf16_optimizer_has_no_buckets_of_zero() -> None:
    sizes = [
        load(LLAMA, *RUN, beside={"ds.json": zero(1, accumulated=kind)}).job.software.reduction_bucket_bytes
        for kind in ("bf16", "fp32")
    ]
    assert sizes == [10**9, 0]


def launched(batch: dict[str, Any], *arguments: str, cluster: bool = True) -> LoadedConfiguration:
    launcher = {"distributed_type": "DEEPSPEED", "deepspeed_config": {"deepspeed_config_file": "ds.json"}}
    machines = {"num_machines": 2, "num_processes": RANKS} if cluster else {}
    beside = {"launch.yaml": {**launcher, **machines}, "ds.json": {**zero(2), **batch}}
    return load(LLAMA, "seq_length=4096", *arguments, beside=beside)


@pytest.mark.parametrize(
    ("batch", "wanted"),
    [
        # deepspeed/runtime/config.py `_set_batch_related_parameters`
        ({"train_batch_size": 64}, (4, 64)),
        ({"train_batch_size": 64, "gradient_accumulation_steps": 2}, (2, 64)),
        ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 1}, (1, 64)),
    ],
    ids=str,
)
def test_micro_batch_is_what_deepspeed_makes_of_the_total(batch: dict[str, Any], wanted: tuple[int, int]) -> None:
    loaded = launched(batch)
    assert (loaded.job.batch.micro, loaded.job.batch.global_) == wanted
    derived = "train_micro_batch_size_per_gpu" not in batch
    assert any(item.what.startswith("micro batch of") for item in loaded.assumed) is derived


def test_total_that_does_not_divide_over_the_ranks_is_refused() -> None:
    with pytest.raises(BatchIndivisible, match=r"ds.json: train_batch_size: 40 sequences do not divide over 16 data"):
        launched({"train_batch_size": 40})


def test_total_without_a_cluster_says_how_deepspeed_divides_it() -> None:
    with pytest.raises(ConfigurationError, match=r"micro_batch_size=1 \(DeepSpeed makes it 64 / GPUs"):
        launched({"train_batch_size": 64}, cluster=False)


def test_two_types_at_once_are_one_clear_line() -> None:
    both = {**zero(2), "fp16": {"enabled": True}}
    with pytest.raises(ConfigurationError, match=r"ds.json: fp16.enabled: fp16 and bf16 are both enabled"):
        load(LLAMA, *RUN, beside={"ds.json": both})
    with pytest.raises(ConfigurationError, match=r"fp16: fp16 and bf16 are both true"):
        load(LLAMA, *RUN, "bf16=true", "fp16=true", beside={"ds.json": zero(2)})


def test_files_that_contradict_each_other_are_both_named() -> None:
    beside = {"a.yaml": {"distributed_type": "FSDP", "mixed_precision": "bf16"}, "ds.json": zero(2)}
    with pytest.raises(ConfigurationError, match=r"^ds.json: says DeepSpeed, and a.yaml: distributed_type says FSDP"):
        load(LLAMA, *RUN, beside=beside)


def test_state_of_bf16_optimizer_is_divided_as_zero_1_divides_it() -> None:
    job = load(LLAMA, *RUN, beside={"ds.json": zero(0, accumulated="fp32")}).job
    assert job.parallelism.sharding is Sharding.OPTIMIZER
