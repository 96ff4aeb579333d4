"""The question is made from the request and what it names, and from nothing else."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

from projection_operator.presets import preset_names, preset_text
from projection_operator.reconcile import ConfigMapContent, Observed
from projection_operator.reconcile.question import OVERRIDE_KEYS, SCHEDULES, build_question, spec_hash
from projector.answer import load
from projector.api import Question, project
from projector.errors import InputError
from projector.job import Scaling, Schedule
from tests.config.own.jobs import DIALECTS
from tests.operator.builders import request

ROOT = Path(__file__).resolve().parents[2]
FROM_MAP = {"configMapRef": {"name": "config", "key": "job.yaml"}}


def question(observed: Observed | None = None, **spec: object) -> Question:
    return build_question(request(**spec), observed or Observed(), primus_root=None)


def identity(observed: Observed | None = None, engine: str = "1", **spec: object) -> str:
    asked = request(**spec)
    return spec_hash(build_question(asked, observed or Observed(), primus_root=None), asked, engine_version=engine)


def with_map(**data: str) -> Observed:
    return Observed(config_maps={"config": ConfigMapContent(data=data)})


def test_parallelism_and_batch_win_over_overrides() -> None:
    asked = question(
        training={
            "inline": "a: 1",
            "overrides": [{"name": "tensor_model_parallel_size", "value": "2"}, {"name": "lr", "value": "1e-5"}],
            "variables": [{"name": "PRIMUS_TP", "value": "8"}],
        },
        parallelism={"tensor": 4, "expertTensor": 1},
        batch={"global": 192, "sequenceLength": 4096},
    )
    assert asked.overrides == {
        "tensor_model_parallel_size": "4",
        "lr": "1e-5",
        "expert_tensor_parallel_size": "1",
        "global_batch_size": "192",
        "seq_length": "4096",
    }
    assert asked.variables == {"PRIMUS_TP": "8"}


def test_target_projections_and_schedule_are_passed_on() -> None:
    asked = question(
        target={"nodes": 4, "devicesPerNode": 4, "device": "MI325X", "scaling": "Weak"},
        projections=["Memory"],
        pipelineSchedule="ZeroBubble",
    )
    assert (asked.nodes, asked.devices_per_node, asked.device, asked.scaling) == (4, 4, "MI325X", Scaling.WEAK)
    assert (asked.memory, asked.performance, asked.schedule) == (True, False, Schedule.ZERO_BUBBLE)


def test_every_field_of_the_schema_has_its_translation() -> None:
    definition = yaml.safe_load((ROOT / "crds" / "projectionrequests.yaml").read_text(encoding="utf-8"))
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert {*spec["parallelism"]["properties"], *spec["batch"]["properties"]} == set(OVERRIDE_KEYS)
    assert spec["pipelineSchedule"]["enum"] == list(SCHEDULES)
    assert {*SCHEDULES.values()} == {"auto", "all", *Schedule}


def test_the_process_environment_never_gets_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIMUS_ROOT", "/somewhere")
    monkeypatch.setenv("PRIMUS_TP", "8")
    asked = question(training={"inline": "tp: ${PRIMUS_TP}"})
    assert (asked.primus_root, asked.directory, dict(asked.variables)) == (None, None, {})


@pytest.mark.parametrize(
    ("observed", "text"),
    [
        (with_map(**{"job.yaml": "a: 1"}), "a: 1"),
        (Observed(config_maps={"config": ConfigMapContent(data={}, binary={"job.yaml": b"b: \xc3\xa9"})}), "b: é"),
    ],
    ids=["data", "binaryData"],
)
def test_a_config_map_key_is_the_configuration(observed: Observed, text: str) -> None:
    assert question(observed, training=FROM_MAP).text == text


@pytest.mark.parametrize(
    ("observed", "spec", "reason", "words"),
    [
        (Observed(config_maps={"config": None}), {"training": FROM_MAP}, "ConfigMapNotFound", "projection.dev/config"),
        (with_map(other="x"), {"training": FROM_MAP}, "ConfigMapKeyNotFound", "its keys are: other"),
        (
            Observed(config_maps={"config": ConfigMapContent(data={}, binary={"job.yaml": b"\xff"})}),
            {"training": FROM_MAP},
            "ConfigurationInvalid",
            "not UTF-8",
        ),
        (Observed(), {"training": {"preset": "../secret"}}, "PresetUnknown", "llama3.1-70b-bf16-mi300x"),
        (Observed(), {"target": {"nodes": 1}}, "DeviceUnknown", "may not read"),
        (Observed(node_products=frozenset()), {"target": {"nodes": 1}}, "DeviceUnknown", "no matching node"),
        (
            Observed(node_products=frozenset({"AMD_Instinct_MI300X_OAM", "AMD_Instinct_MI325X_OAM"})),
            {"target": {"nodes": 1}},
            "DeviceUnknown",
            "MI300X, MI325X",
        ),
        (
            Observed(config_maps={"hw": None}),
            {"target": {"nodes": 1, "device": "MI300X", "hardwareConfigRef": {"name": "hw", "key": "k"}}},
            "ConfigMapNotFound",
            "spec.target.hardwareConfigRef",
        ),
    ],
)
def test_what_is_not_there_is_named(observed: Observed, spec: dict[str, Any], reason: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        question(observed, **spec)
    assert caught.value.reason == reason
    assert words in str(caught.value)


def test_nodes_that_agree_decide_the_device() -> None:
    asked = question(Observed(node_products=frozenset({"AMD_Instinct_MI300X_OAM"})), target={"nodes": 1})
    assert asked.device == "MI300X"


def test_every_shipped_recipe_can_be_named_and_the_sample_is_one() -> None:
    sample = (ROOT / "samples" / "experiments" / "llama3.1-70b-mi300x.yaml").read_text(encoding="utf-8")
    assert preset_text("llama3.1-70b-bf16-mi300x") == sample
    for name in preset_names():
        assert question(training={"preset": name}).text == preset_text(name)


@pytest.mark.parametrize(
    "change",
    [
        {"training": {"inline": "modules: {} "}},
        {"training": {"inline": "modules: {}\n", "variables": [{"name": "A", "value": "1"}]}},
        {"training": {"inline": "modules: {}\n", "overrides": [{"name": "a", "value": "1"}]}},
        {"target": {"nodes": 9, "device": "MI300X"}},
        {"target": {"nodes": 8, "device": "MI325X"}},
        {"target": {"nodes": 8, "device": "MI300X", "tokens": 10}},
        {"parallelism": {"tensor": 2}},
        {"batch": {"micro": 2}},
        {"projections": ["Memory"]},
        {"profiling": {"mode": "Benchmark"}},
        {"pipelineSchedule": "All"},
        {"engine": "2"},
    ],
    ids=str,
)
def test_the_hash_follows_everything_that_the_answer_depends_on(change: dict[str, Any]) -> None:
    assert identity(**change) != identity()


def test_the_hash_is_blind_to_what_changes_no_answer() -> None:
    assert identity(ttlSecondsAfterFinished=5, metadata={"uid": "other", "resourceVersion": "7"}) == identity()


def test_the_hash_covers_every_field_of_a_question() -> None:
    asked = request()
    plain = build_question(asked, Observed(), primus_root=None)
    base = spec_hash(plain, asked, engine_version="1")
    for field in dataclasses.fields(plain):
        changes: dict[str, Any] = {field.name: "something else"}
        changed = dataclasses.replace(plain, **changes)
        assert spec_hash(changed, asked, engine_version="1") != base, field.name


OWN = """\
projector: 1
model: {catalog: llama3.1-8b}
parallelism: {tensor: '${TP}'}
batch: {micro: 1, global: 8, sequence_length: 4096}
"""


def test_a_request_may_hold_the_project_s_own_format() -> None:
    asked = question(
        training={
            "format": "Projector",
            "inline": OWN,
            "variables": [{"name": "TP", "value": "4"}],
            "overrides": [
                {"name": "recompute.granularity", "value": "full"},
                {"name": "recompute.layers", "value": "32"},
            ],
        },
        target={"nodes": 1, "devicesPerNode": 8, "device": "MI300X"},
        parallelism={"tensor": 2},
        batch={"global": 16, "sequenceLength": 2048},
    )
    answer = project(asked)
    assert (answer.format, answer.layout.tensor, answer.layout.data) == ("projector", 2, 4)
    assert (answer.global_batch, answer.sequence_length) == (16, 2048)
    assert {value.key for value in answer.values if value.source == "override"} == {
        "parallelism.tensor",
        "batch.global",
        "batch.sequence_length",
        "recompute.granularity",
        "recompute.layers",
    }


SIZES = {"tensor": 1, "pipeline": 2, "virtualPipeline": 2, "expert": 1, "expertTensor": 1, "context": 2}
BATCH = {"micro": 2, "global": 64, "sequenceLength": 1024}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_size_of_a_request_reaches_the_job_whatever_the_dialect(dialect: str) -> None:
    assert {**SIZES, **BATCH}.keys() == OVERRIDE_KEYS.keys()
    text, _ = DIALECTS[dialect]
    # The chunks of TorchTitan follow from its schedule alone.
    sizes = {name: size for name, size in SIZES.items() if dialect != "torchtitan" or name != "virtualPipeline"}
    job = load(question(training={"inline": text}, parallelism=sizes, batch=BATCH)).job
    layout = job.parallelism
    assert (layout.tensor, layout.pipeline, layout.context) == (1, 2, 2)
    assert (layout.expert, layout.expert_tensor) in {(1, 1), (1, None)}
    assert layout.virtual_pipeline == sizes.get("virtualPipeline", 1)
    assert (job.batch.micro, job.batch.global_, job.batch.sequence_length) == (2, 64, 1024)
