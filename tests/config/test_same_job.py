"""One job is the same job in every dialect; what differs is named, with the reason."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from projector.config import LoadedConfiguration, parse_overrides, read
from projector.config.own.schema import SPELLING
from projector.config.own.writing import write
from tests.config import same_jobs
from tests.config.builders import experiment_text
from tests.config.primus_tree import ROOT, needs_tree
from tests.config.same_jobs import JOBS, SameJob, differences, toml

named = pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
NAME = "model.name"
"""A script and a config.json have no name for their model."""
STOCK = "parallelism.spread_remainder"
"""Stock Megatron-LM refuses layers that do not divide over the stages, which Primus spreads."""


def launched(job: SameJob) -> LoadedConfiguration:
    return read(same_jobs.script(job), name="run.sh")


def unknown(loaded: LoadedConfiguration) -> list[str]:
    """Keys that the reader does not know."""
    return [note.what for note in loaded.unmodelled if "not a key" in note.effect]


@named
def test_the_script_is_the_job_that_it_states(job: SameJob) -> None:
    loaded = launched(job).job
    for name in job.run.keys() & SPELLING.keys():
        section, _, key = SPELLING[name].partition(".")
        held = getattr(getattr(loaded, section), "global_" if key == "global" else key)
        assert held == (tuple(job.run[name]) if isinstance(job.run[name], list) else job.run[name]), name


@named
def test_a_functional_test_is_the_job_of_the_script(job: SameJob) -> None:
    loaded = read(same_jobs.functional_test(job), name="model_config.yaml")
    assert differences(launched(job).job, loaded.job) == {NAME}
    assert unknown(loaded) == unknown(launched(job)) == []


@named
@pytest.mark.parametrize("root", [None, pytest.param(ROOT, marks=needs_tree)], ids=["catalog", "Primus tree"])
def test_a_primus_experiment_differs_from_the_script_where_the_table_says_why(job: SameJob, root: Path | None) -> None:
    loaded = read(same_jobs.experiment(job), name="exp.yaml", primus_root=root)
    assert differences(launched(job).job, loaded.job) == {NAME, STOCK, *job.differs}
    assert unknown(loaded) == []


@named
def test_a_config_json_under_megatron_is_the_job_of_the_script(job: SameJob) -> None:
    loaded = read(json.dumps(job.model.config), name="config.json", overrides=parse_overrides(same_jobs.arguments(job)))
    assert differences(launched(job).job, loaded.job) == {NAME}
    assert unknown(loaded) == []


@named
def test_a_model_of_the_catalog_under_megatron_is_the_job_of_the_script(job: SameJob) -> None:
    text = json.dumps({"model": job.model.catalog})
    loaded = read(text, name="model.json", overrides=parse_overrides(same_jobs.arguments(job)))
    assert differences(launched(job).job, loaded.job) == {NAME}


@named
def test_a_conversion_is_the_job_of_the_script(job: SameJob) -> None:
    assert read(write(launched(job)), name="own.yaml").job == launched(job).job


@dataclass(frozen=True, kw_only=True)
class TitanRun:
    """One run of TorchTitan."""

    name: str
    """The model."""
    flavor: str
    """Its size."""
    preset: str
    """Both, as a preset of Primus."""
    sections: Mapping[str, Mapping[str, Any]]
    """Everything else."""

    def values(self, **named: object) -> dict[str, Any]:
        """The sections, with the model `named` in one of them."""
        return {**self.sections, "model": {**named, **self.sections.get("model", {})}}


TITAN = {
    "fully sharded": TitanRun(
        name="llama3",
        flavor="8B",
        preset="llama3.1_8B.yaml",
        sections={
            "compile": {"enable": False},
            "training": {"local_batch_size": 4, "seq_len": 8192},
            "parallelism": {"data_parallel_shard_degree": -1},
            "activation_checkpoint": {"mode": "full"},
        },
    ),
    "hybrid sharding, tensor parallelism and float8": TitanRun(
        name="llama3",
        flavor="70B",
        preset="llama3.1_70B.yaml",
        sections={
            "compile": {"enable": True},
            "model": {"converters": ["quantize.linear.float8"]},
            "training": {"local_batch_size": 4, "global_batch_size": 512, "seq_len": 8192},
            "parallelism": {
                "data_parallel_replicate_degree": 2,
                "data_parallel_shard_degree": 8,
                "tensor_parallel_degree": 8,
                "enable_async_tensor_parallel": True,
            },
            "activation_checkpoint": {"mode": "selective", "selective_ac_option": "2"},
            "quantize": {"linear": {"float8": {"filter_fqns": ["output"]}}},
        },
    ),
    "experts in a pipeline": TitanRun(
        name="deepseek_v3",
        flavor="16B",
        preset="deepseek_v3_16b.yaml",
        sections={
            "compile": {"enable": False},
            "training": {"local_batch_size": 16, "seq_len": 4096},
            "parallelism": {
                "expert_parallel_degree": 8,
                "pipeline_parallel_degree": 2,
                "pipeline_parallel_microbatch_size": 2,
                "pipeline_parallel_schedule": "Interleaved1F1B",
            },
            "activation_checkpoint": {"mode": "full"},
        },
    ),
    "long sequences in bf16 with MXFP8 and offloading": TitanRun(
        name="llama3",
        flavor="405B",
        preset="llama3.1_405B.yaml",
        sections={
            "compile": {"enable": True},
            "model": {"converters": ["quantize.linear.mx"]},
            "training": {"local_batch_size": 1, "seq_len": 131072, "dtype": "bfloat16", "enable_cpu_offload": True},
            "parallelism": {
                "context_parallel_degree": 8,
                "fsdp_reshard_after_forward": "never",
                "tensor_parallel_degree": 8,
            },
            "activation_checkpoint": {"mode": "selective", "selective_ac_option": "op"},
        },
    ),
}
REPEATED = "software.repeated_key_values"
"""Neither Primus's attention nor that of the generation with a registry repeats keys and values for its kernel."""
GENERATION = {REPEATED, "software.compiled_dispatch"}
"""What the generation with a registry does otherwise."""
TURBO = "software.attention_backend"
"""Primus's presets switch its own attention on, which is one kernel family; TorchTitan's depends on the device."""


