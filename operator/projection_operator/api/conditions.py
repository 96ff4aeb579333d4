"""Conditions of a ProjectionRequest: which there are, and how they move. Their reasons are in `api.reasons`.

Rules of the Kubernetes API conventions ("Typical status properties"): all conditions from the first visit,
`lastTransitionTime` moves only when `status` does, and `observedGeneration` says which spec a condition is about.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

MESSAGE_CHARACTERS = 1024
"""Longest message that is written."""


class ConditionType(StrEnum):
    """The conditions."""

    ACCEPTED = "Accepted"
    BENCHMARKED = "Benchmarked"
    FITS = "Fits"
    COMPLETED = "Completed"


class ConditionStatus(StrEnum):
    """The three values of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """What a condition shall say; when it last moved is decided against what is stored."""

    type: ConditionType
    """Which."""
    status: ConditionStatus
    """Holds, does not hold, or not known."""
    reason: str
    """Why, as one word for programs."""
    message: str
    """Why, in words, with the numbers and what to do."""


def merged_conditions(
    stored: Sequence[Mapping[str, Any]], wanted: Iterable[Condition], *, generation: int, now: datetime
) -> list[dict[str, Any]]:
    """The list to store: `wanted` in its order, then conditions that others keep in the same list.

    A condition keeps its `lastTransitionTime` while its status stays.
    """
    before = {condition["type"]: condition for condition in stored}
    merged: list[dict[str, Any]] = []
    for condition in wanted:
        old = before.pop(condition.type, {})
        same = old.get("status") == condition.status and "lastTransitionTime" in old
        merged.append(
            {
                "type": str(condition.type),
                "status": str(condition.status),
                "reason": str(condition.reason),
                "message": truncated(condition.message, MESSAGE_CHARACTERS),
                "observedGeneration": generation,
                "lastTransitionTime": old["lastTransitionTime"] if same else timestamp(now),
            }
        )
    return merged + [dict(condition) for condition in before.values()]


def condition_of(status: Mapping[str, Any], kind: ConditionType) -> Mapping[str, Any]:
    """The stored condition, an empty mapping when it is not there."""
    found: Iterable[Mapping[str, Any]] = (item for item in status.get("conditions", ()) if item["type"] == kind)
    return next(iter(found), {})


def truncated(text: str, characters: int) -> str:
    """`text`, cut with an ellipsis when it is longer."""
    return text if len(text) <= characters else text[: characters - 1] + "\N{HORIZONTAL ELLIPSIS}"


def timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC with seconds, as Kubernetes stores `metav1.Time`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment_of(text: str) -> datetime:
    """The inverse of `timestamp`; fractions of seconds are accepted."""
    return datetime.fromisoformat(text)
