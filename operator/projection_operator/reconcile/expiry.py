"""When a finished request goes away: `ttlSecondsAfterFinished`, counted from the condition Completed.

Finished is, as for a Job (Kubernetes documentation, "Automatic Cleanup for Finished Jobs"), what has an answer and
what has been found to have none; so a stream of wrong requests with a time to live does not pile up either.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from projection_operator.api.conditions import ConditionStatus, ConditionType, condition_of, moment_of
from projection_operator.reconcile.actions import DeleteRequest, Requeue


def expire_request(status: Mapping[str, Any], ttl_seconds: int | None, now: datetime) -> DeleteRequest | Requeue | None:
    """Delete it, look again when its time has come, or keep it."""
    completed = condition_of(status, ConditionType.COMPLETED)
    if ttl_seconds is None or completed.get("status", ConditionStatus.UNKNOWN) == ConditionStatus.UNKNOWN:
        return None
    remaining = moment_of(completed["lastTransitionTime"]) - now + timedelta(seconds=ttl_seconds)
    if remaining <= timedelta(0):
        return DeleteRequest()
    return Requeue(after_seconds=remaining.total_seconds())
