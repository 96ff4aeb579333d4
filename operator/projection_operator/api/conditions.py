"""Conditions of a ProjectionRequest: which there are, every reason they can carry, and how they move.

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


class Reason(StrEnum):
    """Reasons that the operator gives itself; those of wrong input come with the engine's `InputError.reason`."""

    PENDING = "Pending"
    """Seen, not examined yet (any condition, Unknown)."""
    CONFIGURATION_VALID = "ConfigurationValid"
    """Accepted=True: it could be read, and the layout is possible."""
    CONFIG_MAP_NOT_FOUND = "ConfigMapNotFound"
    """Accepted=False: a ConfigMap that the spec names is not there."""
    CONFIG_MAP_KEY_NOT_FOUND = "ConfigMapKeyNotFound"
    """Accepted=False: the ConfigMap has no such key."""
    NOT_ACCEPTED = "NotAccepted"
    """Fits=Unknown: there is no answer because Accepted is not True."""
    NOT_REQUESTED = "NotRequested"
    """Benchmarked=False with mode Simulate; Fits=Unknown when memory is not asked for."""
    NOT_AVAILABLE = "NotAvailable"
    """Benchmarked=False with mode Benchmark or Both: this version runs no benchmarks; the analytical answer stands."""
    FITS_IN_MEMORY = "FitsInMemory"
    """Fits=True: the upper end of the interval is below what a device offers."""
    CLOSE_TO_CAPACITY = "CloseToCapacity"
    """Fits=Unknown, verdict AtRisk: the capacity lies inside the interval."""
    EXCEEDS_DEVICE_MEMORY = "ExceedsDeviceMemory"
    """Fits=False: it does not fit."""
    NOT_UNDERSTOOD = "NotUnderstood"
    """Fits=Unknown, verdict Unknown: something that decides is not modelled."""
    PROJECTED = "Projected"
    """Completed=True: the answer is in the status."""
    INTERNAL_ERROR = "InternalError"
    """The engine failed on this request; it is not the request's fault."""


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


PENDING = tuple(
    Condition(type=kind, status=ConditionStatus.UNKNOWN, reason=Reason.PENDING, message="Not examined yet.")
    for kind in ConditionType
)
"""What the first visit writes."""


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
