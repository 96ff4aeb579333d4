"""Files of DeepSpeed, accelerate and the Trainer beside a config.json decide how the run is divided and stored."""

from pathlib import Path
from typing import Any

import pytest

from projector.config import LoadedConfiguration, read
from projector.errors import BatchIndivisible, ConfigurationError, InputError, LayoutImpossible
from projector.job import Dialect, Precision, RecomputeGranularity, Sharding
from tests.config.huggingface.builders import LLAMA, RUN, load

PUBLISHED = Path(__file__).parent / "published"
ZERO: dict[str, Any] = {"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}}
"""ZeRO-3 in bf16."""
FSDP: dict[str, Any] = {"distributed_type": "FSDP", "mixed_precision": "bf16", "fsdp_config": {}}
"""FSDP in bf16, by accelerate."""
MIXED_FSDP = (4, 4, 0, 4, 4, 2)
MIXED_DEEPSPEED = (2, 2, 4, 4, 4, 2)
SINGLE = (4, 4, 0, 4, 4, 4)


def widths(precision: Precision) -> tuple[float, ...]:
    """Bytes of weight, gradient, master weight, both moments and activation."""
    return (
        precision.weight_bytes,
        precision.gradient_bytes,
        precision.master_weight_bytes,
        precision.first_moment_bytes,
        precision.second_moment_bytes,
        precision.activation_bytes,
    )


def published(name: str, *arguments: str) -> LoadedConfiguration:
    return load(LLAMA, *RUN, *arguments, beside={name: (PUBLISHED / name).read_text(encoding="utf-8")})


def decisive(loaded: LoadedConfiguration) -> list[str]:
    return [note.what.split(" (")[0] for note in loaded.unmodelled if note.decides]


@pytest.mark.parametrize(
    ("name", "arguments", "wanted"),
    [
        ("transformers_zero3.json", (), (Sharding.PARAMETERS, MIXED_DEEPSPEED, 1.0, *(None, None))),
        ("llamafactory_zero2_offload.json", ("bf16=true",), (Sharding.GRADIENTS, MIXED_DEEPSPEED, 1.0, *(None, None))),
        ("llamafactory_fsdp_two_nodes.yaml", (), (Sharding.PARAMETERS, MIXED_FSDP, 0.0, *(2, 8))),
        ("llamafactory_fsdp2.yaml", (), (Sharding.PARAMETERS, MIXED_FSDP, 0.0, *(1, 2))),
        ("handbook_zero3.yaml", (), (Sharding.PARAMETERS, MIXED_DEEPSPEED, 1.0, *(1, 1))),
    ],
)
def test_published_file_is_understood_whole(name: str, arguments: tuple[str, ...], wanted: tuple[object, ...]) -> None:
    loaded = published(name, *arguments)
    job = loaded.job
    cluster = (loaded.nodes, loaded.devices_per_node)
    stated = (job.parallelism.sharding, widths(job.precision), job.optimizer.offload_fraction, *cluster)
    assert stated == wanted
    assert job.software.dialect is Dialect.TORCHTITAN
    assert [note.what for note in loaded.unmodelled if "not a key" in note.effect] == []


@pytest.mark.parametrize("name", ["transformers_zero3.json", "handbook_zero3.yaml"])
def test_offloaded_weights_and_gradients_live_on_the_host(name: str) -> None:
    loaded = published(name)
    assert decisive(loaded) == []
    assert loaded.job.optimizer.offload_shards


def test_weights_that_leave_the_device_without_their_state_leave_no_verdict() -> None:
    alone = {**ZERO, "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}
    loaded = load(LLAMA, *RUN, beside={"ds.json": alone})
    assert decisive(loaded) == ["offloading of weights to the host without all of the optimizer state"]


def test_deepspeed_file_that_accelerate_refers_to_is_asked_for_and_then_decides() -> None:
    launcher = (PUBLISHED / "llamafactory_deepspeed_nodes.yaml").read_text(encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"ds_z3_offload_config.json' decides the run and was not given"):
        load(LLAMA, *RUN, beside={"launch.yaml": launcher})
    loaded = load(LLAMA, *RUN, beside={"launch.yaml": launcher, "ds.json": ZERO})
    assert loaded.job.parallelism.sharding is Sharding.PARAMETERS
    assert widths(loaded.job.precision) == MIXED_DEEPSPEED


@pytest.mark.parametrize("stage", range(4))
def test_zero_stage_divides_what_the_paper_says(stage: int) -> None:
    loaded = load(LLAMA, *RUN, beside={"ds.json": {**ZERO, "zero_optimization": {"stage": stage}}})
    assert loaded.job.parallelism.sharding is list(Sharding)[stage]
    assert loaded.job.precision.gradient_bytes == 2


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"fp16": {"enabled": True}, "bf16": {"enabled": False}}, MIXED_DEEPSPEED),
        ({"data_types": {"grad_accum_dtype": "fp32"}}, (2, 4, 4, 4, 4, 2)),
        ({"bf16": {"enabled": False}}, SINGLE),
        ({"optimizer": {"type": "Lion"}}, (2, 2, 4, 4, 0, 2)),
        ({"optimizer": {"type": "SGD", "params": {"momentum": 0.9}}}, (2, 2, 4, 4, 0, 2)),
        ({"optimizer": {"type": "SGD", "params": {"momentum": 0}}}, (2, 2, 4, 0, 0, 2)),
    ],
    ids=str,
)
def test_deepspeed_decides_widths(change: dict[str, Any], wanted: tuple[int, ...]) -> None:
    assert widths(load(LLAMA, *RUN, beside={"ds.json": {**ZERO, **change}}).job.precision) == wanted


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("optim=adamw_8bit",), (2, 2, 4, 1, 1, 2)),
        (("optim=paged_adamw_8bit",), (2, 2, 4, 1, 1, 2)),
        # Joined to one vector, no parameter has rows and columns.
        (("optim=adafactor",), (2, 2, 4, 0, 4, 2)),
        (("bf16=false",), SINGLE),
    ],
    ids=lambda value: value[0] if isinstance(value[0], str) else "",
)
def test_what_a_person_says_goes_before_the_file(arguments: tuple[str, ...], wanted: tuple[int, ...]) -> None:
    assert widths(load(LLAMA, *RUN, *arguments, beside={"ds.json": ZERO}).job.precision) == wanted


