"""The real API server refuses what can be known to be wrong, in words a person can act on, and keeps what is right."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.plane import KubectlError
from tests.cluster.operator_process import DEFINITION

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = [
    ROOT / "samples" / name
    for name in ("projectionrequest.yaml", "projectionrequest-configmap.yaml", "llama3.1-70b-as-written.yaml")
]

Json = dict[str, Any]

WRONG: dict[str, Json] = yaml.safe_load((ROOT / "tests" / "crds" / "wrong.yaml").read_text(encoding="utf-8"))
RIGHT: dict[str, Json] = yaml.safe_load((ROOT / "tests" / "crds" / "right.yaml").read_text(encoding="utf-8"))

IMMUTABLE = (
    "the spec cannot be changed after creation (only ttlSecondsAfterFinished can);"
    " create a new ProjectionRequest for the new question"
)

ANSWER: Json = {
    "observedGeneration": 1,
    "conditions": [
        {
            "type": "Completed",
            "status": "True",
            "reason": "Projected",
            "message": "",
            "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ],
    "verdict": "Fits",
    "confidence": "Medium",
    "confidenceReasons": ["few runs with experts are published"],
    "model": "llama3.1_70B",
    "memory": {"perDevice": {"expected": "171.3Gi", "available": "191.9Gi"}, "stages": [{"stage": 0, "layers": 80}]},
    "throughput": {"tokensPerSecondPerDevice": 1084, "iterationTimeMilliseconds": 22670},
    "hardware": {"device": "MI300X", "devices": 64, "nodes": 8, "source": "Spec"},
}


pytestmark = pytest.mark.usefixtures("installed")


def request(name: str = "small", **spec: object) -> Json:
    """A small valid request with parts of its spec replaced; None removes a part."""
    small: Json = {"training": {"inline": "modules: {}"}, "target": {"nodes": 8, "device": "MI300X"}}
    return {
        "apiVersion": "projection.dev/v1alpha1",
        "kind": "ProjectionRequest",
        "metadata": {"name": name},
        "spec": {part: value for part, value in (small | spec).items() if value is not None},
    }


@pytest.fixture
def apply(control_plane: ControlPlane, namespace: str) -> Callable[..., str]:
    """Apply a manifest into the test's own namespace, as strictly as kubectl can."""

    def apply(manifest: Json, *arguments: str) -> str:
        options = ("--validate=strict", f"--namespace={namespace}", *arguments)
        return control_plane.kubectl("apply", *options, "-f", "-", stdin=json.dumps(manifest))

    return apply


@pytest.fixture
def get(control_plane: ControlPlane, namespace: str) -> Callable[..., str]:
    """Run kubectl get in the test's own namespace."""
    return lambda *arguments: control_plane.kubectl("get", f"--namespace={namespace}", *arguments)


@pytest.fixture
def patch(control_plane: ControlPlane, namespace: str) -> Callable[..., str]:
    """Merge a patch into the request `small`."""

    def patch(change: Json, *arguments: str) -> str:
        options = (f"--namespace={namespace}", "--type=merge", f"--patch={json.dumps(change)}", *arguments)
        return control_plane.kubectl("patch", "projreq", "small", *options)

    return patch


def complaint(error: KubectlError) -> str:
    """What kubectl wrote after the object's name, one line for each problem.

    The API server's remark that CEL rules wait for the other problems to be mended is left out.
    """
    text = re.sub(
        r'^.*?(The ProjectionRequest "[^"]*" is invalid: |cannot be handled as a ProjectionRequest: )',
        "",
        str(error),
        flags=re.DOTALL,
    )
    lines = (line.removeprefix("* ") for line in text.strip().splitlines())
    return "\n".join(line for line in lines if not line.startswith("<nil>"))


def dry_run(control_plane: ControlPlane, manifest: Json) -> Json:
    """What the API server would store of `manifest`, defaults included."""
    options = ("--validate=strict", "--dry-run=server", "--output=json")
    stored: Json = json.loads(control_plane.kubectl("create", *options, "-f", "-", stdin=json.dumps(manifest)))
    return stored


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_request_is_refused_with_a_complaint_that_helps(control_plane: ControlPlane, case: str) -> None:
    with pytest.raises(KubectlError) as refused:
        dry_run(control_plane, request(**WRONG[case]["spec"]))
    assert complaint(refused.value) == WRONG[case]["complaint"]


