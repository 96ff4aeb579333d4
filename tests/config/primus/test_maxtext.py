from typing import Any

import pytest

from projector.api import Question, project
from projector.config import LoadedConfiguration, Source, read
from projector.config.primus.facts import framework_facts
from projector.errors import ConfigurationError, InputError, LayoutImpossible, NotAvailable, PresetUnknown
from projector.job import LowPrecision, RecomputeGranularity, Sharding
from tests.config.builders import experiment_text, load
from tests.config.primus_tree import ROOT, needs_tree


def maxtext_text(model: str = "llama3_8B.yaml", **overrides: object) -> str:
    """An experiment for MaxText, as the public recipes state it."""
    module = {"framework": "maxtext", "config": "pre_trainer.yaml", "model": model, "overrides": overrides}
    return experiment_text(module)


def maxtext(model: str = "llama3_8B.yaml", **overrides: object) -> LoadedConfiguration:
    return load(maxtext_text(model, **overrides))


RECIPES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "Llama 3 70B, sharded in a host and copied across": (
        "llama3_70B.yaml",
        {"dcn_data_parallelism": -1, "ici_fsdp_parallelism": 8, "max_target_length": 8192, "per_device_batch_size": 7},
        {"shard_degree": 8, "devices": 8, "nodes": None, "micro": 7},
    ),
    "Llama 3.1 405B, sharded over everything": (
        "llama3.1_405B.yaml",
        {
            "dcn_data_parallelism": 1,
            "dcn_fsdp_parallelism": -1,
            "ici_fsdp_parallelism": -1,
            "per_device_batch_size": 5,
        },
        {"shard_degree": None, "devices": 8, "nodes": None, "micro": 5},
    ),
    "Mixtral 8x7B, experts over the host": (
        "mixtral_8x7B.yaml",
        {
            "ici_fsdp_parallelism": 1,
            "ici_expert_parallelism": -1,
            "sparse_matmul": False,
            "megablox": False,
            "capacity_factor": 1,
            "per_device_batch_size": 11,
        },
        {"expert": 8, "shard_degree": 8, "devices": 8, "nodes": None, "micro": 11},
    ),
    "experts in every axis of a dense model shard weights": (
        "llama3_8B.yaml",
        {"ici_fsdp_parallelism": 2, "ici_expert_parallelism": 4, "per_device_batch_size": 1},
        {"expert": 1, "shard_degree": 8, "devices": 8, "nodes": None, "micro": 1},
    ),
    "tensor and context parallel GPUs share a batch": (
        "llama3_8B.yaml",
        {
            "dcn_data_parallelism": 4,
            "ici_tensor_parallelism": 4,
            "ici_context_parallelism": 2,
            "ici_fsdp_parallelism": 1,
            "per_device_batch_size": 0.25,
        },
        {"tensor": 4, "context": 2, "shard_degree": 2, "devices": 8, "nodes": 4, "micro": 2},
    ),
    "replicas alone": (
        "llama3_8B.yaml",
        {"ici_data_parallelism": 8, "ici_fsdp_parallelism": 1, "per_device_batch_size": 1},
        {"sharding": Sharding.NONE, "shard_degree": None, "devices": 8, "nodes": None, "micro": 1},
    ),
    "a pipeline of two rounds": (
        "llama3_8B.yaml",
        {
            "ici_pipeline_parallelism": 4,
            "ici_fsdp_parallelism": 2,
            "num_layers_per_pipeline_stage": 4,
            "per_device_batch_size": 2,
            "gradient_accumulation_steps": 3,
        },
        {"pipeline": 4, "virtual_pipeline": 2, "shard_degree": 2, "devices": 8, "nodes": None, "micro": 2},
    ),
    "one GPU": (
        "llama3_8B.yaml",
        {"dcn_data_parallelism": 1, "ici_fsdp_parallelism": 1, "per_device_batch_size": 1},
        {"sharding": Sharding.NONE, "shard_degree": None, "devices": 1, "nodes": 1, "micro": 1},
    ),
}


@pytest.mark.parametrize(("model", "overrides", "want"), RECIPES.values(), ids=RECIPES.keys())
def test_the_mesh_decides_the_layout(model: str, overrides: dict[str, Any], want: dict[str, Any]) -> None:
    loaded = maxtext(model, **overrides)
    layout = loaded.job.parallelism
    got = {
        "tensor": layout.tensor,
        "pipeline": layout.pipeline,
        "virtual_pipeline": layout.virtual_pipeline,
        "expert": layout.expert,
        "context": layout.context,
        "sharding": layout.sharding,
        "shard_degree": layout.shard_degree,
        "devices": loaded.devices_per_node,
        "nodes": loaded.nodes,
        "micro": loaded.job.batch.micro,
    }
    ones = dict.fromkeys(("tensor", "pipeline", "virtual_pipeline", "expert", "context"), 1)
    assert got == {**ones, "sharding": Sharding.PARAMETERS, **want}