@pytest.mark.parametrize(
    ("batch", "arguments", "wanted"),
    [
        # micro batch, accumulation, global batch
        ({}, (), (1, 1, None)),
        ({"gradient_accumulation_steps": 4}, (), (1, 4, None)),
        ({"train_batch_size": 64}, (), (1, 1, 64)),
        ({"train_batch_size": 64, "gradient_accumulation_steps": 4}, (), (1, 1, 64)),
        ({"train_batch_size": 64, "gradient_accumulation_steps": 4}, ("gradient_accumulation_steps=2",), (1, 2, None)),
        ({"train_batch_size": 64, "gradient_accumulation_steps": 4}, ("global_batch_size=96",), (1, 1, 96)),
        ({"gradient_accumulation_steps": 4}, ("global_batch_size=96",), (1, 1, 96)),
        ({"train_batch_size": "auto", "gradient_accumulation_steps": "auto"}, ("global_batch_size=96",), (1, 1, 96)),
    ],
    ids=str,
)
def test_batch_comes_from_the_file_unless_a_person_says_otherwise(
    batch: dict[str, Any], arguments: tuple[str, ...], wanted: tuple[int, int, int | None]
) -> None:
    stated = load(LLAMA, *RUN, *arguments, beside={"ds.json": {**ZERO, **batch}}).job.batch
    assert (stated.micro, stated.micro_batches, stated.global_) == wanted


def test_micro_batch_has_one_name_whatever_the_file_calls_it() -> None:
    beside = {"ds.json": {**ZERO, "train_micro_batch_size_per_gpu": 4}}
    assert load(LLAMA, "seq_length=4096", beside=beside).job.batch.micro == 4
    for name in ("micro_batch_size", "train_micro_batch_size_per_gpu", "per_device_train_batch_size"):
        assert load(LLAMA, "seq_length=4096", f"{name}=2", beside=beside).job.batch.micro == 2


def test_keys_of_a_file_may_be_overridden() -> None:
    loaded = load(LLAMA, *RUN, "zero_optimization.stage=1", beside={"ds.json": ZERO})
    assert loaded.job.parallelism.sharding is Sharding.OPTIMIZER


