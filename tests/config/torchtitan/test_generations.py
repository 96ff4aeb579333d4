"""The same run in the words of every generation is the same job."""

import json
from dataclasses import replace

import pytest

from projector.config import detect
from projector.job import LowPrecision, RecomputeGranularity, RecomputeMethod, Sharding
from tests.config.torchtitan import files
from tests.config.torchtitan.files import load

SAME = {
    "2024": """
        [model]
        name = "llama3"
        flavor = "70B"
        [training]
        batch_size = 16
        seq_len = 4096
        tensor_parallel_degree = 4
        data_parallel_degree = -1
        compile = true
        enable_float8_linear = true
        [experimental]
        pipeline_parallel_degree = 2
        pipeline_parallel_schedule = "interleaved_1f1b"
        pipeline_parallel_microbatches = 8
        context_parallel_degree = 2
        enable_async_tensor_parallel = true
        [activation_checkpoint]
        mode = "selective"
        selective_ac_option = "op"
        """,
    "early 2025": """
        [model]
        name = "llama3"
        flavor = "70B"
        converters = "float8"
        [training]
        batch_size = 16
        seq_len = 4096
        compile = true
        [parallelism]
        tensor_parallel_degree = 4
        data_parallel_shard_degree = -1
        pipeline_parallel_degree = 2
        pipeline_parallel_schedule = "Interleaved1F1B"
        pipeline_parallel_microbatch_size = 2
        context_parallel_degree = 2
        enable_async_tensor_parallel = true
        [float8]
        filter_fqns = "output"
        [activation_checkpoint]
        mode = "selective"
        selective_ac_option = "op"
        """,
    "late 2025": """
        [model]
        name = "llama3"
        flavor = "70B"
        converters = ["quantize.linear.float8"]
        [training]
        local_batch_size = 16
        global_batch_size = -1
        seq_len = 4096
        [parallelism]
        tensor_parallel_degree = 4
        data_parallel_shard_degree = -1
        pipeline_parallel_degree = 2
        pipeline_parallel_schedule = "Interleaved1F1B"
        pipeline_parallel_microbatch_size = 2
        context_parallel_degree = 2
        enable_async_tensor_parallel = true
        [compile]
        enable = true
        components = ["model", "loss"]
        [quantize.linear.float8]
        filter_fqns = ["output"]
        [activation_checkpoint]
        mode = "selective"
        selective_ac_option = "op"
        """,
    "resolved in 2026": json.dumps(
        {
            "model_spec": {"name": "llama3", "flavor": "70B"},
            "model": {"converters": ["float8"]},
            "training": {"local_batch_size": 16, "seq_len": 4096},
            "parallelism": {
                "tensor_parallel_degree": 4,
                "pipeline_parallel_degree": 2,
                "pipeline_parallel_schedule": "Interleaved1F1B",
                "pipeline_parallel_microbatch_size": 2,
                "context_parallel_degree": 2,
                "enable_async_tensor_parallel": True,
            },
            "compile": {"enable": True},
            "activation_checkpoint": {"mode": "selective"},
        }
    ),
}


@pytest.mark.parametrize("text", SAME.values(), ids=SAME.keys())
def test_a_run_is_the_same_job_in_every_generation(text: str) -> None:
    loaded = load(text)
    latest = load(SAME["late 2025"]).job
    assert replace(loaded.job, software=latest.software) == latest
    assert [note.what for note in loaded.unmodelled] == ["torch.compile of casts to fp8"]


@pytest.mark.parametrize(("name", "text"), SAME.items(), ids=SAME.keys())
def test_generations_differ_in_what_they_compile_and_copy(name: str, text: str) -> None:
    software = load(text).job.software
    assert software.compiled_layers
    assert software.compiled_loss is (name in {"late 2025", "resolved in 2026"})
    assert software.repeated_key_values is (name != "resolved in 2026")


@pytest.mark.parametrize("text", SAME.values(), ids=SAME.keys())
def test_every_generation_is_recognised_and_overridden_by_shared_names(text: str) -> None:
    assert detect(text, name="run") == "torchtitan"
    job = load(text, "tensor_model_parallel_size=8", "seq_length=8192", "context_parallel_size=1").job
    assert (job.parallelism.tensor, job.batch.sequence_length, job.parallelism.context) == (8, 8192, 1)


PUBLISHED = {
    "2024, Llama 405B": (files.LLAMA_405B_2024, "llama3.1-405b", 8, (1, 8192), None),
    "2025, Llama 405B": (files.LLAMA_405B_2025, "llama3.1-405b", 8, (2, 8192), LowPrecision.FP8),
    "881f0ca4, DeepSeek 16B": (files.DEEPSEEK_16B_JUNE_2025, "deepseek_v3-16B", 1, (8, 4096), None),
    "00f785af, DeepSeek 16B": (files.DEEPSEEK_16B_AUGUST_2025, "deepseek_v3-16B", 1, (8, 4096), None),
    "late 2025, DeepSeek 16B": (files.DEEPSEEK_16B_LATE_2025, "deepseek_v3-16B", 1, (8, 4096), None),
}


@pytest.mark.parametrize(("text", "model", "tensor", "batch", "format_"), PUBLISHED.values(), ids=PUBLISHED.keys())
def test_a_published_file_is_read(
    text: str, model: str, tensor: int, batch: tuple[int, int], format_: LowPrecision | None
) -> None:
    job = load(text).job
    assert (job.model.name, job.parallelism.tensor, job.parallelism.expert) == (model, tensor, 1)
    assert (job.batch.micro, job.batch.sequence_length, job.batch.global_) == (*batch, None)
    assert job.parallelism.sharding is Sharding.PARAMETERS
    assert job.precision.low_precision is format_
    assert (job.recompute.granularity, job.recompute.method) == (RecomputeGranularity.FULL, RecomputeMethod.UNIFORM)


def test_the_three_ages_of_one_file_are_one_job() -> None:
    texts = (files.DEEPSEEK_16B_JUNE_2025, files.DEEPSEEK_16B_AUGUST_2025, files.DEEPSEEK_16B_LATE_2025)
    first, *others = (load(text) for text in texts)
    assert {other.job for other in others} == {first.job}
    assert [loaded.unmodelled for loaded in (first, *others)] == [(), (), ()]


def test_a_debug_file_of_2024_splits_where_it_says() -> None:
    job = load(files.DEBUG_3D_2024).job
    assert job.parallelism.pipeline_layout == "Et*4|t*2L"
    assert (job.batch.micro, job.batch.micro_batches) == (4, 2)
    assert job.recompute.layer_ids == (1, 3, 5)


def test_keys_of_a_fork_are_reported_by_name() -> None:
    loaded = load(files.KIMI_K2_OF_A_FORK)
    strange = {note.what for note in loaded.unmodelled if "not a key that the project knows" in note.effect}
    assert strange == {
        "optimizer.state_dtype",
        "training.aggressive_memory_mode",
        "training.aggressive_memory_verbose",
        "training.clear_cache_between_steps",
        "training.skip_optimizer_step",
    }
    assert not any(note.decides for note in loaded.unmodelled)


def test_a_value_under_two_names_must_agree() -> None:
    text = "[training]\nbatch_size = 4\nlocal_batch_size = {}\n[model]\nname = 'llama3'\nflavor = '8B'\n"
    assert load(text.format(4)).job.batch.micro == 4
    with pytest.raises(Exception, match=r"run: training.batch_size: 4 contradicts training.local_batch_size: 8"):
        load(text.format(8))
