"""A thin asynchronous client of the Kubernetes API: exactly the calls that the operator makes.

Every call may be repeated without harm, so every call is repeated when the server is busy or unreachable. Watching is
kopf's part.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import aiohttp

from projection_operator.api.names import FIELD_MANAGER
from projection_operator.cluster.credentials import Credentials, CredentialsError
from projection_operator.cluster.resources import Resource

logger = logging.getLogger(__name__)

RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Pauses between tries; afterwards the caller's own queue tries again later."""
REQUEST_SECONDS = 30.0
"""Longest that one try may take."""
TOKEN_SECONDS = 60.0
"""Age at which a token file is read again; the kubelet renews tokens ten minutes or more before they expire."""
PAGE_ITEMS = 500
"""Objects of one page of a list."""

METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
ONE_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""Kubernetes documentation, "API concepts", "Alternate representations"."""
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


class ApiError(Exception):
    """The API server refused, or could not be reached (status 0)."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        """`status` is HTTP's, `reason` Kubernetes' word for it (`NotFound`, `Conflict`, ...)."""
        self.status = status
        self.reason = reason
        super().__init__(f"{status} {reason}: {message}")


class NotFound(ApiError):  # noqa: N818 - the API's own word
    """404."""


class Conflict(ApiError):  # noqa: N818 - the API's own word
    """409: the object is not the expected version, or exists already."""


class Forbidden(ApiError):  # noqa: N818 - the API's own word
    """403."""


_ERRORS: Mapping[int, type[ApiError]] = {403: Forbidden, 404: NotFound, 409: Conflict}
_TRANSIENT = frozenset({429, 500, 502, 503, 504})


_METHODS = {"get": "GET", "list": "GET", "create": "POST", "patch": "PATCH", "delete": "DELETE"}
"""HTTP's word for each verb of RBAC that is used."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Call:
    """One call, before it is sent."""

    verb: str
    """As RBAC names it."""
    resource: Resource
    """The kind."""
    namespace: str | None
    """Namespace; None for none, or for all."""
    name: str | None = None
    """Object; None for a collection."""
    subresource: str = ""
    """Such as `status`."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Parameters."""
    body: Mapping[str, Any] | None = None
    """Content."""
    content: str = "application/json"
    """Its media type."""
    accept: str = "application/json"
    """Media type of the answer."""


