"""Batch, widths, optimizer, recomputation, converters and switches."""

from typing import Any

import pytest

from projector.errors import InputError
from projector.job import (
    Batch,
    Dialect,
    ExpertDispatch,
    LowPrecision,
    OptimizerKind,
    ParameterClass,
    Precision,
    Recompute,
    RecomputeGranularity,
    RecomputeMethod,
)
from tests.config.torchtitan.files import load, text

BATCHES: dict[str, tuple[dict[str, Any], Batch]] = {
    "defaults": ({}, Batch(micro=8, sequence_length=2048)),
    "a local batch": ({"local_batch_size": 2, "seq_len": 8192}, Batch(micro=2, sequence_length=8192)),
    "a global batch": (
        {"local_batch_size": 2, "global_batch_size": 64},
        Batch(micro=2, sequence_length=2048, global_=64),
    ),
    "-1 for none": ({"local_batch_size": 2, "global_batch_size": -1}, Batch(micro=2, sequence_length=2048)),
    "counted in tokens": (
        {
            "num_tokens_per_microbatch_per_dp_rank": 16384,
            "max_context_length": 4096,
            "num_tokens_per_train_step": 524288,
        },
        Batch(micro=4, sequence_length=4096, global_=128),
    ),
    "counted in tokens, a step left open": (
        {"num_tokens_per_microbatch_per_dp_rank": 8192, "seq_len": 4096, "num_tokens_per_train_step": -1},
        Batch(micro=2, sequence_length=4096),
    ),
}


@pytest.mark.parametrize(("training", "want"), BATCHES.values(), ids=BATCHES.keys())
def test_a_batch_is_what_the_training_section_says(training: dict[str, Any], want: Batch) -> None:
    assert load(text(training=training)).job.batch == want


def test_tokens_are_counted_for_one_micro_batch_of_a_pipeline() -> None:
    training = {"num_tokens_per_microbatch_per_dp_rank": 8192, "seq_len": 4096}
    parallelism = {"pipeline_parallel_degree": 2, "num_pp_microbatches": 6}
    batch = load(text(training=training, parallelism=parallelism)).job.batch
    assert (batch.micro, batch.micro_batches) == (2, 6)


WIDTHS: dict[str, tuple[dict[str, Any], Precision]] = {
    "mixed precision": (
        {},
        Precision(weight_bytes=4, gradient_bytes=4, master_weight_bytes=0, reduction_bytes=4, activation_bytes=2),
    ),
    "gradients summed in bf16": (
        {"mixed_precision_reduce": "bfloat16"},
        Precision(weight_bytes=4, gradient_bytes=4, master_weight_bytes=0, reduction_bytes=2, activation_bytes=2),
    ),
    "all fp32": (
        {"mixed_precision_param": "float32"},
        Precision(weight_bytes=4, gradient_bytes=4, master_weight_bytes=0, reduction_bytes=4, activation_bytes=4),
    ),
    "all bf16": (
        {"dtype": "bfloat16"},
        Precision(
            weight_bytes=2,
            gradient_bytes=2,
            reduction_bytes=4,
            master_weight_bytes=0,
            first_moment_bytes=2,
            second_moment_bytes=2,
            activation_bytes=2,
        ),
    ),
}


@pytest.mark.parametrize(("training", "want"), WIDTHS.values(), ids=WIDTHS.keys())
def test_widths_follow_the_types(training: dict[str, Any], want: Precision) -> None:
    assert load(text(training=training)).job.precision == want


