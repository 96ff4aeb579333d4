"""Cases of the operator that need no cluster."""

from pathlib import Path
from typing import Any

import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from projection_operator.api.names import Key
from projection_operator.metrics.operator import OperatorMetrics
from projection_operator.store import Store
from projector import Question, project
from tests.config.builders import llama_text
from tests.operator.builders import projection
from tests.operator.test_metrics import answered_body

CRD = Path(__file__).parents[2] / "crds" / "projectionrequests.yaml"
ANNOTATION_LIMIT = 262_144
"""Bytes of all annotations of an object (Kubernetes apimachinery, `TotalAnnotationSizeLimitB`)."""


def schema_of_training() -> dict[str, Any]:
    definition = yaml.safe_load(CRD.read_text(encoding="utf-8"))
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    training: dict[str, Any] = spec["properties"]["training"]["properties"]
    return training


def test_opr_01_an_inline_file_that_could_overflow_an_annotation_is_refused_at_apply_time() -> None:
    training = schema_of_training()
    assert training["inline"]["maxLength"] <= ANNOTATION_LIMIT / 2
    assert "configMapRef" in training


def test_opr_01_a_file_of_300_kib_is_answered() -> None:
    padding = "# a comment that says nothing\n" * (300 * 1024 // 30 + 1)
    text = padding + llama_text()
    assert len(text) > 300 * 1024
    assert project(Question(text=text, device="MI300X")).memory is not None


def test_obs_01_deleted_requests_leave_no_series() -> None:
    store = Store()
    metrics = OperatorMetrics(store, queue_depth=lambda: 0.0, watch_lag=lambda: 0.0)

    def series() -> set[tuple[str, tuple[tuple[str, str], ...]]]:
        families = text_string_to_metric_families(generate_latest(metrics.registry).decode())
        return {(each.name, tuple(sorted(each.labels.items()))) for family in families for each in family.samples}

    before = series()
    names = [f"request-{index}" for index in range(50)]
    for name in names:
        store.put(answered_body(projection(), name))
    assert len(series()) >= len(before) + 50 * 10
    for name in names:
        store.remove(Key("team", name))
    assert series() == before