class ApiClient:
    """One session with one API server; `async with` opens and closes it."""

    def __init__(self, credentials: Credentials) -> None:
        """Nothing is connected yet."""
        self._credentials = credentials
        self._session: aiohttp.ClientSession | None = None
        self._token: str | None = None
        self._token_read = 0.0

    async def __aenter__(self) -> Self:
        """Open the session."""
        self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the session."""
        await self.close()

    def open(self) -> None:
        """Open the session, on the running event loop; connections are made when they are needed."""
        connector = aiohttp.TCPConnector(ssl=self._credentials.ssl_context())
        timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)

    async def close(self) -> None:
        """Close the session, if it is open."""
        if self._session is not None:
            await self._session.close()

    async def get(self, resource: Resource, namespace: str | None, name: str) -> dict[str, Any]:
        """One object."""
        return await self._send(_Call(verb="get", resource=resource, namespace=namespace, name=name))

    async def get_metadata(self, resource: Resource, namespace: str | None, name: str) -> dict[str, Any]:
        """One object without spec, status and data."""
        call = _Call(verb="get", resource=resource, namespace=namespace, name=name, accept=ONE_METADATA_ONLY)
        return await self._send(call)

    async def list_metadata(
        self, resource: Resource, namespace: str | None, *, labels: str = ""
    ) -> AsyncIterator[dict[str, Any]]:
        """Every object of a kind without spec, status and data; `namespace` None lists all namespaces."""
        query = {"limit": str(PAGE_ITEMS)} | ({"labelSelector": labels} if labels else {})
        while True:
            page = await self._send(
                _Call(verb="list", resource=resource, namespace=namespace, query=query, accept=METADATA_ONLY)
            )
            for item in page["items"] or ():
                yield item
            following = page["metadata"].get("continue")
            if not following:
                return
            query["continue"] = following

    async def create(self, resource: Resource, namespace: str | None, body: Mapping[str, Any]) -> dict[str, Any]:
        """A new object; `Conflict` when its name is taken."""
        return await self._send(_Call(verb="create", resource=resource, namespace=namespace, body=body))

    async def apply(self, resource: Resource, namespace: str | None, body: Mapping[str, Any]) -> None:
        """Server-side apply: the fields of `body` become so, and ours from now on."""
        await self._send(
            _Call(
                verb="patch",
                resource=resource,
                namespace=namespace,
                name=body["metadata"]["name"],
                body=body,
                query={"fieldManager": FIELD_MANAGER, "force": "true"},
                content=APPLY_PATCH,
            )
        )

    async def merge(
        self, resource: Resource, namespace: str | None, name: str, patch: Mapping[str, Any], *, subresource: str = ""
    ) -> dict[str, Any]:
        """JSON merge patch (RFC 7386); a `metadata.resourceVersion` in it is a precondition, `Conflict` when unmet."""
        return await self._send(
            _Call(
                verb="patch",
                resource=resource,
                namespace=namespace,
                name=name,
                subresource=subresource,
                body=patch,
                query={"fieldManager": FIELD_MANAGER},
                content=MERGE_PATCH,
            )
        )

    async def delete(
        self, resource: Resource, namespace: str | None, name: str, *, preconditions: Mapping[str, str]
    ) -> None:
        """Delete exactly the object of these preconditions (`uid`, `resourceVersion`); its dependants follow."""
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": dict(preconditions),
        }
        await self._send(_Call(verb="delete", resource=resource, namespace=namespace, name=name, body=body))

    async def serves(self, resource: Resource) -> bool:
        """Whether the API server knows the kind."""
        try:
            found = await self._request("GET", resource.group_path, {})
        except NotFound:
            return False
        return any(item["name"] == resource.plural for item in found["resources"])

    async def _send(self, call: _Call) -> dict[str, Any]:
        resource = call.resource
        what = f"{resource.plural}/{call.subresource}" if call.subresource else resource.plural
        logger.debug("API call", extra={"verb": call.verb, "resource": what, "group": resource.group})
        return await self._request(
            _METHODS[call.verb],
            resource.path(call.namespace, call.name, call.subresource),
            {"Content-Type": call.content, "Accept": call.accept},
            query=call.query,
            data=json.dumps(call.body).encode() if call.body is not None else None,
        )

    async def _request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        *,
        query: Mapping[str, str] | None = None,
        data: bytes | None = None,
    ) -> dict[str, Any]:
        for pause in (*RETRY_SECONDS, None):
            try:
                return await self._try(method, path, headers, query, data)
            except ApiError as error:
                if error.status == 401 and self._credentials.token_file is not None:  # noqa: PLR2004 - Unauthorized
                    self._token = None
                elif error.status != 0 and error.status not in _TRANSIENT:
                    raise
                if pause is None:
                    raise
                logger.info("API call failed, trying again", extra={"path": path, "error": str(error)})
                await asyncio.sleep(pause)
        raise AssertionError("unreachable")  # the last round returns or raises

    async def _try(
        self, method: str, path: str, headers: Mapping[str, str], query: Mapping[str, str] | None, data: bytes | None
    ) -> dict[str, Any]:
        assert self._session is not None, "use `async with`"  # noqa: S101 - a mistake of ours
        url = f"{self._credentials.server}{path}"
        try:
            async with self._session.request(
                method, url, headers={**headers, **self._authorization()}, params=query, data=data
            ) as response:
                content = await response.read()
                if not response.ok:
                    raise _error(response.status, content)
                answer: dict[str, Any] = json.loads(content)
                return answer
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            # ValueError: whoever answered there, with a page that is no JSON, is no API server.
            raise ApiError(0, "Unreachable", f"{url}: {error!r}") from error
        except CredentialsError as error:
            raise ApiError(0, "NoCredentials", str(error)) from error

    def _authorization(self) -> dict[str, str]:
        now = time.monotonic()
        if self._token is None or (self._credentials.token_file and now - self._token_read > TOKEN_SECONDS):
            self._token, self._token_read = self._credentials.token(), now
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}


def _error(status: int, content: bytes) -> ApiError:
    try:
        answer = json.loads(content)
        reason, message = str(answer.get("reason", "")), str(answer.get("message", ""))
    except (ValueError, AttributeError):
        reason, message = "", content[:200].decode("utf-8", "replace")
    return _ERRORS.get(status, ApiError)(status, reason, message)
