"""One job is the same job in every dialect; what differs is named, with the reason."""

import json
from dataclasses import fields, is_dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projector.config import LoadedConfiguration, parse_overrides, read
from projector.config.own.writing import write
from projector.errors import ConfigurationError
from tests.config import same_jobs
from tests.config.same_jobs import JOBS, SameJob

named = pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
NAME = "model.name"
"""A script and a config.json have no name for their model."""
STOCK = "parallelism.spread_remainder"
"""Stock Megatron-LM refuses layers that do not divide over the stages, which Primus spreads."""


def differences(first: object, second: object, name: str = "") -> set[str]:
    """Dotted names of the fields in which two values differ."""
    if is_dataclass(first) and type(first) is type(second):
        return {
            difference
            for item in fields(first)
            for difference in differences(
                getattr(first, item.name), getattr(second, item.name), f"{name}.{item.name}".lstrip(".")
            )
        }
    if isinstance(first, tuple) and isinstance(second, tuple) and len(first) == len(second):
        distinct = set(zip(first, second, strict=True))
        return {difference for pair in distinct for difference in differences(*pair, name)}
    return set() if first == second else {name}


def launched(job: SameJob) -> LoadedConfiguration:
    return read(same_jobs.script(job), name="run.sh")


def unknown(loaded: LoadedConfiguration) -> list[str]:
    """Keys that the reader does not know."""
    return [note.what for note in loaded.unmodelled if "not a key" in note.effect]


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
    loaded = read(json.dumps(job.config), name="config.json", overrides=parse_overrides(same_jobs.arguments(job)))
    assert differences(launched(job).job, loaded.job) == {NAME}
    assert unknown(loaded) == []


@named
def test_a_model_of_the_catalog_under_megatron_is_the_job_of_the_script(job: SameJob) -> None:
    text = json.dumps({"model": job.catalog})
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
TURBO = "software.attention_backend"
"""Primus's presets switch its own attention on, which is one kernel family; TorchTitan's depends on the device."""


def toml(sections: Mapping[str, Any], head: str = "") -> str:
    """The text of nested sections."""
    inner = {key: value for key, value in sections.items() if isinstance(value, Mapping)}
    lines = [f"{key} = {json.dumps(value)}" for key, value in sections.items() if key not in inner]
    own = "\n".join([f"[{head}]", *lines, ""]) if lines else ""
    return own + "".join(toml(value, f"{head}.{key}".lstrip(".")) for key, value in inner.items())


@pytest.mark.parametrize("run", TITAN.values(), ids=TITAN)
def test_torchtitan_is_the_same_run_in_every_file(run: TitanRun) -> None:
    written = read(toml(run.values(name=run.name, flavor=run.flavor)), name="run.toml").job
    specification = {"model_spec": {"name": run.name, "flavor": run.flavor}, **run.sections}
    resolved = read(json.dumps(specification), name="resolved.json")
    module = {"framework": "torchtitan", "config": "pre_trainer.yaml", "model": run.preset}
    primus = read(experiment_text({**module, "overrides": run.sections}), name="exp.yaml")
    assert differences(written, resolved.job) == set()
    assert differences(written, primus.job) == {TURBO}
    assert unknown(resolved) == unknown(primus) == []


def test_torchtitan_and_accelerate_shard_the_same_way() -> None:
    titan = TITAN["fully sharded"]
    sharding = {"fsdp_sharding_strategy": "FULL_SHARD", "fsdp_activation_checkpointing": True}
    files = {"a.json": json.dumps({"distributed_type": "FSDP", "mixed_precision": "bf16", "fsdp_config": sharding})}
    overrides = parse_overrides(["seq_length=8192", "micro_batch_size=4"])
    accelerated = read('{"model": "llama3.1-8b"}', name="model.json", companions=files, overrides=overrides).job
    written = read(toml(titan.values(name=titan.name, flavor=titan.flavor)), name="run.toml").job
    assert differences(written, accelerated) == {
        "parallelism.sequence_parallel",  # TorchTitan's default, without effect at tensor parallel 1
        "software.attention_backend",  # scaled_dot_product_attention is asked for by name
        "software.rotary_fusion",  # Transformers hands cosine and sine to every layer
    }


SHARED = {
    "micro_batch_size": (2, "batch.micro"),
    "global_batch_size": (128, "batch.global_"),
    "seq_length": (1024, "batch.sequence_length"),
    "tensor_model_parallel_size": (2, "parallelism.tensor"),
    "pipeline_model_parallel_size": (2, "parallelism.pipeline"),
    "context_parallel_size": (4, "parallelism.context"),
    "expert_model_parallel_size": (4, "parallelism.expert"),
}
"""Names that all dialects share, each with another value than the files below have, and the field that it names."""


@dataclass(frozen=True, kw_only=True)
class Plain:
    """A file of a dialect without parallelism."""

    text: str
    """The file."""
    overrides: tuple[str, ...] = ()
    """What completes it."""
    beside: Mapping[str, str] | None = None
    """Files beside it."""
    lacks: frozenset[str] = frozenset()
    """Shared names for which the framework has nothing."""
    also: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """What else a shared name changes, since the framework itself decides it by the same value."""