@pytest.mark.parametrize("case", RIGHT)
def test_a_right_request_is_stored_as_it_was_written(control_plane: ControlPlane, case: str) -> None:
    manifest = request(**RIGHT[case]["spec"])
    stored = dry_run(control_plane, manifest)["spec"]
    assert {part: _without_defaults(stored[part], given) for part, given in manifest["spec"].items()} == manifest[
        "spec"
    ]


def _without_defaults(stored: Any, given: Any) -> Any:  # noqa: ANN401 - any JSON
    return {key: stored[key] for key in given} if isinstance(given, dict) else stored


def test_a_configuration_may_have_131072_characters_and_not_one_more(control_plane: ControlPlane) -> None:
    dry_run(control_plane, request(training={"inline": "é" * 131072}))
    with pytest.raises(KubectlError) as refused:
        dry_run(control_plane, request(training={"inline": "é" * 131073}))
    assert complaint(refused.value) == "spec.training.inline: Too long: may not be more than 131072 bytes"


def test_what_is_left_out_is_filled_in_visibly(control_plane: ControlPlane) -> None:
    spec = dry_run(control_plane, request())["spec"]
    assert spec == {
        "training": {"inline": "modules: {}"},
        "target": {"nodes": 8, "devicesPerNode": 8, "device": "MI300X", "scaling": "Strong"},
        "projections": ["Memory", "Performance"],
        "profiling": {"mode": "Simulate", "devices": 1, "resourceName": "amd.com/gpu", "timeoutSeconds": 1800},
        "pipelineSchedule": "Auto",
    }


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
def test_a_sample_is_accepted(control_plane: ControlPlane, sample: Path) -> None:
    output = control_plane.kubectl("create", "--validate=strict", "--dry-run=server", "-f", str(sample))
    assert "projectionrequest.projection.dev/llama3.1-70b-mi300x" in output


CHANGES: dict[str, Json] = {
    "training": {"training": {"inline": "modules: {a: 1}"}},
    "target": {"target": {"nodes": 16}},
    "parallelism": {"parallelism": {"tensor": 8}},
    "batch": {"batch": None},
    "projections": {"projections": ["Memory"]},
    "profiling": {"profiling": {"mode": "Benchmark"}},
    "pipelineSchedule": {"pipelineSchedule": "ZeroBubble"},
}


@pytest.mark.parametrize("part", CHANGES)
def test_a_question_that_was_asked_cannot_be_changed(
    apply: Callable[..., str], patch: Callable[..., str], part: str
) -> None:
    apply(request(batch={"global": 192}))
    with pytest.raises(KubectlError) as refused:
        patch({"spec": CHANGES[part]})
    assert complaint(refused.value) == f"spec.{part}: Forbidden: {IMMUTABLE}"


def test_the_time_to_live_can_be_set_changed_and_removed(
    apply: Callable[..., str], patch: Callable[..., str], get: Callable[..., str]
) -> None:
    apply(request())
    for seconds in ("60", "3600", ""):
        patch({"spec": {"ttlSecondsAfterFinished": int(seconds) if seconds else None}})
        assert get("projreq", "small", "--output=jsonpath={.spec.ttlSecondsAfterFinished}") == seconds


def test_the_order_of_overrides_is_no_change(apply: Callable[..., str]) -> None:
    overrides = [{"name": "lr", "value": "1"}, {"name": "seed", "value": "2"}]
    apply(request(training={"inline": "a", "overrides": overrides}))
    apply(request(training={"inline": "a", "overrides": overrides[::-1]}))


def test_nobody_can_answer_a_request_by_writing_its_manifest(
    apply: Callable[..., str], patch: Callable[..., str], get: Callable[..., str]
) -> None:
    apply(request() | {"status": ANSWER})
    assert get("projreq", "small", "--output=jsonpath={.status}") == ""
    patch({"status": ANSWER})
    assert get("projreq", "small", "--output=jsonpath={.status}") == ""


