"""What Megatron-LM's arguments mean as its own parser sees them: defaults, older spellings, forks."""

from typing import Any

import pytest

from projector.errors import ConfigurationError, InputError
from projector.job import (
    Dialect,
    ExpertDispatch,
    NormKind,
    OptimizerKind,
    PositionKind,
    RecomputeGranularity,
    RecomputeMethod,
    Sharding,
    UnmodelledMixer,
)
from tests.config.megatron.builders import BASE, arguments, assumed, load, unmodelled


def test_what_nobody_states_is_megatrons_default() -> None:
    job = arguments().job
    assert not job.model.layers[0].feed_forward.gated  # type: ignore[union-attr]
    assert job.model.tied_embeddings
    assert job.model.norm is NormKind.LAYER
    assert job.model.position is PositionKind.LEARNED
    assert job.parallelism.sharding is Sharding.NONE
    assert not job.parallelism.sequence_parallel
    assert not job.parallelism.spread_remainder
    assert (job.precision.weight_bytes, job.precision.master_weight_bytes) == (4, 0)
    assert (job.software.attention_dropout, job.software.hidden_dropout) == (0.1, 0.1)
    assert (job.software.dialect, job.software.flash_attention) == (Dialect.MEGATRON_TE, False)
    assert arguments("--bf16").job.software.flash_attention


def test_without_a_global_batch_every_rank_trains_one_micro_batch() -> None:
    loaded = load(BASE.replace("--global-batch-size 8", ""))
    assert (loaded.job.batch.global_, loaded.job.batch.micro_batches) == (None, 1)
    assert "global_batch_size" in assumed(loaded)


BATCHES = {"threshold pairs": "0:384 97656250:768 195312500:1152", "with commas": "0:384,100B:1152"}


@pytest.mark.parametrize("name", BATCHES)
def test_a_schedule_of_batches_ends_with_the_one_that_counts(name: str) -> None:
    text = BASE.replace("--global-batch-size 8", f"--step-batch-size-schedule '{BATCHES[name]}'")
    assert load(text).job.batch.global_ == 1152


ENDS = " --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"
MEANINGS: dict[str, tuple[str, Any, Any]] = {
    "the former rotary flag": ("--use-rotary-position-embeddings", lambda job: job.model.position, PositionKind.ROTARY),
    "no positions at all": ("--no-position-embedding", lambda job: job.model.position, PositionKind.NONE),
    "one group without a number": (
        "--group-query-attention",
        lambda job: job.model.layers[0].mixer.key_value_heads,
        1,
    ),
    "groups of DeepSpeed's fork": ("--num-key-value-heads 4", lambda job: job.model.layers[0].mixer.key_value_heads, 4),
    "learnable sinks": ("--softmax-type learnable", lambda job: job.model.layers[0].mixer.sinks, True),
    "recompute-activations beats the granularity": (
        "--recompute-activations --recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
        lambda job: job.recompute.granularity,
        RecomputeGranularity.SELECTIVE,
    ),
    "checkpoint-activations of old": (
        "--checkpoint-activations",
        lambda job: (job.recompute.granularity, job.recompute.method, job.recompute.layers),
        (RecomputeGranularity.FULL, RecomputeMethod.UNIFORM, 1),
    ),
    "the former names of its method": (
        "--checkpoint-activations --activations-checkpoint-method block --activations-checkpoint-num-layers 3",
        lambda job: (job.recompute.method, job.recompute.layers),
        (RecomputeMethod.BLOCK, 3),
    ),
    "model-parallel-size": ("--model-parallel-size 4", lambda job: job.parallelism.tensor, 4),
    "fp8-e4m3": ("--bf16 --fp8-e4m3", lambda job: job.precision.low_precision is not None, True),
    "fp16 gradients": ("--fp16", lambda job: job.precision.gradient_bytes, 2),
    "fp32 gradients under fp16": (
        "--fp16 --accumulate-allreduce-grads-in-fp32",
        lambda job: job.precision.gradient_bytes,
        4,
    ),
    "layers per virtual stage": (
        "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1",
        lambda job: job.parallelism.virtual_pipeline,
        4,
    ),
    "virtual stages per rank": (
        "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 4",
        lambda job: job.parallelism.virtual_pipeline,
        4,
    ),
    "ends that count as layers": (
        "--num-layers 6 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2" + ENDS,
        lambda job: job.parallelism.virtual_pipeline,
        2,
    ),
    "fully sharded weights": (
        "--use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward",
        lambda job: (job.parallelism.sharding, job.parallelism.reshard_after_forward),
        (Sharding.PARAMETERS, False),
    ),
    "Megatron-FSDP shards all by default": (
        "--use-megatron-fsdp",
        lambda job: job.parallelism.sharding,
        Sharding.PARAMETERS,
    ),
    "copies of the distributed optimizer": (
        "--use-distributed-optimizer --num-distributed-optimizer-instances 2",
        lambda job: job.parallelism.replicas,
        2,
    ),
    "ZeRO stages of Megatron-DeepSpeed": (
        "--deepspeed --zero-stage=2",
        lambda job: job.parallelism.sharding,
        Sharding.GRADIENTS,
    ),
    "layers of its own need to be told to use flash attention": (
        "--transformer-impl local",
        lambda job: (job.software.dialect, job.software.flash_attention),
        (Dialect.MEGATRON_LOCAL, False),
    ),
    "a list in brackets without quotes": (
        "--num-experts 4 --moe-layer-freq [0,1,1,1,1,1,1,1]",
        lambda job: [type(layer.feed_forward).__name__ for layer in job.model.layers[:2]],
        ["DenseMLP", "MixtureOfExperts"],
    ),
    "a list as an expression": (
        "--num-experts 4 --moe-layer-freq '([0]*3+[1]*5)'",
        lambda job: sum(type(layer.feed_forward).__name__ == "MixtureOfExperts" for layer in job.model.layers),
        5,
    ),
    "underscores in numbers": ("--hidden-size 4_096", lambda job: job.model.hidden, 4096),
    "the last of two": ("--hidden-size 512 --hidden-size=2048", lambda job: job.model.hidden, 2048),
}


