"""Metrics: their names are an interface, and they are about living requests only."""

from typing import Any

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from projection_operator.api.conditions import merged_conditions
from projection_operator.api.names import Key
from projection_operator.api.status import DeviceSource, answer_fields, progress_fields
from projection_operator.metrics.operator import OperatorMetrics
from projection_operator.reconcile.verdicts import answered
from projection_operator.store import Store
from projector.projection import Projection, Verdict
from tests.operator.builders import GIB, memory, projection, request_body
from tests.operator.test_reconcile import NOW

NAMES = {
    "projection_request_info": {"namespace", "name", "model", "gpu_product", "mode"},
    "projection_accepted": {"namespace", "name"},
    "projection_completed": {"namespace", "name"},
    "projection_completion_timestamp_seconds": {"namespace", "name"},
    "projection_fits": {"namespace", "name"},
    "projection_verdict": {"namespace", "name", "verdict"},
    "projection_devices": {"namespace", "name"},
    "projection_memory_bytes": {"namespace", "name", "component"},
    "projection_memory_lower_bytes": {"namespace", "name"},
    "projection_memory_upper_bytes": {"namespace", "name"},
    "projection_memory_available_bytes": {"namespace", "name"},
    "projection_throughput_tokens_per_second": {"namespace", "name"},
    "projection_iteration_seconds": {"namespace", "name"},
    "projection_model_flops_utilization_ratio": {"namespace", "name"},
    "projection_operator_build_info": {"version", "kopf_version", "python_version"},
    "projection_reconcile_total": {"result"},
    "projection_reconcile_errors_total": set(),
    "projection_reconcile_time_seconds_bucket": {"le"},
    "projection_workqueue_depth": set(),
    "projection_watch_lag_seconds": set(),
}
"""Every name and its labels. Dashboards and alerts use them: change this table only on purpose."""


def answered_body(answer: Projection, name: str = "llama") -> dict[str, Any]:
    conditions = merged_conditions([], answered(answer, "Simulate"), generation=1, now=NOW)
    status = progress_fields({}, conditions, now=NOW)
    status |= answer_fields(answer, device_source=DeviceSource.SPEC, tokens=None)
    return request_body(status=status, metadata={"name": name})


def samples(store: Store) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    metrics = OperatorMetrics(store, queue_depth=lambda: 3.0, watch_lag=lambda: 1.5)
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(generate_latest(metrics.registry).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_the_names_and_labels_are_these() -> None:
    store = Store()
    store.put(answered_body(projection()))
    found = {
        name: {label for labels in series for label, _ in labels}
        for name, series in samples(store).items()
        if name.startswith("projection_") and not name.endswith(("_created", "_sum", "_count"))
    }
    assert found == NAMES


def test_the_figures_are_those_of_the_status() -> None:
    store = Store()
    store.put(answered_body(projection()))
    found, identity = samples(store), (("name", "llama"), ("namespace", "team"))
    assert sum(found["projection_memory_bytes"].values()) == 160 * GIB
    assert found["projection_memory_available_bytes"][identity] == 192 * GIB
    assert found["projection_throughput_tokens_per_second"][identity] == 1084 * 64
    assert found["projection_iteration_seconds"][identity] == 22.67
    assert found["projection_model_flops_utilization_ratio"][identity] == 0.38
    assert found["projection_fits"][identity] == 1.0
    assert found["projection_completion_timestamp_seconds"][identity] == NOW.timestamp()
    assert found["projection_watch_lag_seconds"] == {(): 1.5}


def test_what_is_not_certain_has_no_series() -> None:
    store = Store()
    store.put(answered_body(projection(memory=memory(Verdict.AT_RISK), performance=None)))
    found = samples(store)
    assert "projection_fits" not in found
    assert "projection_iteration_seconds" not in found
    assert [dict(labels)["verdict"] for labels in found["projection_verdict"]] == ["AtRisk"]


def test_a_request_without_status_is_counted_and_a_gone_one_leaves_nothing() -> None:
    store = Store()
    store.put(request_body())
    assert [dict(labels)["model"] for labels in samples(store)["projection_request_info"]] == ["unknown"]
    store.remove(Key("team", "llama"))
    assert "projection_request_info" not in samples(store)


def test_counters_start_at_zero_for_every_result() -> None:
    assert set(samples(Store())["projection_reconcile_total"].values()) == {0.0}