CHECKPOINTS: dict[str, tuple[dict[str, Any], Recompute]] = {
    "none": ({"mode": "none"}, Recompute()),
    "full": (
        {"mode": "full"},
        Recompute(granularity=RecomputeGranularity.FULL, method=RecomputeMethod.UNIFORM, layers=1),
    ),
    "every second layer by default": (
        {},
        Recompute(granularity=RecomputeGranularity.FULL, layer_ids=tuple(range(1, 32, 2))),
    ),
    "every fifth layer, as a number": (
        {"mode": "selective", "selective_ac_option": 5},
        Recompute(granularity=RecomputeGranularity.FULL, layer_ids=(4, 9, 14, 19, 24, 29)),
    ),
    # int(0) takes each: `not ac_freq or count % ac_freq == 0` in activation_checkpoint.py
    **{
        f"every layer, as {value!r}": (
            {"mode": "selective", "selective_ac_option": value},
            Recompute(granularity=RecomputeGranularity.FULL, layer_ids=tuple(range(32))),
        )
        for value in (0, "0", 1)
    },
    "every 40th layer of 32": ({"mode": "selective", "selective_ac_option": "40"}, Recompute()),
    "by operation": (
        {"mode": "selective", "selective_ac_option": "op"},
        Recompute(granularity=RecomputeGranularity.OPERATIONS),
    ),
    "by operation without products": (
        {
            "mode": "selective",
            "selective_ac_option": "op",
            "per_op_sac_force_recompute_mm_shapes_by_fqns": [
                *(f"attention.w{name}" for name in "qkvo"),
                *(f"feed_forward.w{number}" for number in (1, 2, 3)),
                "output",
            ],
        },
        Recompute(granularity=RecomputeGranularity.OPERATIONS, keeps_products=False),
    ),
}


@pytest.mark.parametrize(("section", "want"), CHECKPOINTS.values(), ids=CHECKPOINTS.keys())
def test_checkpoints_recompute_what_they_say(section: dict[str, Any], want: Recompute) -> None:
    loaded = load(text(activation_checkpoint=section))
    assert (loaded.job.recompute, loaded.unmodelled) == (want, ())


FORMATS: dict[str, tuple[dict[str, Any], LowPrecision | None]] = {
    "float8": ({"model": {"converters": ["float8"]}}, LowPrecision.FP8),
    "float8 by its section": ({"model": {"converters": ["quantize.linear.float8"]}}, LowPrecision.FP8),
    "row-wise": (
        {"model": {"converters": ["float8"]}, "float8": {"recipe_name": "rowwise"}},
        LowPrecision.FP8,
    ),
    "mx": ({"model": {"converters": ["mx"]}}, LowPrecision.MXFP8),
    "mxfp4": ({"model": {"converters": ["mx"]}, "mx": {"recipe_name": "mxfp4_cutlass"}}, LowPrecision.MXFP4),
    "sections alone do nothing": ({"quantize": {"linear": {"float8": {"recipe_name": "rowwise"}}}}, None),
    "Primus's kernels are no format": ({"model": {"converters": ["primus_turbo"]}}, None),
}


@pytest.mark.parametrize(("sections", "want"), FORMATS.values(), ids=FORMATS.keys())
def test_converters_decide_the_format(sections: dict[str, Any], want: LowPrecision | None) -> None:
    loaded = load(text(**sections))
    assert (loaded.job.precision.low_precision, loaded.unmodelled) == (want, ())


def test_offloading_moves_shards_and_optimizer_state_to_the_host() -> None:
    optimizer = load(text(training={"enable_cpu_offload": True})).job.optimizer
    assert (optimizer.offload_fraction, optimizer.offload_shards) == (1.0, True)
    assert load(text()).job.optimizer.offload_shards is False


def test_deepep_and_balanced_routing_are_read() -> None:
    software = load(
        text(
            model={"name": "deepseek_v3", "flavor": "16B"},
            parallelism={"expert_parallel_comm_backend": "deepep", "expert_parallel_degree": 8},
            debug={"moe_force_load_balance": True},
        )
    ).job.software
    assert software.dialect is Dialect.TORCHTITAN
    assert (software.expert_dispatch, software.force_load_balancing) == (ExpertDispatch.DEEPEP, True)


