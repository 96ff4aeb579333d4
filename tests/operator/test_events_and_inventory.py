"""Events count instead of multiplying; labels of nodes tell their GPUs."""

from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web

from projection_operator.cluster.client import ApiClient
from projection_operator.cluster.credentials import Credentials
from projection_operator.cluster.events import event_body, recurrence
from projection_operator.cluster.inventory import KEPT_SECONDS, KEPT_SELECTORS, PRODUCT_LABELS, Inventory, products_of
from projection_operator.reconcile import EmitEvent
from tests.operator.builders import request
from tests.operator.http_servers import Answer, refusal, server

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


def nodes_of(*products: str) -> Answer:
    items = [{"metadata": {"name": product, "labels": {PRODUCT_LABELS[0]: product}}} for product in products]
    return lambda _: web.json_response({"metadata": {}, "items": items})


async def test_a_look_at_the_nodes_serves_for_a_while_and_each_selector_has_its_own() -> None:
    now = 0.0
    async with server(nodes_of("A"), nodes_of("B"), nodes_of("C")) as (url, received):
        async with ApiClient(Credentials(server=url)) as client:
            inventory = Inventory(client, clock=lambda: now)
            assert [await inventory.products({}) for _ in range(2)] == [frozenset("A")] * 2
            assert await inventory.products({"pool": "x"}) == frozenset("B")
            now = KEPT_SECONDS
            assert [await inventory.products({}) for _ in range(2)] == [frozenset("C")] * 2
        assert [request.query.get("labelSelector") for request in received] == [None, "pool=x", None]


async def test_looks_are_kept_for_a_bounded_number_of_selectors() -> None:
    async with server(nodes_of("A")) as (url, received), ApiClient(Credentials(server=url)) as client:
        inventory = Inventory(client, clock=lambda: 0.0)
        for number in range(KEPT_SELECTORS + 1):
            await inventory.products({"pool": str(number)})
        await inventory.products({"pool": str(KEPT_SELECTORS)})
        await inventory.products({"pool": "0"})
        assert len(received) == KEPT_SELECTORS + 2


async def test_without_the_right_to_list_nodes_nothing_is_known() -> None:
    async with server(refusal(403)) as (url, _), ApiClient(Credentials(server=url)) as client:
        assert await Inventory(client).products({}) is None