@pytest.mark.parametrize("run", TITAN.values(), ids=TITAN)
def test_torchtitan_is_the_same_run_in_every_file(run: TitanRun) -> None:
    written = read(toml(run.values(name=run.name, flavor=run.flavor)), name="run.toml").job
    resolved = read(json.dumps(run.values(name=run.name, flavor=run.flavor)), name="resolved.json")
    specification = {"model_spec": {"name": run.name, "flavor": run.flavor}, **run.sections}
    registered = read(json.dumps(specification), name="registered.json")
    module = {"framework": "torchtitan", "config": "pre_trainer.yaml", "model": run.preset}
    primus = read(experiment_text({**module, "overrides": run.sections}), name="exp.yaml")
    assert differences(written, resolved.job) == set()
    assert differences(written, registered.job) == GENERATION
    assert differences(written, primus.job) == {REPEATED, TURBO}
    assert unknown(resolved) == unknown(registered) == unknown(primus) == []


def test_torchtitan_and_accelerate_shard_the_same_way() -> None:
    titan = TITAN["fully sharded"]
    sharding = {"fsdp_sharding_strategy": "FULL_SHARD", "fsdp_activation_checkpointing": True}
    files = {"a.json": json.dumps({"distributed_type": "FSDP", "mixed_precision": "bf16", "fsdp_config": sharding})}
    overrides = parse_overrides(["seq_length=8192", "micro_batch_size=4"])
    accelerated = read('{"model": "llama3.1-8b"}', name="model.json", companions=files, overrides=overrides).job
    written = read(toml(titan.values(name=titan.name, flavor=titan.flavor)), name="run.toml").job
    assert differences(written, accelerated) == {
        *GENERATION,  # nor does that of Transformers
        "parallelism.sequence_parallel",  # TorchTitan's default, without effect at tensor parallel 1
        "software.attention_backend",  # scaled_dot_product_attention is asked for by name
        "precision.reduction_bytes",  # accelerate reduces in bf16, TorchTitan in fp32
        "precision.local_gradient_bytes",  # accelerate reduces once an iteration, TorchTitan for each micro batch
        "modules",  # Transformers' classes keep what they are written to keep
        "software.fused_norms",  # Transformers writes its norms out
        "software.rotary_fusion",  # Transformers hands cosine and sine to every layer
    }
