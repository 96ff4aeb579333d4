"""What files beside a config.json say in part, in passing or in other words is counted, or named; never dropped."""

import inspect
import re
from typing import Any

import pytest

from projector.config import LoadedConfiguration
from projector.config.huggingface.facts import huggingface_facts
from projector.config.huggingface.setup import Kind, file_facts
from projector.config.optimizers import optimizers
from projector.errors import ConfigurationError
from projector.job import Dialect, OptimizerKind, Sharding
from projector.provenance import Unmodelled
from tests.config.huggingface.builders import LLAMA, RUN, load

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
GIB = 1024**3
WIDTH = LLAMA["hidden_size"]
BUCKET = 5e8
"""Gradients in a bucket of DeepSpeed by default (deepspeed/runtime/zero/config.py)."""


def zero(number: int, /, **section: object) -> dict[str, Any]:
    return {"zero_optimization": {"stage": number, **section}, "bf16": {"enabled": True}}


def megatron(precision: object = "bf16", **section: object) -> dict[str, Any]:
    values = {f"megatron_lm_{key}": value for key, value in section.items()}
    return {"distributed_type": "MEGATRON_LM", "mixed_precision": precision, "megatron_lm_config": values}


def fsdp(**section: object) -> dict[str, Any]:
    return {"distributed_type": "FSDP", "mixed_precision": "bf16", "fsdp_config": section}


def beside(content: dict[str, Any], *arguments: str) -> LoadedConfiguration:
    return load(LLAMA, *RUN, *arguments, beside={"file.json": content})


def noted(loaded: LoadedConfiguration, word: str) -> list[Unmodelled]:
    return [note for note in loaded.unmodelled if word in note.what]


def assumed(loaded: LoadedConfiguration) -> str:
    return "\n".join(f"{item.what}: {item.why}" for item in loaded.assumed)


BUCKETS = {
    "not divided": (zero(0), 0),
    "ZeRO-1": (zero(1), BUCKET * 2),
    "ZeRO-2": (zero(2), BUCKET * 2),
    "ZeRO-2 overlapped": (zero(2, overlap_comm=True), BUCKET * 2 * 2),
    "ZeRO-3": (zero(3), BUCKET * 2),
    "ZeRO-3 overlapped": (zero(3, overlap_comm=True), BUCKET * 2),
    "another size": (zero(3, reduce_bucket_size=2e8), 2e8 * 2),
    "filled by the Trainer": (zero(3, reduce_bucket_size="auto"), WIDTH * WIDTH * 2),
    "reduced in fp32": ({**zero(2), "communication_data_type": "fp32"}, BUCKET * 4),
    "reduced in fp32, as it was said": ({**zero(2), "fp32_allreduce": True}, BUCKET * 4),
    "trained in fp32": ({"zero_optimization": {"stage": 2}}, BUCKET * 4),
    "no buffer": (zero(2, contiguous_gradients=False), 0),
    "by accelerate": (
        {"distributed_type": "DEEPSPEED", "mixed_precision": "bf16", "deepspeed_config": {"zero_stage": 3}},
        BUCKET * 2,
    ),
    "FSDP": (fsdp(), 0),
}


@pytest.mark.parametrize(("content", "wanted"), BUCKETS.values(), ids=BUCKETS)
def test_buckets_are_as_large_as_deepspeed_allocates_them(content: dict[str, Any], wanted: float) -> None:
    assert beside(content).job.software.reduction_bucket_bytes == wanted


@pytest.mark.parametrize(("stage", "overlap", "wanted"), [(1, None, False), (3, None, True), (2, True, True)])
def test_reduction_runs_beside_backward_where_deepspeed_overlaps_it(
    stage: int, *, overlap: bool | None, wanted: bool
) -> None:
    section = {} if overlap is None else {"overlap_comm": overlap}
    assert beside(zero(stage, **section)).job.software.overlap_gradient_reduce is wanted


