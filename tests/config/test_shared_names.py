"""A name that all dialects share changes the field that it names, in every dialect and in any order."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projector.config import LoadedConfiguration, parse_overrides, read
from projector.config.own.writing import write
from projector.errors import ConfigurationError
from tests.config import same_jobs
from tests.config.builders import experiment_text
from tests.config.same_jobs import JOBS, differences, toml

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
            "batch.pipeline_micro_batches",
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
# Without it, experts do not train under tensor parallelism.
_SEQUENCE_PARALLEL = ("sequence_parallel=true",)
_BATCH = ("seq_length=4096", "micro_batch_size=1", "global_batch_size=64")

DIALECTS = {
    "Primus": Plain(text=same_jobs.experiment(_MIXTRAL)),
    "Megatron-LM, launch script": Plain(text=same_jobs.script(_MIXTRAL), overrides=_SEQUENCE_PARALLEL),
    "Megatron-LM, functional test": Plain(text=same_jobs.functional_test(_MIXTRAL), overrides=_SEQUENCE_PARALLEL),
    "own": Plain(text=write(read(same_jobs.script(_MIXTRAL), name="run.sh"))),
    "Hugging Face": Plain(text=json.dumps(_MIXTRAL.model.config), overrides=_BATCH, also=_ASSUMED),
    "Hugging Face, DeepSpeed": Plain(
        text=json.dumps(_MIXTRAL.model.config),
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
        text=json.dumps(_MIXTRAL.model.config),
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
