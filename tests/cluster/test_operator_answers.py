"""The operator answers what is applied, refuses what is wrong with a reason, and goes on either way."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from projector.api import Question, project
from tests.cluster.controlplane import ControlPlane
from tests.cluster.demo import print_status
from tests.cluster.operator_process import OperatorProcess, account, eventually, running_operator
from tests.cluster.requests_for_tests import (
    ROOT,
    SAMPLE,
    change_spec,
    condition,
    events,
    exists,
    get,
    reports,
    request,
    sample_request,
    wait_completed,
    wait_gone,
    wait_refused,
)

MIB = 1 << 20

ALIAS_BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


pytestmark = pytest.mark.usefixtures("installed")


@pytest.fixture(scope="module")
def operator(installed: ControlPlane) -> Iterator[OperatorProcess]:
    with running_operator(account(installed)) as running:
        yield running


def test_the_sample_is_answered_as_the_engine_answers_it(
    control_plane: ControlPlane, namespace: str, operator: OperatorProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    body = sample_request(namespace)
    control_plane.apply(body)
    name = body["metadata"]["name"]
    wait_completed(control_plane, namespace, name)
    stored = get(control_plane, namespace, name)
    status = stored["status"]
    expected = project(
        Question(text=SAMPLE, format="primus", device="MI300X", nodes=8, overrides={"global_batch_size": "192"})
    )
    assert expected.memory is not None
    assert expected.performance is not None
    assert status["verdict"] == expected.memory.verdict
    assert status["throughput"]["iterationTimeMilliseconds"] == round(expected.performance.iteration_seconds * 1000)
    assert status["hardware"] == {"device": "MI300X", "devices": 64, "nodes": 8, "source": "Spec"}
    print_status(status)
    shown = capsys.readouterr().out
    assert all(str(figure) in shown for figure in status["throughput"].values() if not isinstance(figure, list))
    assert all(reason in shown for reason in status["throughput"]["confidenceReasons"])
    assert status["observedGeneration"] == stored["metadata"]["generation"]
    assert [item["type"] for item in status["conditions"]] == ["Accepted", "Benchmarked", "Fits", "Completed"]
    report = get(control_plane, namespace, status["reportRef"]["name"], "configmap")
    document = json.loads(report["data"]["projection.json"])
    assert document["memory"] == json.loads(json.dumps(expected.to_dict()["memory"]))
    assert report["metadata"]["ownerReferences"][0]["uid"] == stored["metadata"]["uid"]
    series = operator.series(namespace, name)
    rate = series[f'projection_throughput_tokens_per_second{{name="{name}",namespace="{namespace}"}}']
    assert rate == status["throughput"]["tokensPerSecondPerDevice"] * 64


FORMATS = {
    "megatron-llama3-8b.sh": ({}, "Megatron"),
    "torchtitan-llama3-8b.toml": ({}, "TorchTitan"),
    "huggingface-qwen3-30b-a3b.json": (
        {"batch": {"micro": 1, "global": 64, "sequenceLength": 4096}, "parallelism": {"expert": 8}},
        "HuggingFace",
    ),
}
"""Samples of other formats, with what a request has to add, and their names in a request."""


@pytest.mark.parametrize("stated", [True, False], ids=["stated", "detected"])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_answered(
    control_plane: ControlPlane, namespace: str, operator: OperatorProcess, name: str, *, stated: bool
) -> None:
    added, format_ = FORMATS[name]
    text = (ROOT / "samples" / "configurations" / name).read_text(encoding="utf-8")
    training = {"inline": text, **({"format": format_} if stated else {})}
    body = {**request("other", namespace)}
    body["spec"] = {"training": training, "target": {"nodes": 4, "device": "MI300X"}, **added}
    control_plane.apply(body)
    wait_completed(control_plane, namespace, "other")
    status = get(control_plane, namespace, "other")["status"]
    assert status["verdict"] == "Fits"
    assert status["hardware"]["devices"] == 32
    assert operator.process.poll() is None


def test_nothing_but_the_status_is_written_to_the_object(
    control_plane: ControlPlane, namespace: str, operator: OperatorProcess
) -> None:
    body = request("clean", namespace)
    control_plane.apply(body)
    wait_completed(control_plane, namespace, "clean")
    stored = control_plane.get("projreq", "clean", f"--namespace={namespace}", "--show-managed-fields")
    assert "finalizers" not in stored["metadata"]
    assert set(stored["metadata"]["annotations"]) == {"kubectl.kubernetes.io/last-applied-configuration"}
    ours = [entry for entry in stored["metadata"]["managedFields"] if entry["manager"] == "projection-operator"]
    assert [entry["subresource"] for entry in ours] == ["status"]
    assert operator.process.poll() is None


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "missing key": ({"inline": SAMPLE.replace("    model: llama3.1_70B.yaml\n", "")}, "ConfigurationInvalid", "model"),
    "unknown model preset": (
        {"inline": SAMPLE.replace("llama3.1_70B.yaml", "llama9_70B.yaml")},
        "PresetUnknown",
        "llama9_70B",
    ),
    "unknown recipe": ({"training": {"preset": "llama9"}}, "PresetUnknown", "llama3.1-70b-bf16-mi300x"),
    "wrong type": (
        {"inline": SAMPLE.replace("seq_length: 8192", "seq_length: many")},
        "ConfigurationInvalid",
        "'many'",
    ),
    "unknown override": (
        {"training": {"inline": SAMPLE, "overrides": [{"name": "tensor_modle_parallel_size", "value": "2"}]}},
        "ConfigurationInvalid",
        "did you mean tensor_model_parallel_size",
    ),
    "heads do not divide": (
        {"target": {"nodes": 3, "device": "MI300X"}, "parallelism": {"tensor": 3}, "batch": {"global": 24}},
        "LayoutImpossible",
        "64 attention heads",
    ),
    "the batch as written": ({"batch": {"micro": 3}}, "BatchIndivisible", "the nearest that does: 192"),
    "alias bomb": ({"inline": ALIAS_BOMB + SAMPLE}, "ConfigurationTooLarge", "aliases"),
    "file outside": ({"inline": "extends: [../../etc/passwd]\n" + SAMPLE}, "ConfigurationInvalid", "../../etc/passwd"),
    "unset variable": (
        {"inline": SAMPLE.replace("micro_batch_size: 3", "micro_batch_size: ${HOME}")},
        "ConfigurationInvalid",
        "HOME",
    ),
    "not YAML": ({"inline": "modules: ["}, "ConfigurationInvalid", "spec.training.inline"),
    "unknown GPU": ({"target": {"nodes": 8, "device": "MI9000"}}, "DeviceUnknown", "MI300X"),
    "no GPU named, no node has one": (
        {
            "target": {"nodes": 8},
            "profiling": {"podTemplate": {"nodeSelector": [{"name": "example.com/pool", "value": "nobody"}]}},
        },
        "DeviceUnknown",
        "spec.target.device",
    ),
    "another dialect": (
        {"training": {"format": "Megatron", "inline": SAMPLE}},
        "ConfigurationInvalid",
        "looks like primus, not megatron",
    ),
    "no such ConfigMap": ({"training": {"configMapRef": {"name": "no", "key": "k"}}}, "ConfigMapNotFound", "'no'"),
    "no such hardware file": (
        {"target": {"nodes": 8, "device": "MI300X", "hardwareConfigRef": {"name": "no", "key": "k"}}},
        "ConfigMapNotFound",
        "hardwareConfigRef",
    ),
}
"""What is applied, the reason that is given, and words of the message."""


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_not_accepted_and_says_why(
    case: str, control_plane: ControlPlane, namespace: str, operator: OperatorProcess
) -> None:
    spec, reason, words = WRONG[case]
    control_plane.apply(request("wrong", namespace, **spec), request("right", namespace))
    wait_refused(control_plane, namespace, "wrong")
    wait_completed(control_plane, namespace, "right")
    stored = get(control_plane, namespace, "wrong")
    accepted = condition(stored, "Accepted")
    assert (accepted["reason"], condition(stored, "Completed")["reason"]) == (reason, reason)
    assert words in accepted["message"]
    assert "Traceback" not in accepted["message"]
    assert "verdict" not in stored["status"]
    assert [event["reason"] for event in events(control_plane, namespace, "wrong")] == [reason]
    assert operator.process.poll() is None


@pytest.mark.parametrize("mode", ["Benchmark", "Both"])
def test_a_benchmark_is_not_available_and_the_analytical_answer_stands(
    mode: str, control_plane: ControlPlane, namespace: str, operator: OperatorProcess
) -> None:
    control_plane.apply(request("measured", namespace, profiling={"mode": mode}))
    wait_completed(control_plane, namespace, "measured")
    stored = get(control_plane, namespace, "measured")
    benchmarked = condition(stored, "Benchmarked")
    assert (benchmarked["status"], benchmarked["reason"]) == ("False", "NotAvailable")
    assert stored["status"]["throughput"]["tokensPerSecondPerDevice"] > 0
    assert operator.lines("A part of the operator died, stopping") == []


def test_a_recipe_that_ships_with_the_project_is_answered(
    control_plane: ControlPlane, namespace: str, operator: OperatorProcess
) -> None:
    control_plane.apply(request("recipe", namespace, training={"preset": "llama3.1-70b-bf16-mi300x"}))
    wait_completed(control_plane, namespace, "recipe")
    assert operator.series(namespace, "recipe")


def test_half_a_question_gets_half_an_answer(
    control_plane: ControlPlane, namespace: str, operator: OperatorProcess
) -> None:
    control_plane.apply(request("speed", namespace, projections=["Performance"]))
    wait_completed(control_plane, namespace, "speed")
    stored = get(control_plane, namespace, "speed")
    assert condition(stored, "Fits")["reason"] == "NotRequested"
    assert "memory" not in stored["status"]
    assert not any("memory" in series for series in operator.series(namespace, "speed"))


def test_the_event_tells_the_answer(control_plane: ControlPlane, namespace: str, operator: OperatorProcess) -> None:
    control_plane.apply(request("told", namespace))
    wait_completed(control_plane, namespace, "told")
    (event,) = events(control_plane, namespace, "told")
    assert (event["type"], event["reason"], event["action"]) == ("Normal", "Projected", "Project")
    assert event["reportingController"] == "projection.dev/operator"
    described = control_plane.kubectl("describe", "projreq", "told", f"--namespace={namespace}")
    assert event["note"] in described
    assert operator.process.poll() is None


def test_a_deleted_request_leaves_no_series_and_no_report(
    control_plane: ControlPlane, namespace: str, operator: OperatorProcess
) -> None:
    control_plane.apply(request("brief", namespace))
    wait_completed(control_plane, namespace, "brief")
    assert operator.series(namespace, "brief")
    assert len(reports(control_plane, namespace)) == 1
    control_plane.kubectl("delete", "projreq", "brief", f"--namespace={namespace}")
    eventually(lambda: not operator.series(namespace, "brief"), what="the series to vanish")
    eventually(lambda: not reports(control_plane, namespace), what="the garbage collector to take the report")


def test_a_finished_request_is_deleted_when_its_time_is_over(
    control_plane: ControlPlane, namespace: str, operator: OperatorProcess
) -> None:
    control_plane.apply(
        request("soon", namespace, ttlSecondsAfterFinished=1),
        request("refused", namespace, ttlSecondsAfterFinished=1, batch={"global": 193}),
        request("later", namespace, ttlSecondsAfterFinished=3600),
    )
    wait_gone(control_plane, namespace, "soon")
    wait_gone(control_plane, namespace, "refused")
    wait_completed(control_plane, namespace, "later")
    assert exists(control_plane, namespace, "later")
    change_spec(control_plane, namespace, "later", ttlSecondsAfterFinished=0)
    wait_gone(control_plane, namespace, "later")
    assert operator.process.poll() is None


EDITS = {
    "verdict": {"verdict": "Unknown"},
    "memory": {"memory": None},
    "conditions": {"conditions": []},
    "everything": None,
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_answer_that_somebody_changes_by_hand_is_mended(
    control_plane: ControlPlane, namespace: str, operator: OperatorProcess, edit: str
) -> None:
    control_plane.apply(request("edited", namespace))
    wait_completed(control_plane, namespace, "edited")
    answer = get(control_plane, namespace, "edited")["status"]
    patch = json.dumps({"status": EDITS[edit]})
    here = (f"--namespace={namespace}", "projreq", "edited")
    control_plane.kubectl("patch", *here, "--subresource=status", "--type=merge", f"--patch={patch}")

    def mended() -> bool:
        found = get(control_plane, namespace, "edited").get("status", {})
        parts = ("verdict", "memory", "throughput", "reportRef", "specHash")
        gists = [
            [(item["type"], item["status"], item["message"]) for item in status.get("conditions", ())]
            for status in (found, answer)
        ]
        return gists[0] == gists[1] and all(found.get(part) == answer[part] for part in parts)

    eventually(mended, what="the answer to be as it was")
    assert operator.process.poll() is None


def test_a_changed_ttl_is_observed_and_not_projected_again(
    control_plane: ControlPlane, namespace: str, operator: OperatorProcess
) -> None:
    control_plane.apply(request("kept", namespace))
    wait_completed(control_plane, namespace, "kept")
    before = get(control_plane, namespace, "kept")["status"]
    change_spec(control_plane, namespace, "kept", ttlSecondsAfterFinished=3600)
    control_plane.wait("jsonpath={.status.observedGeneration}=2", f"--namespace={namespace}", "projreq/kept")
    after = get(control_plane, namespace, "kept")["status"]
    assert after["lastProjectionTime"] == before["lastProjectionTime"]
    assert {item["observedGeneration"] for item in after["conditions"]} == {2}
    assert operator.process.poll() is None


def test_log_lines_about_a_request_carry_its_key(
    control_plane: ControlPlane, namespace: str, operator: OperatorProcess
) -> None:
    control_plane.apply(request("logged", namespace))
    wait_completed(control_plane, namespace, "logged")
    entry = operator.wait_for_log("Status written", request=f"{namespace}/logged", reason="Projected")
    assert entry["completed"] == "True"
    assert all(isinstance(line, dict) and line["level"] != "raw" for line in operator.log)


def test_memory_stays_below_its_bound(control_plane: ControlPlane, namespace: str, operator: OperatorProcess) -> None:
    control_plane.apply(request("small", namespace))
    wait_completed(control_plane, namespace, "small")
    print(f"operator: {operator.resident_bytes() / MIB:.0f} MiB resident")
    assert operator.resident_bytes() < 200 * 10**6
