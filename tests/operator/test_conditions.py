"""Conditions move as the Kubernetes API conventions want."""

from datetime import UTC, datetime, timedelta

import pytest

from projection_operator.api.conditions import (
    MESSAGE_CHARACTERS,
    Condition,
    ConditionStatus,
    ConditionType,
    merged_conditions,
    moment_of,
    timestamp,
)
from projection_operator.reconcile.verdicts import PENDING

THEN = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
NOW = THEN + timedelta(minutes=5)


def accepted(status: ConditionStatus, reason: str = "Because", message: str = "") -> Condition:
    return Condition(type=ConditionType.ACCEPTED, status=status, reason=reason, message=message)


def test_the_first_visit_has_all_conditions() -> None:
    stored = merged_conditions([], PENDING, generation=1, now=NOW)
    assert [item["type"] for item in stored] == ["Accepted", "Benchmarked", "Fits", "Completed"]
    assert {item["status"] for item in stored} == {"Unknown"}


@pytest.mark.parametrize(
    ("status", "moves"), [(ConditionStatus.TRUE, False), (ConditionStatus.FALSE, True), (ConditionStatus.UNKNOWN, True)]
)
def test_the_transition_time_moves_only_with_the_status(status: ConditionStatus, *, moves: bool) -> None:
    stored = merged_conditions([], [accepted(ConditionStatus.TRUE)], generation=1, now=THEN)
    again = merged_conditions(stored, [accepted(status, "Other", "new text")], generation=2, now=NOW)
    assert again[0]["lastTransitionTime"] == timestamp(NOW if moves else THEN)
    assert (again[0]["reason"], again[0]["message"], again[0]["observedGeneration"]) == ("Other", "new text", 2)


def test_conditions_of_others_stay_as_they_are() -> None:
    foreign = {"type": "example.com/Audited", "status": "True", "reason": "Yes", "message": "", "x": 1}
    merged = merged_conditions([foreign], [accepted(ConditionStatus.TRUE)], generation=1, now=NOW)
    assert merged[-1] == foreign


def test_long_messages_are_cut_visibly() -> None:
    merged = merged_conditions([], [accepted(ConditionStatus.FALSE, message="x" * 5000)], generation=1, now=NOW)
    assert len(merged[0]["message"]) == MESSAGE_CHARACTERS
    assert merged[0]["message"].endswith("\N{HORIZONTAL ELLIPSIS}")


def test_times_come_back() -> None:
    assert moment_of(timestamp(NOW)) == NOW
    assert timestamp(NOW) == "2026-01-01T12:05:00Z"
