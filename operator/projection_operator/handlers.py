"""All that kopf sees. It watches and calls; it decides and writes nothing.

Only `on.event` handlers are registered, because every other kind makes kopf write to the objects (finalizers,
annotations) and every such write is one more thing to go wrong. kopf neither retries nor reports failures of these
handlers, so they only put keys into our own queue.
"""

import itertools
import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

import kopf

from projection_operator.api.names import CONFIG_SELECTOR, GROUP, PLURAL, VERSION, Key
from projection_operator.cluster.credentials import Credentials
from projection_operator.runtime import Runtime

logger = logging.getLogger(__name__)


class Backoffs:
    """Pauses between kopf's tries of a request, without end: a watch must outlive any outage of the API server."""

    def __iter__(self) -> Iterator[float]:
        """Seconds."""
        return itertools.chain((0.2, 0.5, 1.0, 2.0, 5.0), itertools.repeat(10.0))


def make_registry(runtime: Runtime, credentials: Credentials) -> kopf.OperatorRegistry:
    """The handlers of one operator."""
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    async def startup(settings: kopf.OperatorSettings, **_: object) -> None:
        configure(settings)
        try:
            await runtime.start()
        except OSError as error:
            # Anything else would be tried again by kopf, and a taken port stays taken.
            runtime.blocked = f"cannot start: {error}"
            raise kopf.PermanentError(runtime.blocked) from error

    @kopf.on.cleanup(registry=registry)
    async def cleanup(**_: object) -> None:
        await runtime.close()

    @kopf.on.login(registry=registry)
    async def login(**_: object) -> kopf.ConnectionInfo:
        return connection(credentials)

    @kopf.on.event(group=GROUP, version=VERSION, plural=PLURAL, registry=registry)
    async def request_event(event: kopf.RawEvent, **_: object) -> None:
        note_request(runtime, event)

    @kopf.on.event(group="", version="v1", plural="configmaps", registry=registry)
    async def config_map_event(event: kopf.RawEvent, **_: object) -> None:
        note_config_map(runtime, event)

    return registry


def note_request(runtime: Runtime, event: kopf.RawEvent) -> None:
    """The watch tells about a request; the echo of our own write is not queued."""
    body = event["object"]
    key = _key(body)
    if event["type"] == "DELETED":
        runtime.patrol.requests.deleted(key)
        runtime.store.remove(key)
        runtime.queue.forget(key)
        return
    runtime.patrol.requests.delivered(key, body["metadata"]["resourceVersion"], time.monotonic())
    if runtime.store.put(body):
        runtime.queue.add(key)


def note_config_map(runtime: Runtime, event: kopf.RawEvent) -> None:
    """The watch tells about a labelled ConfigMap, or that it is gone or has lost its label."""
    body = event["object"]
    config_map = _key(body)
    if event["type"] == "DELETED":
        runtime.patrol.config_maps.deleted(config_map)
    else:
        runtime.patrol.config_maps.delivered(config_map, body["metadata"]["resourceVersion"], time.monotonic())
    for key in runtime.store.depending_on(config_map):
        runtime.queue.add(key)


def configure(settings: kopf.OperatorSettings) -> None:
    """Settings of kopf, each for a reason."""
    # Never added; named so that a stray one can be traced.
    settings.persistence.finalizer = f"{GROUP}/unused"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP, key="unused")
    # Streams end and start anew now and then, so that a dead connection cannot go unnoticed for ever.
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10
    # Only ConfigMaps that ask for it are watched; the others never reach this process.
    settings.watching.label_selectors["", "v1", "configmaps"] = CONFIG_SELECTOR
    settings.networking.request_timeout = 30
    settings.networking.error_backoffs = Backoffs()
    # Looking for new kinds and namespaces would need rights over the whole cluster.
    settings.scanning.disabled = True
    # Events are ours, with fixed reasons.
    settings.posting.enabled = False
    # kopf's peering can leave a cluster unserved; more than one replica is not supported yet.
    settings.peering.standalone = True


def connection(credentials: Credentials) -> kopf.ConnectionInfo:
    """The same identity, as kopf wants it; called again when the API server does not accept the token any more."""
    token = credentials.token()
    return kopf.ConnectionInfo(
        server=credentials.server,
        ca_data=credentials.ca,
        insecure=credentials.insecure,
        certificate_data=credentials.certificate,
        private_key_data=credentials.private_key,
        scheme="Bearer" if token else None,
        token=token,
    )


def _key(body: Mapping[str, Any]) -> Key:
    return Key(body["metadata"]["namespace"], body["metadata"]["name"])