@pytest.mark.parametrize(("live", "gib", "decides"), [(1e9, 1.9, False), (3e9, 5.6, True)])
def test_weights_that_stay_gathered_are_named_with_their_size(live: float, gib: float, *, decides: bool) -> None:
    (note,) = noted(beside(zero(3, stage3_max_live_parameters=live)), "gathered weights")
    assert (f"up to {gib} GiB" in note.effect, note.decides) == (True, decides)
    assert noted(beside(zero(2)), "gathered weights") == []


INFLUENCE = {
    "stage3_param_persistence_threshold": zero(3, stage3_param_persistence_threshold=10**7),
    "communication_data_type": {**zero(2), "communication_data_type": "fp32"},
    "partition_activations": {**zero(2), "activation_checkpointing": {"partition_activations": True}},
    "cpu_checkpointing": {**zero(2), "activation_checkpointing": {"cpu_checkpointing": True}},
}


@pytest.mark.parametrize(("word", "content"), INFLUENCE.items(), ids=INFLUENCE)
def test_key_with_an_influence_is_never_listed_as_ignored(word: str, content: dict[str, Any]) -> None:
    loaded = beside(content)
    assert len(noted(loaded, word)) == 1
    assert not any(word in key for key in loaded.ignored)


@pytest.mark.parametrize(("key", "usual"), [("stage3_param_persistence_threshold", 1e5), ("sub_group_size", 1e9)])
@pytest.mark.parametrize("written", [float, int])
def test_default_of_deepspeed_is_nothing_to_note(key: str, usual: float, written: type) -> None:
    assert noted(beside(zero(3, **{key: written(usual)})), key) == []


REFUSED = {
    "stage": (zero(3, stage="auto"), r"zero_optimization.stage: 'auto' is a text"),
    "offload device": (zero(3, offload_optimizer={"device": "auto"}), r"'auto' is not known"),
    "overlap": (zero(3, overlap_comm="auto"), r"overlap_comm: 'auto' is a text"),
    "stage of accelerate": (
        {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": "auto"}},
        r"zero_stage: 'auto' is a text",
    ),
    "no such stage": (
        {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 7}},
        r"deepspeed_config.zero_stage: 7 is a number; expected an integer of at most 3",
    ),
    "no such type": ({**zero(2), "communication_data_type": "fp8"}, r"communication_data_type: 'fp8' is a text"),
}


@pytest.mark.parametrize(("content", "wanted"), REFUSED.values(), ids=REFUSED)
def test_value_that_the_framework_refuses_is_refused(content: dict[str, Any], wanted: str) -> None:
    with pytest.raises(ConfigurationError, match=wanted):
        beside(content)


@pytest.mark.parametrize(("section", "key"), [("tensor_parallel", "autotp_size"), ("pipeline", "stages")])
def test_degree_that_nobody_fills_leaves_no_verdict(section: str, key: str) -> None:
    (note,) = noted(beside({**zero(2), section: {key: "auto"}}), key)
    assert note.decides


def test_auto_stands_where_the_trainer_fills_it() -> None:
    source = inspect.getsource(transformers.integrations.deepspeed.HfTrainerDeepSpeedConfig)
    filled = set(re.findall(r'fill_(?:match|only)\(\s*"([\w.]+)"', source))
    old = {"amp.enabled", "amp.opt_level"}
    assert file_facts(Kind.DEEPSPEED).filled == filled | old
    said = assumed(beside({**zero(3, reduce_bucket_size="auto"), "amp": {"enabled": "auto"}}))
    assert "zero_optimization.reduce_bucket_size is auto" in said
    assert "amp.enabled is auto" in said


def test_stage_of_accelerate_is_assumed_by_name() -> None:
    content = {"distributed_type": "DEEPSPEED", "mixed_precision": "bf16", "deepspeed_config": {}}
    loaded = beside(content)
    assert loaded.job.parallelism.sharding is Sharding.GRADIENTS
    assert "ZeRO stage 2: the default of accelerate" in assumed(loaded)
    stated = beside({**content, "deepspeed_config": {"zero_stage": 2}})
    assert "ZeRO stage" not in assumed(stated)