@pytest.mark.parametrize(
    ("stated", "sharding", "degree", "wanted"),
    [
        ({"fsdp_sharding_strategy": "FULL_SHARD"}, Sharding.PARAMETERS, None, MIXED_FSDP),
        ({"fsdp_sharding_strategy": 1}, Sharding.PARAMETERS, None, MIXED_FSDP),
        ({"fsdp_sharding_strategy": 2}, Sharding.GRADIENTS, None, (2, 4, 4, 4, 4, 2)),
        ({"fsdp_sharding_strategy": "NO_SHARD"}, Sharding.NONE, None, MIXED_FSDP),
        ({"fsdp_sharding_strategy": "HYBRID_SHARD"}, Sharding.PARAMETERS, 8, MIXED_FSDP),
        ({"fsdp_version": 2, "fsdp_reshard_after_forward": True}, Sharding.PARAMETERS, None, MIXED_FSDP),
        ({"fsdp_version": 2, "fsdp_reshard_after_forward": False}, Sharding.GRADIENTS, None, (2, 4, 4, 4, 4, 2)),
        ({}, Sharding.PARAMETERS, None, MIXED_FSDP),
    ],
    ids=str,
)
def test_fsdp_strategy_divides_what_its_name_says(
    stated: dict[str, Any], sharding: Sharding, degree: int | None, wanted: tuple[int, ...]
) -> None:
    job = load(LLAMA, *RUN, beside={"fsdp.yaml": {**FSDP, "fsdp_config": stated}}).job
    assert (job.parallelism.sharding, job.parallelism.shard_degree) == (sharding, degree)
    assert widths(job.precision) == wanted


def test_hybrid_shards_lie_within_the_nodes_that_the_file_states() -> None:
    stated = {**FSDP, "fsdp_config": {"fsdp_sharding_strategy": "HYBRID_SHARD"}, "num_machines": 4, "num_processes": 16}
    assert load(LLAMA, *RUN, beside={"fsdp.yaml": stated}).job.parallelism.shard_degree == 4


def test_file_of_the_trainer_says_what_accelerate_says() -> None:
    trainer = {"fsdp_transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"], "activation_checkpointing": True}
    job = load(LLAMA, *RUN, "bf16=true", "fsdp=hybrid_shard auto_wrap", beside={"fsdp.json": trainer}).job
    assert (job.parallelism.sharding, job.parallelism.shard_degree) == (Sharding.PARAMETERS, 8)
    assert job.recompute.granularity is RecomputeGranularity.FULL


@pytest.mark.parametrize(
    ("beside", "argument"),
    [
        ({"fsdp.yaml": {**FSDP, "fsdp_config": {"fsdp_activation_checkpointing": "true"}}}, ""),
        ({"ds.json": ZERO}, "gradient_checkpointing=true"),
    ],
    ids=["FSDP", "Trainer"],
)
def test_checkpointing_recomputes_every_layer(beside: dict[str, Any], argument: str) -> None:
    recompute = load(LLAMA, *RUN, *([argument] if argument else []), beside=beside).job.recompute
    assert (recompute.granularity, recompute.layers) == (RecomputeGranularity.FULL, 1)


def test_mesh_of_accelerate_is_the_layout() -> None:
    mesh = {"tp_size": 2, "cp_size": 4, "dp_shard_size": 2, "dp_replicate_size": 2}
    stated = {**FSDP, "parallelism_config": {f"parallelism_config_{key}": value for key, value in mesh.items()}}
    layout = load(LLAMA, *RUN, beside={"fsdp.yaml": stated}).job.parallelism
    assert (layout.tensor, layout.context, layout.shard_degree) == (2, 4, 8)


def test_megatron_of_accelerate_is_a_run_of_megatron() -> None:
    section = {"tp_degree": 4, "pp_degree": 2, "num_micro_batches": 8, "sequence_parallelism": "true"}
    stated = {
        "distributed_type": "MEGATRON_LM",
        "mixed_precision": "bf16",
        "megatron_lm_config": {f"megatron_lm_{key}": value for key, value in section.items()},
    }
    job = load(LLAMA, *RUN, beside={"a.yaml": stated}).job
    assert (job.parallelism.tensor, job.parallelism.pipeline, job.batch.micro_batches) == (4, 2, 8)
    assert (job.software.dialect, job.parallelism.sequence_parallel) == (Dialect.MEGATRON_TE, True)


def test_autocast_of_plain_data_parallelism_leaves_no_verdict() -> None:
    stated = {"distributed_type": "MULTI_GPU", "mixed_precision": "bf16"}
    assert decisive(load(LLAMA, *RUN, beside={"a.yaml": stated})) == ["torch.autocast under DistributedDataParallel"]


def test_prediction_layers_are_not_trained_by_hugging_face() -> None:
    model = {"model_type": "deepseek_v3", "num_hidden_layers": 4, "num_nextn_predict_layers": 1}
    assert load(model, *RUN).job.model.multi_token_prediction_layers == 1
    assert load(model, *RUN, beside={"ds.json": ZERO}).job.model.multi_token_prediction_layers == 0


def test_key_that_nobody_knows_is_named() -> None:
    loaded = load(LLAMA, *RUN, beside={"ds.json": {**ZERO, "flux": {"capacitor": 1.21}}})
    assert [note.what for note in loaded.unmodelled if "not a key" in note.effect] == ["flux.capacitor"]


