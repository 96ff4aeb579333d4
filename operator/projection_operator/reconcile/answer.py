"""Is the answer in the status still the answer? If not: ask the engine, and turn what it says into a status."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from projection_operator.api.conditions import (
    Condition,
    ConditionStatus,
    ConditionType,
    condition_of,
    merged_conditions,
    timestamp,
)
from projection_operator.api.reasons import Reason
from projection_operator.api.spec import Request
from projection_operator.api.status import answer_fields, progress_fields
from projection_operator.reconcile.actions import ApplyReport, EmitEvent, Project
from projection_operator.reconcile.observed import EngineFailure, Observed, Refusal
from projection_operator.reconcile.question import build_question, device_source, spec_hash
from projection_operator.reconcile.report import report_data, report_name
from projection_operator.reconcile.verdicts import PENDING, answered, failed, refused
from projector.errors import InputError
from projector.projection import Projection

TOLD_TYPES = (ConditionType.ACCEPTED, ConditionType.COMPLETED)
"""A change of one of these is told in an Event."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What the status shall be, and what has to be done around it."""

    status: Mapping[str, Any]
    """The whole status."""
    effects: tuple[ApplyReport | EmitEvent, ...] = ()
    """To be done before the status is written, so that a status never promises what is not there."""
    work: Project | None = None
    """To be done after it; the decision is then made again."""


def answer_request(
    request: Request, observed: Observed, now: datetime, *, primus_root: Path | None, engine_version: str
) -> Outcome:
    """Decide about the answer of one request."""
    try:
        question = build_question(request, observed, primus_root=primus_root)
    except InputError as error:
        return _unanswered(request, refused(Refusal.of(error), request.profiling_mode), now)
    identity = spec_hash(question, request, engine_version=engine_version)
    if _is_fresh(request, observed, identity):
        return Outcome(status=_same_answer(request, now))
    if observed.answer is None or observed.answer.spec_hash != identity:
        status = request.status if request.status.get("conditions") else _status(request, PENDING, now)
        return Outcome(status=status, work=Project(question=question, spec_hash=identity))
    match observed.answer.result:
        case Projection() as projection:
            return _answered(request, projection, identity, now)
        case Refusal() as refusal:
            return _unanswered(request, refused(refusal, request.profiling_mode), now, identity=identity)
        case EngineFailure(summary=summary):
            # Without the hash: the next visit tries again.
            return _unanswered(request, failed(summary, request.profiling_mode), now)


def answer_hash(status: Mapping[str, Any]) -> str:
    """SHA-256, in hexadecimal, over the answer in a status: all but what moves without another answer.

    It stands on the report, so an answer that somebody else has changed is recognized and given again.
    """
    conditions = [_gist(status, kind) for kind in ConditionType]
    content = {**status, "observedGeneration": None, "conditions": conditions}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _is_fresh(request: Request, observed: Observed, identity: str) -> bool:
    if request.status.get("specHash") != identity:
        return False
    accepted = condition_of(request.status, ConditionType.ACCEPTED).get("status")
    if accepted == ConditionStatus.TRUE:
        return observed.report_hash == answer_hash(request.status)
    # A refusal has no report to compare with.
    return accepted == ConditionStatus.FALSE and all(condition_of(request.status, kind) for kind in ConditionType)


def _same_answer(request: Request, now: datetime) -> dict[str, Any]:
    """The stored status, about the current generation (a changed TTL is the only way to a new one)."""
    stored = request.status["conditions"]
    kept = tuple(
        Condition(
            type=ConditionType(item["type"]),
            status=ConditionStatus(item["status"]),
            reason=item["reason"],
            message=item["message"],
        )
        for item in stored
        if item["type"] in set(ConditionType)
    )
    conditions = merged_conditions(stored, kept, generation=request.generation, now=now)
    return {**request.status, "observedGeneration": request.generation, "conditions": conditions}


def _answered(request: Request, projection: Projection, identity: str, now: datetime) -> Outcome:
    name = report_name(request)
    status = _status(request, answered(projection, request.profiling_mode), now)
    status |= answer_fields(projection, device_source=device_source(request), tokens=request.target.tokens)
    status |= {"reportRef": {"name": name}, "specHash": identity, "lastProjectionTime": timestamp(now)}
    report = ApplyReport(name=name, answer_hash=answer_hash(status), data=report_data(projection))
    return Outcome(status=status, effects=(report, *_events(request, status)))


def _unanswered(
    request: Request, conditions: tuple[Condition, ...], now: datetime, *, identity: str | None = None
) -> Outcome:
    status = _status(request, conditions, now)
    if identity is not None:
        status["specHash"] = identity
    return Outcome(status=status, effects=_events(request, status))


def _status(request: Request, conditions: tuple[Condition, ...], now: datetime) -> dict[str, Any]:
    stored = request.status
    merged = merged_conditions(stored.get("conditions", ()), conditions, generation=request.generation, now=now)
    return {"observedGeneration": request.generation, **progress_fields(stored, merged, now=now)}


def _events(request: Request, status: Mapping[str, Any]) -> tuple[EmitEvent, ...]:
    """One event when what people wait for has changed, none when it is what it was."""
    if all(_gist(request.status, kind) == _gist(status, kind) for kind in TOLD_TYPES):
        return ()
    completed = condition_of(status, ConditionType.COMPLETED)
    fits = condition_of(status, ConditionType.FITS)
    if completed["status"] != ConditionStatus.TRUE:
        return (EmitEvent(type="Warning", reason=completed["reason"], note=completed["message"]),)
    if fits["status"] == ConditionStatus.FALSE:
        return (EmitEvent(type="Warning", reason=Reason.EXCEEDS_DEVICE_MEMORY, note=fits["message"]),)
    return (EmitEvent(type="Normal", reason=Reason.PROJECTED, note=completed["message"]),)


def _gist(status: Mapping[str, Any], kind: ConditionType) -> tuple[Any, ...]:
    condition = condition_of(status, kind)
    return tuple(condition.get(part) for part in ("status", "reason", "message"))