_MIXTRAL = replace(
    JOBS["Mixtral 8x7B with expert parallelism"],
    run={"seq_length": 4096, "micro_batch_size": 1, "global_batch_size": 64},
)
_TITAN_SECTIONS = {
    "training": {"local_batch_size": 8, "global_batch_size": 64, "seq_len": 4096},
    "parallelism": {"data_parallel_shard_degree": -1},
}
_TITAN_DECIDES = {
    # A pipeline cuts the local batch into micro batches of one, keeps weights whole and has a schedule of its own.
    "pipeline_model_parallel_size": frozenset(
        {
            "batch.micro",
            "batch.micro_batches",
            "parallelism.pipeline_layout",
            "parallelism.reshard_after_forward",
            "schedule",
        }
    ),
    # Experts have no tensor parallelism of their own unless it is stated.
    "expert_model_parallel_size": frozenset({"parallelism.expert_tensor"}),
}
_EAGER_LACKS = frozenset({"pipeline_model_parallel_size", "expert_model_parallel_size"})
# What Megatron-LM's advice is for tensor parallelism is assumed where nothing else is stated.
_ASSUMED = {"tensor_model_parallel_size": frozenset({"parallelism.sequence_parallel"})}
_BATCH = ("seq_length=4096", "micro_batch_size=1", "global_batch_size=64")

DIALECTS = {
    "Primus": Plain(text=same_jobs.experiment(_MIXTRAL)),
    "Megatron-LM, launch script": Plain(text=same_jobs.script(_MIXTRAL)),
    "Megatron-LM, functional test": Plain(text=same_jobs.functional_test(_MIXTRAL)),
    "own": Plain(text=write(launched(_MIXTRAL))),
    "Hugging Face": Plain(text=json.dumps(_MIXTRAL.config), overrides=_BATCH, also=_ASSUMED),
    "Hugging Face, DeepSpeed": Plain(
        text=json.dumps(_MIXTRAL.config),
        overrides=_BATCH[:1],
        beside={
            "ds.json": json.dumps(
                {
                    "train_batch_size": 64,
                    "train_micro_batch_size_per_gpu": 1,
                    "zero_optimization": {"stage": 3},
                    "bf16": {"enabled": True},
                }
            )
        },
        lacks=_EAGER_LACKS,
    ),
    "Hugging Face, FSDP": Plain(
        text=json.dumps(_MIXTRAL.config),
        overrides=_BATCH,
        beside={"a.yaml": "{distributed_type: FSDP, mixed_precision: bf16, fsdp_config: {}}"},
        lacks=_EAGER_LACKS,
    ),
    "TorchTitan": Plain(
        text=toml({"model": {"name": "deepseek_v3", "flavor": "16B"}, **_TITAN_SECTIONS}), also=_TITAN_DECIDES
    ),
    "TorchTitan, resolved": Plain(
        text=json.dumps({"model_spec": {"name": "deepseek_v3", "flavor": "16B"}, "model": {}, **_TITAN_SECTIONS}),
        also=_TITAN_DECIDES,
    ),
    "Primus, TorchTitan": Plain(
        text=experiment_text(
            {
                "framework": "torchtitan",
                "config": "pre_trainer.yaml",
                "model": "deepseek_v3_16b.yaml",
                "overrides": _TITAN_SECTIONS,
            }
        ),
        also=_TITAN_DECIDES,
    ),
}
in_every_dialect = pytest.mark.parametrize("plain", DIALECTS.values(), ids=DIALECTS)


def overridden(plain: Plain, *overrides: str) -> LoadedConfiguration:
    given = parse_overrides([*plain.overrides, *overrides])
    return read(plain.text, name="file", overrides=given, companions=plain.beside)


def stated(name: str) -> str:
    return f"{name}={SHARED[name][0]}"


@in_every_dialect
@pytest.mark.parametrize("name", SHARED)
def test_a_shared_name_changes_the_field_that_it_names(plain: Plain, name: str) -> None:
    if name in plain.lacks:
        with pytest.raises(ConfigurationError, match=f"override {name}: is not a value of a run"):
            overridden(plain, stated(name))
        return
    value, path = SHARED[name]
    section, _, key = path.partition(".")
    job = overridden(plain, stated(name)).job
    assert differences(overridden(plain).job, job) == {path, *plain.also.get(name, ())}
    assert getattr(getattr(job, section), key) == value


@in_every_dialect
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_shared_names_come_in_any_order(plain: Plain, data: st.DataObject) -> None:
    names = [name for name in SHARED if name not in plain.lacks]
    order = data.draw(st.permutations(names))
    job = overridden(plain, *map(stated, order)).job
    assert job == overridden(plain, *map(stated, names)).job
    for name in names:
        value, path = SHARED[name]
        section, _, key = path.partition(".")
        assert getattr(getattr(job, section), key) == value