@pytest.mark.parametrize(
    ("beside", "arguments", "kind", "wanted"),
    [
        ({"x.json": {"a": 1}}, RUN, ConfigurationError, r"x.json: not a file that is known beside a config.json"),
        ({"x.json": "{"}, RUN, ConfigurationError, r"x.json:1:2: not JSON"),
        (
            {"a.json": ZERO, "b.json": ZERO},
            RUN,
            ConfigurationError,
            r"b.json: a second DeepSpeed configuration beside a",
        ),
        (
            {"ds.json": {**ZERO, "zero_optimization": {"stage": 4}}},
            RUN,
            ConfigurationError,
            r"ds.json: zero_optimization.stage: 4 is a number; expected an integer of at most 3",
        ),
        (
            {"ds.json": {**ZERO, "train_batch_size": 30, "gradient_accumulation_steps": 4}},
            RUN,
            BatchIndivisible,
            r"ds.json: train_batch_size: 30 is not a batch of 1 x 4 accumulation steps",
        ),
        ({"ds.json": {"zero_optimization": {}, "bf16": {"enabled": "auto"}}}, (), ConfigurationError, r"bf16 are not"),
        ({"ds.json": ZERO}, (*RUN, "optim=galore_adamw"), ConfigurationError, r"'galore_adamw' is not known"),
        ({"ds.json": ZERO}, (*RUN, "pipeline_model_parallel_size=2"), ConfigurationError, r"under DeepSpeed or FSDP"),
        ({"ds.json": ZERO}, (*RUN, "flux=2"), ConfigurationError, r"override flux: is not a value of a run"),
        ({"a.yaml": {**FSDP, "distributed_type": "TPU"}}, RUN, ConfigurationError, r"distributed_type: 'TPU' is not"),
        ({"a.yaml": {**FSDP, "fsdp_config": {"fsdp_sharding_strategy": 9}}}, RUN, ConfigurationError, r"'9' is not a"),
        ({"a.yaml": {**FSDP, "num_machines": 3, "num_processes": 8}}, RUN, LayoutImpossible, r"8 processes do not"),
        (
            {"a.yaml": {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 2}}, "ds.json": ZERO},
            RUN,
            ConfigurationError,
            r"says .*, and .* says ",
        ),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_wrong_file_is_one_clear_line(
    beside: dict[str, Any], arguments: tuple[str, ...], kind: type[InputError], wanted: str
) -> None:
    with pytest.raises(kind, match=wanted):
        load(LLAMA, *arguments, beside=beside)


def test_all_that_is_missing_is_listed_at_once() -> None:
    with pytest.raises(ConfigurationError, match=r"seq_length, micro_batch_size are not stated; say seq_length=4096"):
        load({**LLAMA, "max_position_embeddings": 8192})


@pytest.mark.parametrize(
    ("argument", "wanted"),
    [
        ("swiglu=true", "override swiglu: config.json describes the model here"),
        ("micro_batch_sise=2", "override micro_batch_sise: is not a value of .* did you mean micro_batch_size"),
        ("use_turbo_deepep=true", ""),
    ],
)
def test_arguments_of_megatron_are_those_of_a_run(argument: str, wanted: str) -> None:
    if not wanted:
        assert load(LLAMA, *RUN, argument).values["use_turbo_deepep"].value is True
        return
    with pytest.raises(ConfigurationError, match=wanted):
        load(LLAMA, *RUN, argument)


@pytest.mark.parametrize("argument", ["use_turbo_deepep=true", "expert_model_parallel_size=8"])
def test_arguments_of_megatron_mean_nothing_under_deepspeed(argument: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not a value of a run under DeepSpeed or FSDP"):
        load(LLAMA, *RUN, argument, beside={"ds.json": ZERO})


def test_no_file_beside_means_megatron_with_what_is_assumed_said() -> None:
    loaded = load(LLAMA, *RUN, "tensor_model_parallel_size=4", "global_batch_size=64")
    job = loaded.job
    assert (job.software.dialect, job.parallelism.tensor, job.batch.global_) == (Dialect.MEGATRON_TE, 4, 64)
    assert job.parallelism.sharding is Sharding.OPTIMIZER
    assert widths(job.precision) == (2, 4, 4, 4, 4, 2)
    assert "Megatron-LM with Transformer Engine, bf16, distributed optimizer" in loaded.assumed[0].what


def test_dialect_that_states_everything_takes_no_file_beside() -> None:
    text = "work_group: a\nuser_name: b\nexp_name: c\nworkspace: d\nmodules: {}\n"
    with pytest.raises(ConfigurationError, match=r"ds.json: stands beside a configuration of the format primus"):
        read(text, name="exp.yaml", companions={"ds.json": "{}"})