@pytest.mark.parametrize(("model", "overrides", "want"), RECIPES.values(), ids=RECIPES.keys())
def test_an_iteration_takes_the_batch_of_every_gpu(model: str, overrides: dict[str, Any], want: dict[str, Any]) -> None:
    answer = project(Question(text=maxtext_text(model, **overrides), performance=False))
    gpus = answer.target.devices
    assert gpus == want["devices"] * (want["nodes"] or 1)
    accumulated = overrides.get("gradient_accumulation_steps", 1)
    assert answer.global_batch == overrides["per_device_batch_size"] * gpus * accumulated


def test_parameters_are_right_and_there_is_no_verdict() -> None:
    answer = project(Question(text=maxtext_text(per_device_batch_size=1)))
    assert answer.parameters.total == 8_030_261_248
    assert answer.memory is not None
    assert answer.memory.verdict == "Unknown"
    (note,) = [note for note in answer.unmodelled if note.what.startswith("MaxText")]
    assert note.decides
    assert note.where.endswith("modules.pre_trainer.framework")


def test_weights_are_the_master_copy_and_moments_inherit_their_width() -> None:
    narrow, wide = maxtext().job.precision, maxtext(weight_dtype="float32", mu_dtype="bfloat16").job.precision
    assert (narrow.weight_bytes, narrow.optimizer_bytes) == (2, 4)
    assert (wide.weight_bytes, wide.master_weight_bytes) == (4, 0)
    assert (wide.first_moment_bytes, wide.second_moment_bytes) == (2, 4)


@pytest.mark.parametrize(
    ("quantization", "low", "noted"),
    [("", None, 0), ("nanoo_fp8", LowPrecision.FP8, 0), ("te_mxfp8", LowPrecision.MXFP8, 0), ("int8", None, 1)],
)
def test_quantization_is_understood_or_named(quantization: str, low: LowPrecision | None, noted: int) -> None:
    loaded = maxtext(quantization=quantization)
    assert loaded.job.precision.low_precision is low
    assert sum(note.what == f"quantization {quantization}" for note in loaded.unmodelled) == noted


@pytest.mark.parametrize(
    ("policy", "granularity", "noted"),
    [
        ("full", RecomputeGranularity.FULL, 0),
        ("none", RecomputeGranularity.NONE, 0),
        ("minimal_flash", RecomputeGranularity.NONE, 1),
    ],
)
def test_a_policy_that_keeps_some_tensors_is_named(policy: str, granularity: RecomputeGranularity, noted: int) -> None:
    loaded = maxtext(remat_policy=policy)
    assert loaded.job.recompute.granularity is granularity
    assert sum("rematerialisation" in note.what for note in loaded.unmodelled) == noted


def test_sgd_keeps_no_moments() -> None:
    precision = maxtext(opt_type="sgd").job.precision
    assert (precision.first_moment_bytes, precision.second_moment_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("plain", "other", "what"),
    [
        ({"num_vocab_tiling": 1}, {"num_vocab_tiling": 4}, "the loss over 4 tiles"),
    ],
    ids=["tiles"],
)
def test_what_the_engine_counts_otherwise_is_named(plain: dict[str, Any], other: dict[str, Any], what: str) -> None:
    noted = [[note for note in maxtext(**each).unmodelled if note.what.startswith(what)] for each in (plain, other)]
    assert noted[0] == []
    (note,) = noted[1]
    assert note.decides
    assert next(iter(other)) in note.where


def test_keys_are_ignored_named_or_reported() -> None:
    loaded = maxtext(steps=50, base_output_directory="x", use_dpo=True, moba=False, per_device_batch=3)
    assert {"steps", "base_output_directory"} <= set(loaded.ignored)
    notes = {note.what: note for note in loaded.unmodelled}
    assert notes["preference optimisation with a reference model (use_dpo: True)"].decides
    assert not any("moba" in what for what in notes)
    assert "per_device_batch" in notes
    assert "did you mean per_device_batch_size" in notes["per_device_batch"].effect


def test_shared_names_and_own_names_override() -> None:
    loaded = load(maxtext_text(), "seq_length=1024", "ici_fsdp_parallelism=2", "tensor_model_parallel_size=4")
    assert loaded.job.batch.sequence_length == 1024
    assert (loaded.job.parallelism.tensor, loaded.devices_per_node) == (4, 8)
    assert loaded.values["max_target_length"].source is Source.OVERRIDE