@pytest.mark.parametrize("name", MEANINGS)
def test_it_means(name: str) -> None:
    words, value, expected = MEANINGS[name]
    assert value(arguments(words).job) == expected


OPTIMIZERS = {
    "adam": (OptimizerKind.ADAM, 4, 4, None),
    "adamw": (OptimizerKind.ADAM, 4, 4, None),
    "adamw-bnb-8bit": (OptimizerKind.ADAM, 1, 1, None),
    "sgd": (OptimizerKind.SGD, 4, 0, None),
    "lion": (OptimizerKind.SGD, 4, 0, False),
    "dist_muon": (OptimizerKind.MUON, 4, 0, None),
    "adaptive_muon": (OptimizerKind.MUON, 4, 4, None),
    "soap": (OptimizerKind.ADAM, 4, 4, True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_is_modelled_or_named(name: str) -> None:
    kind, first, second, decides = OPTIMIZERS[name]
    loaded = arguments("--bf16", "--optimizer", name)
    precision = loaded.job.precision
    assert (loaded.job.optimizer.kind, precision.first_moment_bytes, precision.second_moment_bytes) == (
        kind,
        first,
        second,
    )
    assert unmodelled(loaded) == ({} if decides is None else {f"the optimizer {name}": decides})


BYTES = {
    # Megatron-LM docs/source/api-guide/dist_optimizer.md: bytes a parameter over d ranks.
    "4 + 16/d": (("--fp16",), 4, 16),
    "6 + 12/d": (("--bf16",), 6, 12),
    "8 + 8/d": ((), 8, 8),
}


@pytest.mark.parametrize(("words", "whole", "divided"), BYTES.values(), ids=BYTES)
def test_bytes_a_parameter_are_those_of_megatrons_documentation(
    words: tuple[str, ...], whole: float, divided: float
) -> None:
    """In fp16 four of them are fp32 copies of gradients, which the step makes."""
    job = arguments(*words).job
    held = job.precision.weight_bytes + job.precision.gradient_bytes
    assert (held, job.precision.optimizer_bytes + job.optimizer.step_bytes) == (whole, divided)


def test_an_unknown_optimizer_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="did you mean"):
        arguments("--optimizer adan")


def test_arguments_that_only_old_versions_take_bring_their_defaults() -> None:
    loaded = arguments("--no-query-key-layer-scaling")
    assert loaded.job.software.dialect is Dialect.MEGATRON_LOCAL
    assert "apply_query_key_layer_scaling" in assumed(loaded)
    assert arguments("--no-query-key-layer-scaling --transformer-impl transformer_engine").job.software.dialect is (
        Dialect.MEGATRON_TE
    )


def test_a_version_may_be_stated() -> None:
    old = load(f"{BASE} --use-megatron-fsdp", "megatron_core_version=0.15")
    assert old.job.parallelism.sharding is Sharding.NONE
    assert "megatron-core 0.15" in assumed(old)
    assert "megatron_core_version" not in old.ignored


def test_layers_of_a_hybrid_pattern_are_attention_blocks_and_what_is_not_modelled() -> None:
    loaded = arguments("--hybrid-layer-pattern 'M*-E|M*-E' --num-experts 4")
    layers = loaded.job.model.layers
    assert len(layers) == 8
    assert isinstance(layers[0].mixer, UnmodelledMixer)
    assert layers[1].feed_forward is None
    assert layers[2].mixer is None
    assert layers[3].feed_forward != layers[2].feed_forward
    with pytest.raises(ConfigurationError, match="hold experts"):
        arguments("--hybrid-override-pattern M*-E")
    with pytest.raises(ConfigurationError, match="'x' is not known"):
        arguments("--hybrid-override-pattern M*x")


ODD = {
    "an unknown flag": ("--nun-layers 3", "nun_layers", "num_layers"),
    "a flag of nobody": ("--frobnicate a b --bf16", "frobnicate", ""),
    "a word behind a switch": ("--bf16 true", "'true'", "belongs to no argument"),
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_not_understood_is_named(name: str) -> None:
    words, what, hint = ODD[name]
    notes = [note for note in arguments(words).unmodelled if note.what == what]
    assert [note.decides for note in notes] == [False]
    assert hint in notes[0].effect


WRONG = {
    "a text for a number": ("--hidden-size wide", "run.sh", "hidden-size", "'wide' is not an integer"),
    "no value": ("--hidden-size --bf16", "run.sh", "--hidden-size has no value"),
    "a number too long": (f"--hidden-size {'9' * 100}", "is not an integer"),
    "an unknown choice": ("--normalization BatchNorm", "'BatchNorm' is not known"),
    "layers that do not divide over virtual stages": (
        "--pipeline-model-parallel-size 3 --num-layers-per-virtual-pipeline-stage 2",
        "num_layers_per_virtual_pipeline_stage",
        "8 layers are not a multiple",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_that_decides_is_one_clear_line(name: str) -> None:
    words, *parts = WRONG[name]
    with pytest.raises(InputError) as raised:
        arguments(words)
    assert all(part in str(raised.value) for part in parts)
    assert "\n" not in str(raised.value)


def test_a_wrong_value_that_decides_nothing_does_not_matter() -> None:
    assert "train_iters" in arguments("--train-iters many").ignored


OVERRIDES: dict[str, tuple[str, Any, Any]] = {
    "by its name": ("micro_batch_size=2", lambda job: job.batch.micro, 2),
    "with dashes": ("micro-batch-size=2", lambda job: job.batch.micro, 2),
    "by a flag that turns round": (
        "disable_bias_linear=true",
        lambda job: job.model.layers[0].feed_forward.bias,
        False,
    ),
    "by a flag of another name": ("fp8_format=hybrid", lambda job: job.precision.low_precision is not None, True),
    "by an older name": ("model_parallel_size=2", lambda job: job.parallelism.tensor, 2),
    "another spelling of chunks": (
        "virtual_pipeline_model_parallel_size=2",
        lambda job: job.parallelism.virtual_pipeline,
        2,
    ),
    "instead of a wrong value": ("hidden_size=512", lambda job: job.model.hidden, 512),
}


@pytest.mark.parametrize("name", OVERRIDES)
def test_an_override_wins(name: str) -> None:
    override, value, expected = OVERRIDES[name]
    text = (
        f"{BASE} --tensor-model-parallel-size 1 --pipeline-model-parallel-size 2"
        " --num-layers-per-virtual-pipeline-stage 1 --hidden-size $WIDTH"
    )
    first = () if override.startswith("hidden") else ("hidden_size=1024",)
    assert value(load(text, *first, override).job) == expected


def test_an_unknown_override_is_one_error() -> None:
    with pytest.raises(ConfigurationError, match="did you mean micro_batch_size"):
        load(BASE, "micro_bach_size=2")


EXPERTS = "--num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 512 --moe-token-dispatcher-type flex"
DISPATCHERS = {
    "DeepEP by default": (EXPERTS, ExpertDispatch.DEEPEP, []),
    "DeepEP by name": (f"{EXPERTS} --moe-flex-dispatcher-backend deepep", ExpertDispatch.DEEPEP, []),
    "HybridEP": (
        f"{EXPERTS} --moe-flex-dispatcher-backend hybridep",
        ExpertDispatch.HYBRIDEP,
        ["buffers and bandwidth of hybridep"],
    ),
}


@pytest.mark.parametrize(("words", "dispatch", "noted"), DISPATCHERS.values(), ids=DISPATCHERS.keys())
def test_the_flexible_dispatcher_is_the_backend_it_names(
    words: str, dispatch: ExpertDispatch, noted: list[str]
) -> None:
    loaded = arguments(words)
    assert loaded.job.software.expert_dispatch is dispatch
    assert [note.what for note in loaded.unmodelled] == noted


def test_a_flexible_dispatcher_that_is_misspelt_is_one_clear_line() -> None:
    with pytest.raises(ConfigurationError, match=r"moe_flex_dispatcher_backend: 'hybrid' is not known"):
        arguments(f"{EXPERTS} --moe-flex-dispatcher-backend hybrid")