OFFLOADED = {
    "in words": ({"auto_wrap_policy": "x"}, ("bf16=true", "fsdp=full_shard offload auto_wrap")),
    "in the Trainer's file": ({"cpu_offload": True}, ("bf16=true",)),
    "in the Trainer's file beside words": ({"cpu_offload": "true"}, ("bf16=true", "fsdp=full_shard")),
    "in accelerate's file": (fsdp(fsdp_offload_params=True), ()),
}


@pytest.mark.parametrize(("content", "arguments"), OFFLOADED.values(), ids=OFFLOADED)
def test_offloading_moves_the_shards_of_fsdp_to_the_host(content: dict[str, Any], arguments: tuple[str, ...]) -> None:
    optimizer = beside(content, *arguments).job.optimizer
    assert (optimizer.offload_shards, optimizer.offload_fraction) == (True, 1.0)


def test_gradients_beside_whole_weights_are_an_upper_bound_when_offloaded() -> None:
    content = fsdp(fsdp_sharding_strategy="SHARD_GRAD_OP", fsdp_offload_params="true")
    (note,) = noted(beside(content), "FSDP's gradients")
    assert (note.decides, note.overstates) == (False, True)
    assert noted(beside(fsdp(fsdp_offload_params=True)), "FSDP's gradients") == []


QUOTED = {
    "offload": (fsdp(fsdp_offload_params="false"), ()),
    "offload in capitals": (fsdp(fsdp_offload_params="False"), ()),
    "the Trainer's": ({"xla": "false", "cpu_offload": "false", "xla_fsdp_v2": "false"}, ("bf16=true",)),
    "dynamo": ({**fsdp(), "dynamo_backend": "false"}, ()),
}


@pytest.mark.parametrize(("content", "arguments"), QUOTED.values(), ids=QUOTED)
def test_quoted_false_switches_nothing_on(content: dict[str, Any], arguments: tuple[str, ...]) -> None:
    loaded = beside(content, *arguments)
    assert loaded.unmodelled == ()
    assert loaded.job.optimizer.offload_shards is False


@pytest.mark.parametrize(
    ("precision", "weight", "gradient"), [("bf16", 2, 4), ("fp16", 2, 2), ("no", 4, 4), (False, 4, 4)], ids=str
)
def test_precision_of_accelerate_reaches_megatron(precision: object, weight: int, gradient: int) -> None:
    kept = beside(megatron(precision)).job.precision
    assert (kept.weight_bytes, kept.gradient_bytes, kept.activation_bytes) == (weight, gradient, weight)


def test_person_goes_before_the_precision_of_accelerate() -> None:
    assert beside(megatron("no"), "bf16=true").job.precision.weight_bytes == 2


@pytest.mark.parametrize("stated", [True, False])
def test_megatron_of_accelerate_is_what_its_file_says_and_accelerate_defaults_to(*, stated: bool) -> None:
    section = {"use_distributed_optimizer": True, "sequence_parallelism": True} if stated else {}
    loaded = beside(megatron(tp_degree=2, **section))
    layout = loaded.job.parallelism
    assert loaded.job.software.dialect is Dialect.MEGATRON_TE
    assert (layout.sharding, layout.sequence_parallel) == (Sharding.OPTIMIZER if stated else Sharding.NONE, stated)
    said = assumed(loaded)
    assert "file.json: distributed_type says MEGATRON_LM" in said
    assert "no file of" not in said
    assert ("without use_distributed_optimizer" in said) is not stated


def test_batch_that_replaces_the_micro_batches_of_accelerate_says_so() -> None:
    content = megatron(num_micro_batches=8)
    assert beside(content).job.batch.micro_batches == 8
    loaded = beside(content, "global_batch_size=64")
    assert loaded.job.batch.global_ == 64
    assert "64 sequences an iteration, and not 8 micro batches" in assumed(loaded)