REFUSED: dict[str, tuple[str, dict[str, object], type[InputError], str]] = {
    "an axis of another kind": (
        "llama3_8B",
        {"ici_fsdp_transpose_parallelism": 2},
        NotAvailable,
        "ici_fsdp_transpose_parallelism: the axis fsdp_transpose cannot be read",
    ),
    "two axes that take the rest": (
        "llama3_8B",
        {"ici_tensor_parallelism": -1},
        ConfigurationError,
        "ici_tensor_parallelism: a second axis of -1",
    ),
    "a degree that depends on the number of slices": (
        "llama3_8B",
        {"dcn_tensor_parallelism": -1, "dcn_data_parallelism": 1},
        NotAvailable,
        "dcn_tensor_parallelism: -1 across slices depends",
    ),
    "sharding over slices beside replicas": (
        "llama3_8B",
        {"dcn_fsdp_parallelism": -1, "dcn_data_parallelism": 2},
        NotAvailable,
        "dcn_fsdp_parallelism: -1 beside replicas",
    ),
    "axes that do not divide a host": (
        "llama3_8B",
        {"ici_tensor_parallelism": 3},
        LayoutImpossible,
        "8 GPUs of a host do not divide over axes of 3",
    ),
    "an axis of zero": ("llama3_8B", {"ici_fsdp_parallelism": 0}, ConfigurationError, "or -1 for the rest"),
    "part of a sequence": (
        "llama3_8B",
        {"per_device_batch_size": 0.5},
        ConfigurationError,
        "per_device_batch_size: 0.5 x 1 GPUs of a replica are no whole micro batches",
    ),
    "an endless batch": ("llama3_8B", {"per_device_batch_size": 1e308}, ConfigurationError, "a number of at most"),
    "a batch too large": (
        "llama3_8B",
        {"per_device_batch_size": 10**12, "ici_tensor_parallelism": 8, "ici_fsdp_parallelism": 1},
        ConfigurationError,
        "no whole micro batches",
    ),
    "no end of predictions": ("llama3_8B", {"mtp_num_layers": 10**6}, ConfigurationError, "an integer of at most 4096"),
    "experts of a list": ("grok1", {"base_moe_mlp_dim": [1]}, ConfigurationError, "base_moe_mlp_dim: .* is a list"),
    "heads that do not divide": (
        "grok1",
        {"base_num_kv_heads": 7},
        LayoutImpossible,
        "base_num_kv_heads: 48 query heads do not divide over 7 key/value heads",
    ),
    "layers that do not divide": (
        "llama3_8B",
        {"ici_pipeline_parallelism": 8, "ici_fsdp_parallelism": 1, "num_layers_per_pipeline_stage": 3},
        LayoutImpossible,
        "32 layers are not 8 stages x 3 layers",
    ),
    "a pipeline of some layers": (
        "llama3_8B",
        {"ici_pipeline_parallelism": 8, "ici_fsdp_parallelism": 1, "pipeline_parallel_layers": 24},
        NotAvailable,
        "a pipeline of 24 layers of 32",
    ),
    "a block that keys do not describe": (
        "grok1",
        {"decoder_block": "gemma2"},
        NotAvailable,
        "the decoder block 'gemma2' cannot be read from its keys",
    ),
    "experts in a dense block": (
        "grok1",
        {"decoder_block": "llama2"},
        ConfigurationError,
        "8 experts in the dense decoder block",
    ),
    "an unknown model": ("llama3_8B", {"model_name": "llama9-8b"}, PresetUnknown, "model_name: .*'llama9-8b'"),
    "a scaled model": (
        "llama3_8B",
        {"global_parameter_scale": 2},
        ConfigurationError,
        "global_parameter_scale: a model scaled by 2",
    ),
    "a preset that Primus does not have": ("llama3_9B", {}, PresetUnknown, "did you mean .*llama3_8B"),
}


@pytest.mark.parametrize(("model", "overrides", "kind", "complaint"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_read_is_refused_by_name(
    model: str, overrides: dict[str, object], kind: type[InputError], complaint: str
) -> None:
    with pytest.raises(kind, match=complaint):
        maxtext(model, **overrides)


@needs_tree
@pytest.mark.parametrize("model", sorted(framework_facts("maxtext").models))
def test_a_preset_of_the_tree_gives_the_job_of_the_catalog(model: str) -> None:
    text = maxtext_text(model, per_device_batch_size=2)
    tree, own = read(text, name="exp.yaml", primus_root=ROOT), load(text)
    assert tree.job == own.job
    assert {note.what for note in tree.unmodelled} == {note.what for note in own.unmodelled}


@needs_tree
def test_the_catalog_has_every_preset_of_the_tree() -> None:
    files = {path.stem for path in (ROOT / "primus/configs/models/maxtext").glob("*.yaml")}
    assert files - set(framework_facts("maxtext").models) == {"model_base"}
