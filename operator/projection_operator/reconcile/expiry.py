"""When a finished request goes away: `ttlSecondsAfterFinished`, counted from `status.completionTime`."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from projection_operator.api.conditions import moment_of
from projection_operator.reconcile.actions import DeleteRequest, Requeue


def expire_request(status: Mapping[str, Any], ttl_seconds: int | None, now: datetime) -> DeleteRequest | Requeue | None:
    """Delete it, look again when its time has come, or keep it.

    Requests that are not completed stay: what they wait for may still come, and their message shall be read.
    """
    if ttl_seconds is None or "completionTime" not in status:
        return None
    remaining = moment_of(status["completionTime"]) + timedelta(seconds=ttl_seconds) - now
    if remaining <= timedelta(0):
        return DeleteRequest()
    return Requeue(after_seconds=remaining.total_seconds())
