"""Events (`events.k8s.io/v1`) of requests: the same text about the same object is one Event that counts.

The name of an Event follows from the object and the text, so telling twice after a restart finds it there already. An
annotation holds the version of the object at which it was last told; only another version counts as a recurrence.
"""

import hashlib
from datetime import UTC, datetime
from typing import Any

from projection_operator.api.conditions import truncated
from projection_operator.api.names import (
    API_VERSION,
    KIND,
    REPORTING_CONTROLLER,
    TRANSITION_ANNOTATION,
)
from projection_operator.api.spec import Request
from projection_operator.cluster.client import ApiClient, Conflict
from projection_operator.cluster.resources import EVENTS
from projection_operator.reconcile.actions import EmitEvent

NOTE_CHARACTERS = 1000
"""The API server refuses notes of more than 1 kB (k8s.io/api events/v1); the rest is left to multi-byte characters."""
ACTION = "Project"
"""What the operator was doing."""


async def emit(client: ApiClient, request: Request, event: EmitEvent, *, instance: str, now: datetime) -> None:
    """Tell `event` about `request`, once for one version of it."""
    body = event_body(request, event, instance=instance, now=now)
    name, namespace = body["metadata"]["name"], request.key.namespace
    try:
        await client.create(EVENTS, namespace, body)
    except Conflict:
        stored = await client.get(EVENTS, namespace, name)
        patch = recurrence(stored, request.resource_version, now)
        if patch:
            await client.merge(EVENTS, namespace, name, patch)


def event_body(request: Request, event: EmitEvent, *, instance: str, now: datetime) -> dict[str, Any]:
    """The Event to create."""
    note = truncated(event.note.encode()[: NOTE_CHARACTERS + 1].decode("utf-8", "ignore"), NOTE_CHARACTERS)
    digest = hashlib.sha256(f"{request.uid}\0{event.type}\0{event.reason}\0{note}".encode()).hexdigest()[:16]
    return {
        "apiVersion": EVENTS.api_version,
        "kind": "Event",
        "metadata": {
            "name": f"{request.key.name[:230].rstrip('-.')}.{digest}",
            "namespace": request.key.namespace,
            "annotations": {TRANSITION_ANNOTATION: request.resource_version},
        },
        "eventTime": _micro_time(now),
        "type": event.type,
        "reason": event.reason,
        "action": ACTION,
        "note": note,
        "reportingController": REPORTING_CONTROLLER,
        "reportingInstance": truncated(instance, 128),
        "regarding": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "namespace": request.key.namespace,
            "name": request.key.name,
            "uid": request.uid,
        },
    }


def recurrence(stored: dict[str, Any], resource_version: str, now: datetime) -> dict[str, Any] | None:
    """The patch that counts one more, None when the stored Event already tells about this version of the object."""
    annotations = stored["metadata"].get("annotations") or {}
    if annotations.get(TRANSITION_ANNOTATION) == resource_version:
        return None
    count = (stored.get("series") or {}).get("count", 1)
    return {
        "metadata": {"annotations": {TRANSITION_ANNOTATION: resource_version}},
        "series": {"count": count + 1, "lastObservedTime": _micro_time(now)},
    }


def _micro_time(moment: datetime) -> str:
    """RFC 3339 with microseconds, as Kubernetes stores `metav1.MicroTime`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
