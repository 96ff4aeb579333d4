"""The API client against a real HTTP server that misbehaves on purpose."""

import json
from pathlib import Path

import pytest
from aiohttp import web

from projection_operator.cluster import client as module
from projection_operator.cluster.client import ApiClient, ApiError, Conflict, Forbidden, NotFound
from projection_operator.cluster.credentials import Credentials
from projection_operator.cluster.resources import CONFIG_MAPS, EVENTS, REQUESTS
from tests.operator.http_servers import Answer, refusal, server


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", (0.0, 0.0, 0.0))


def token_credentials(url: str) -> Credentials:
    return Credentials(server=url, static_token="t")  # noqa: S106 - of no server anywhere


def fine(_: web.Request) -> web.Response:
    return web.json_response({"fine": True})


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_a_busy_server_is_asked_again(status: int) -> None:
    async with (
        server(refusal(status), refusal(status), fine) as (url, received),
        ApiClient(Credentials(server=url)) as client,
    ):
        assert await client.get(REQUESTS, "ns", "a") == {"fine": True}
    assert len(received) == 3


@pytest.mark.parametrize(("status", "error"), [(403, Forbidden), (404, NotFound), (409, Conflict), (422, ApiError)])
async def test_a_refusal_is_final(status: int, error: type[ApiError]) -> None:
    async with server(refusal(status, "Why")) as (url, received), ApiClient(Credentials(server=url)) as client:
        with pytest.raises(error, match="Why: no") as caught:
            await client.get(REQUESTS, "ns", "a")
    assert caught.value.status == status
    assert len(received) == 1


async def test_patience_ends() -> None:
    async with server(refusal(503)) as (url, received), ApiClient(Credentials(server=url)) as client:
        with pytest.raises(ApiError, match="503"):
            await client.get(REQUESTS, "ns", "a")
    assert len(received) == 4


async def test_a_server_that_is_not_there_is_named() -> None:
    async with ApiClient(Credentials(server="http://127.0.0.1:9")) as client:
        with pytest.raises(ApiError, match=r"Unreachable: http://127\.0\.0\.1:9/api/v1"):
            await client.get(CONFIG_MAPS, "ns", "a")


async def test_a_page_that_is_no_json_is_no_answer_of_an_api_server() -> None:
    def page(_: web.Request) -> web.Response:
        return web.Response(text="<html>Log in</html>", content_type="text/html")

    async with server(page, fine) as (url, received), ApiClient(Credentials(server=url)) as client:
        assert await client.get(REQUESTS, "ns", "a") == {"fine": True}
    assert len(received) == 2


async def test_a_token_that_cannot_be_read_is_tried_again(tmp_path: Path) -> None:
    missing = tmp_path / "token"
    async with server(fine) as (url, received), ApiClient(Credentials(server=url, token_file=missing)) as client:
        with pytest.raises(ApiError, match=r"NoCredentials: .*token: No such file"):
            await client.get(REQUESTS, "ns", "a")
    assert received == []


async def test_an_expired_token_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old", encoding="utf-8")

    def answer(request: web.Request) -> web.Response:
        if request.headers["Authorization"] == "Bearer new":
            return fine(request)
        token.write_text("new", encoding="utf-8")
        return refusal(401)(request)

    async with server(answer) as (url, _), ApiClient(Credentials(server=url, token_file=token)) as client:
        assert await client.get(REQUESTS, "ns", "a") == {"fine": True}


async def test_a_wrong_static_token_is_not_tried_again() -> None:
    async with server(refusal(401)) as (url, received), ApiClient(token_credentials(url)) as client:
        with pytest.raises(ApiError, match="401"):
            await client.get(REQUESTS, "ns", "a")
    assert len(received) == 1


async def test_lists_are_read_page_by_page() -> None:
    def page(request: web.Request) -> web.Response:
        second = request.query.get("continue") == "more"
        metadata = {} if second else {"continue": "more"}
        return web.json_response({"metadata": metadata, "items": [{"n": 2}] if second else [{"n": 1}]})

    async with server(page) as (url, received), ApiClient(Credentials(server=url)) as client:
        assert [item async for item in client.list_metadata(CONFIG_MAPS, None, labels="a=b")] == [{"n": 1}, {"n": 2}]
    assert [request.path for request in received] == ["/api/v1/configmaps"] * 2
    assert {request.query["labelSelector"] for request in received} == {"a=b"}


async def test_an_empty_list_without_items_is_empty() -> None:
    async with (
        server(lambda _: web.json_response({"metadata": {}, "items": None})) as (url, _),
        ApiClient(Credentials(server=url)) as client,
    ):
        assert [item async for item in client.list_metadata(CONFIG_MAPS, "ns")] == []


async def test_a_kind_that_is_not_served_yet_is_noticed() -> None:
    def kinds(*names: str) -> Answer:
        return lambda _: web.json_response({"resources": [{"name": name} for name in names]})

    async with (
        server(refusal(404), kinds("others"), kinds("others", "projectionrequests")) as (url, _),
        ApiClient(Credentials(server=url)) as client,
    ):
        assert [await client.serves(REQUESTS) for _ in range(3)] == [False, False, True]


async def test_calls_are_those_of_the_api() -> None:
    async with server(fine) as (url, received), ApiClient(token_credentials(url)) as client:
        body = {"metadata": {"name": "r", "namespace": "ns"}}
        await client.apply(CONFIG_MAPS, "ns", body)
        await client.merge(REQUESTS, "ns", "a/../b", {"status": {}}, subresource="status")
        await client.create(EVENTS, "ns", body)
        await client.delete(REQUESTS, "ns", "a", preconditions={"uid": "u"})
        sent = [json.loads(await request.text()) for request in received]
    assert [(request.method, request.raw_path.partition("?")[0], request.content_type) for request in received] == [
        ("PATCH", "/api/v1/namespaces/ns/configmaps/r", "application/apply-patch+yaml"),
        (
            "PATCH",
            "/apis/projection.dev/v1alpha1/namespaces/ns/projectionrequests/a%2F..%2Fb/status",
            "application/merge-patch+json",
        ),
        ("POST", "/apis/events.k8s.io/v1/namespaces/ns/events", "application/json"),
        ("DELETE", "/apis/projection.dev/v1alpha1/namespaces/ns/projectionrequests/a", "application/json"),
    ]
    assert received[0].query == {"fieldManager": "projection-operator", "force": "true"}
    assert (sent[3]["preconditions"], sent[3]["propagationPolicy"]) == ({"uid": "u"}, "Background")
    assert {request.headers["Authorization"] for request in received} == {"Bearer t"}