NOTED: dict[str, tuple[dict[str, Any], str, bool]] = {
    "an unknown optimizer": ({"optimizer": {"name": "Dion"}}, "the optimizer Dion", True),
    "an unknown converter": ({"model": {"converters": ["lora"]}}, "the model converter lora", True),
    "a memory budget": (
        {"activation_checkpoint": {"mode": "memory_budget"}},
        "activation checkpointing by a memory budget",
        True,
    ),
    "layers left in bf16": (
        {"model": {"converters": ["float8"]}, "float8": {"filter_fqns": ["output", "attention.wk"]}},
        "linear layers that stay in 16 bits (attention.wk)",
        False,
    ),
    "some products computed again": (
        {
            "activation_checkpoint": {
                "selective_ac_option": "op",
                "per_op_sac_force_recompute_mm_shapes_by_fqns": ["moe.router.gate", "attention.wq"],
            }
        },
        "matrix products that are always computed again (attention.wq)",
        False,
    ),
    "weight gradients in 16 bits": (
        {"model": {"converters": ["float8"]}, "float8": {"recipe_name": "rowwise_with_gw_hp"}},
        "weight gradients computed in 16 bits",
        False,
    ),
    "HybridEP": (
        {
            "model": {"name": "deepseek_v3", "flavor": "16B"},
            "parallelism": {"expert_parallel_comm_backend": "hybridep", "expert_parallel_degree": 8},
        },
        "buffers and bandwidth of hybridep",
        False,
    ),
    "validation": (
        {"validation": {"enable": True}},
        "validation between training steps (validation.enable: True)",
        False,
    ),
    "a typing error": ({"training": {"sequence_len": 4096}}, "training.sequence_len", True),
    "a degree misspelt": ({"parallelism": {"tensor_parallel_degre": 8}}, "parallelism.tensor_parallel_degre", True),
    "a name that nothing is near": ({"training": {"colour_of_the_bar": 7}}, "training.colour_of_the_bar", False),
}


@pytest.mark.parametrize(("sections", "what", "decides"), NOTED.values(), ids=NOTED.keys())
def test_what_is_not_modelled_is_named(sections: dict[str, Any], what: str, decides: bool) -> None:  # noqa: FBT001 - a case
    assert [(note.what, note.decides) for note in load(text(**sections)).unmodelled] == [(what, decides)]


def test_muon_is_an_optimizer_without_second_moment() -> None:
    job = load(text(optimizer={"name": "Muon"})).job
    assert (job.optimizer.kind, job.precision.second_moment_bytes) == (OptimizerKind.MUON, 0)
    assert job.optimizer.exempt_classes == (ParameterClass.EMBEDDING, ParameterClass.OUTPUT, ParameterClass.VECTOR)
    assert (job.optimizer.exempt_first_bytes, job.optimizer.exempt_second_bytes) == (4, 4)


STEPS = {
    "by default": ({}, 0),
    "fused": ({"fused": True}, 0),
    "not fused, as in 2024": ({"fused": False}, 4),
    "multi-tensor": ({"implementation": "foreach"}, 4),
    "one by one": ({"implementation": "for-loop"}, 0),
}


@pytest.mark.parametrize(("section", "each"), STEPS.values(), ids=STEPS)
def test_a_multi_tensor_step_makes_a_root_of_every_second_moment(section: dict[str, Any], each: float) -> None:
    assert load(text(optimizer=section)).job.optimizer.step_bytes == each