def test_the_status_subresource_writes_the_answer_and_nothing_else(
    apply: Callable[..., str], patch: Callable[..., str], get: Callable[..., str]
) -> None:
    apply(request())
    asked = json.loads(get("projreq", "small", "--output=json"))
    patch({"status": ANSWER, "spec": {"ttlSecondsAfterFinished": 1}}, "--subresource=status")
    answered = json.loads(get("projreq", "small", "--output=json"))
    assert answered["status"] == ANSWER
    assert answered["spec"] == asked["spec"]
    assert answered["metadata"]["generation"] == asked["metadata"]["generation"]


WRONG_ANSWERS: dict[str, tuple[Json, str]] = {
    "a fraction": (
        {"throughput": {"iterationTimeMilliseconds": 22670.5}},
        'throughput.iterationTimeMilliseconds in body must be of type integer: "number"',
    ),
    "bytes as a number": (
        {"memory": {"perDevice": {"expected": 171}}},
        'memory.perDevice.expected in body must be of type string: "integer"',
    ),
    "a verdict of its own": (
        {"verdict": "Maybe"},
        'Unsupported value: "Maybe": supported values: "Fits", "AtRisk", "DoesNotFit", "Unknown"',
    ),
}


@pytest.mark.parametrize("case", WRONG_ANSWERS)
def test_an_answer_keeps_to_the_schema(apply: Callable[..., str], patch: Callable[..., str], case: str) -> None:
    status, expected = WRONG_ANSWERS[case]
    apply(request())
    with pytest.raises(KubectlError) as refused:
        patch({"status": status}, "--subresource=status")
    assert complaint(refused.value).endswith(expected)


def test_the_table_shows_the_answer(
    apply: Callable[..., str], patch: Callable[..., str], get: Callable[..., str]
) -> None:
    apply(request())
    patch({"status": ANSWER}, "--subresource=status")
    header, row = (re.split(r" {2,}", line.strip()) for line in get("projreq").splitlines())
    assert dict(zip(header[:-1], row[:-1], strict=True)) == {
        "NAME": "small",
        "MODEL": "llama3.1_70B",
        "DEVICES": "64",
        "VERDICT": "Fits",
        "MEMORY": "171.3Gi",
        "TOKENS/S/GPU": "1084",
        "MODE": "Simulate",
        "REASON": "Projected",
    }
    assert header[-1] == "AGE"
    wide = re.split(r" {2,}", get("projreq", "--output=wide").splitlines()[0].strip())
    assert set(wide) - set(header) == {"DEVICE", "CONFIDENCE", "AVAILABLE", "ITERATION(MS)"}


@pytest.mark.parametrize("name", ["projreq", "projection", "projectionrequest", "projectionrequests.projection.dev"])
def test_requests_are_found_under_each_of_their_names(
    apply: Callable[..., str], get: Callable[..., str], name: str
) -> None:
    apply(request())
    assert get(name, "--output=name") == "projectionrequest.projection.dev/small\n"


def test_requests_can_be_selected_by_verdict_and_target(
    apply: Callable[..., str], patch: Callable[..., str], get: Callable[..., str]
) -> None:
    apply(request())
    apply(request("other", target={"nodes": 1, "device": "MI355X"}))
    patch({"status": ANSWER}, "--subresource=status")
    for selector in ("status.verdict=Fits", "spec.target.device=MI300X", "status.model=llama3.1_70B"):
        assert get("projreq", f"--field-selector={selector}", "--output=name").split() == [
            "projectionrequest.projection.dev/small"
        ]


EXPLAINED = (
    "spec",
    "spec.training",
    "spec.training.overrides",
    "spec.profiling.podTemplate",
    "status.memory.perDevice",
)


@pytest.mark.parametrize("path", EXPLAINED)
def test_kubectl_explain_describes_every_field(control_plane: ControlPlane, path: str) -> None:
    schema = yaml.safe_load(DEFINITION.read_text(encoding="utf-8"))["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for part in path.split("."):
        schema = schema["properties"][part]
        schema = schema.get("items", schema)
    explained = " ".join(_published(lambda: control_plane.kubectl("explain", f"projectionrequest.{path}")).split())
    for name, field in schema["properties"].items():
        assert f"{name} <" in explained
        assert field["description"] in explained


def _published(explain: Callable[[], str], *, seconds: float = 30.0) -> str:
    """What `explain` returns once the API server publishes the new schema, which it does a moment after serving it."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return explain()
        except KubectlError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
