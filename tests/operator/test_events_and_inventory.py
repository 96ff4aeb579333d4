"""Events count instead of multiplying; labels of nodes tell their GPUs."""

from datetime import UTC, datetime
from typing import Any

import pytest

from projection_operator.cluster.events import event_body, recurrence
from projection_operator.cluster.inventory import products_of
from projection_operator.reconcile import EmitEvent
from tests.operator.builders import request

NOW = datetime(2026, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)


def body(note: str = "It fits.", reason: str = "Projected", **metadata: str) -> dict[str, Any]:
    event = EmitEvent(type="Normal", reason=reason, note=note)
    return event_body(request(metadata=metadata), event, instance="pod-1", now=NOW)


def test_the_same_text_about_the_same_object_is_the_same_event() -> None:
    assert body()["metadata"]["name"] == body(resourceVersion="200")["metadata"]["name"]


@pytest.mark.parametrize(
    "other", [body(note="It does not."), body(reason="Other"), body(uid="another")], ids=["note", "reason", "object"]
)
def test_another_text_or_object_is_another_event(other: dict[str, Any]) -> None:
    assert other["metadata"]["name"] != body()["metadata"]["name"]


def test_only_another_version_of_the_object_counts_as_a_recurrence() -> None:
    stored = body(resourceVersion="100")
    assert recurrence(stored, "100", NOW) is None
    patch = recurrence(stored, "200", NOW)
    assert patch is not None
    assert patch["series"] == {"count": 2, "lastObservedTime": "2026-01-01T12:00:00.250000Z"}
    third = recurrence({**stored, **patch}, "300", NOW)
    assert third is not None
    assert third["series"]["count"] == 3


@pytest.mark.parametrize("note", ["x" * 5000, "\N{EURO SIGN}" * 5000, "x" * 1000])
def test_notes_stay_within_a_kilobyte(note: str) -> None:
    assert len(body(note=note)["note"].encode()) <= 1024


@pytest.mark.parametrize(
    ("labels", "products"),
    [
        ({"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}, {"AMD_Instinct_MI300X_OAM"}),
        ({"beta.amd.com/gpu.product-name": "AMD_Instinct_MI210"}, {"AMD_Instinct_MI210"}),
        ({"amd.com/gpu.product-name.A": "4", "amd.com/gpu.product-name.B": "4"}, {"A", "B"}),
        ({"kubernetes.io/os": "linux"}, set()),
    ],
)
def test_products_of_a_node(labels: dict[str, str], products: set[str]) -> None:
    assert products_of(labels) == products