WRONG = {
    "a local batch of 0": ({"training": {"local_batch_size": 0}}, "training.local_batch_size: 0 is a number"),
    "a global batch of -2": ({"training": {"global_batch_size": -2}}, "training.global_batch_size: -2 is a number"),
    "an unknown type": ({"training": {"dtype": "fp8"}}, "training.dtype: 'fp8' is not known"),
    "an unknown mode": ({"activation_checkpoint": {"mode": "some"}}, "activation_checkpoint.mode: 'some' is not known"),
    "tokens of no whole sequences": (
        {"training": {"num_tokens_per_microbatch_per_dp_rank": 5000, "seq_len": 4096}},
        "per_dp_rank: 5000 tokens are no whole number of sequences of 4096; a multiple of 4096",
    ),
    "fewer tokens than a sequence": (
        {"training": {"num_tokens_per_microbatch_per_dp_rank": 4096, "num_tokens_per_train_step": 9, "seq_len": 4096}},
        "training.num_tokens_per_train_step: 9 tokens are no whole number",
    ),
    "a batch in tokens and in sequences": (
        {"training": {"num_tokens_per_microbatch_per_dp_rank": 4096, "seq_len": 4096, "local_batch_size": 2}},
        "training.local_batch_size: 2 sequences, and training.num_tokens_per_microbatch_per_dp_rank counts the batch",
    ),
    "an unknown recipe of float8": (
        {"float8": {"recipe_name": "columnwise"}},
        "float8.recipe_name: 'columnwise' is not known",
    ),
    "an unknown recipe of mx": (
        {"model": {"converters": ["mx"]}, "mx": {"recipe_name": "nvfp4"}},
        "mx.recipe_name: 'nvfp4' is a text; expected a recipe of mxfp8 or mxfp4",
    ),
    "an unknown dispatch": (
        {"parallelism": {"expert_parallel_comm_backend": "hybrid"}},
        "parallelism.expert_parallel_comm_backend: 'hybrid' is not known",
    ),
    "no text as an option": (
        {"activation_checkpoint": {"selective_ac_option": ""}},
        "activation_checkpoint.selective_ac_option: '' is not known; a number of layers, or op",
    ),
    "an unknown option": (
        {"activation_checkpoint": {"selective_ac_option": "layers"}},
        "activation_checkpoint.selective_ac_option: 'layers' is not known; a number of layers, or op",
    ),
    "a mapping for a value": (
        {"training": {"seq_len": {"a": 1}}},
        "training.seq_len.a: a mapping stands where training.seq_len has one value",
    ),
}


@pytest.mark.parametrize(("sections", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_value_is_one_clear_line(sections: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        load(text(**sections))
    assert message in str(caught.value)


def test_keys_without_influence_are_ignored_by_name() -> None:
    loaded = load(text(metrics={"log_freq": 1}, training={"steps": 3}, checkpoint={"folder": "c"}))
    assert loaded.ignored == ("checkpoint.folder", "metrics.log_freq", "training.steps")


def test_an_unknown_override_is_one_clear_line() -> None:
    with pytest.raises(InputError, match=r"override: 'training.seq_length' is not a value .* training.seq_len"):
        load(text(), "training.seq_length=4096")


def test_a_resolved_configuration_is_read_as_json() -> None:
    # In YAML 5e-4 is text, and a tab may not indent.
    loaded = load(
        '{\n\t"model": {"name": "llama3", "flavor": "8B"},\n\t"parallelism": {},\n\t"training": {"max_norm": 5e-4}}'
    )
    assert loaded.values["training.max_norm"].value == 5e-4


COMPILED: dict[str, tuple[dict[str, Any], tuple[bool, bool]]] = {
    "off": ({"components": ["model"]}, (False, False)),
    "both by default": ({"enable": True}, (True, True)),
    "the loss": ({"enable": True, "components": ["loss"]}, (False, True)),
    "the model": ({"enable": True, "components": ["model"]}, (True, False)),
}


@pytest.mark.parametrize(("section", "want"), COMPILED.values(), ids=COMPILED.keys())
def test_components_are_compiled_as_stated(section: dict[str, Any], want: tuple[bool, bool]) -> None:
    loaded = load(text(compile=section))
    assert (loaded.job.software.compiled_layers, loaded.job.software.compiled_loss) == want
    assert loaded.unmodelled == ()


def test_compiled_routing_of_experts_is_named() -> None:
    experts = {"name": "deepseek_v3", "flavor": "16B"}
    loaded = load(text(model=experts, compile={"enable": True}))
    assert [note.what for note in loaded.unmodelled] == ["torch.compile of routing and permutation of experts"]