LACKING = {
    "lion_32bit": False,
    "lion_8bit": False,
    "adafactor": False,
    "adagrad": False,
    "rmsprop": False,
}


@pytest.mark.parametrize(("name", "decides"), LACKING.items(), ids=LACKING)
def test_optimizer_that_stands_in_for_another_is_named(name: str, *, decides: bool) -> None:
    (note,) = noted(beside(zero(2), f"optim={name}"), f"the optimizer {name}")
    assert note.decides is decides


@pytest.mark.parametrize(
    "name",
    ["adamw_torch", "sgd", "paged_adamw_32bit", "adamw_bnb_8bit", "paged_adamw_8bit", "adamw_torch_8bit", "muon"],
)
def test_optimizer_that_is_counted_as_it_is_is_not_noted(name: str) -> None:
    assert noted(beside(zero(2), f"optim={name}"), "the optimizer") == []


def test_lion_steps_like_sgd() -> None:
    assert beside(zero(2), "optim=lion_32bit").job.optimizer.kind is OptimizerKind.SGD


def test_every_framework_finds_its_optimizers_in_one_table() -> None:
    rules = {
        name for framework in ("huggingface", "megatron", "torchtitan", "maxtext") for name in optimizers(framework)
    }
    assert {"adamw_bnb_8bit", "dist_muon", "DistMuon", "adam_pax"} <= rules


QUANTIZED = {
    "bitsandbytes": ({"load_in_4bit": True, "quant_method": "bitsandbytes"}, True),
    "GPTQ": ({"bits": 4, "quant_method": "gptq"}, True),
    "nobody says which": ({"load_in_8bit": True}, True),
    "DeepSeek-V3's fp8": ({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}, False),
    "gpt-oss's MXFP4": ({"quant_method": "mxfp4"}, False),
}


@pytest.mark.parametrize(("section", "decides"), QUANTIZED.values(), ids=QUANTIZED)
def test_quantised_weights_leave_no_verdict_unless_they_are_widened(section: dict[str, Any], *, decides: bool) -> None:
    loaded = load({**LLAMA, "quantization_config": section}, *RUN)
    (note,) = noted(loaded, "low precision")
    assert note.decides is decides


def test_formats_that_are_widened_are_those_that_transformers_can_widen() -> None:
    classes = transformers.quantizers.auto.AUTO_QUANTIZATION_CONFIG_MAPPING
    for method in huggingface_facts().widened:
        assert "dequantize" in inspect.signature(classes[method].__init__).parameters


KEYS = [(Kind.DEEPSPEED, zero(3)), (Kind.ACCELERATE, fsdp()), (Kind.FSDP, {"auto_wrap_policy": "x"})]


@pytest.mark.parametrize(("kind", "content"), KEYS, ids=[kind for kind, _ in KEYS])
def test_key_that_decides_may_be_given_beside_a_file_that_leaves_it_out(kind: Kind, content: dict[str, Any]) -> None:
    facts = file_facts(kind)
    assert not facts.decides & facts.ignored
    for key in sorted(facts.decides):
        try:
            beside(content, "bf16=true", f"{key}=true")
        except ConfigurationError as error:
            assert "is not a value of" not in str(error)  # noqa: PT017 - the value may be wrong, the key is not


@pytest.mark.parametrize("key", ["packing", "neat_packing"])
def test_packing_keeps_attention_inside_samples(key: str) -> None:
    """TRL's `packing` and LLaMA-Factory's `neat_packing` hand the ends of samples to flash attention."""
    beside = {"zero.json": zero(2)}
    assert load(LLAMA, *RUN, f"{key}=true", beside=beside).job.batch.masks_samples
    assert not load(LLAMA, *RUN, beside=beside).job.batch.masks_samples
