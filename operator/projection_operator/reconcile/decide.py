"""`reconcile`: everything that shall happen about one request, given how things stand."""

from datetime import datetime
from pathlib import Path

from projection_operator.api.spec import Request
from projection_operator.reconcile.actions import Action, PatchStatus
from projection_operator.reconcile.answer import answer_request
from projection_operator.reconcile.expiry import expire_request
from projection_operator.reconcile.observed import Observed


def reconcile(
    request: Request, observed: Observed, now: datetime, *, primus_root: Path | None, engine_version: str
) -> list[Action]:
    """The actions, in the order in which they have to be carried out.

    Pure: the same arguments give the same actions, and carrying them out again changes nothing. The status is
    written after the report and the event, so whoever is interrupted in between repeats both without a second effect.
    """
    if request.deleting:
        return []
    outcome = answer_request(request, observed, now, primus_root=primus_root, engine_version=engine_version)
    actions: list[Action] = [*outcome.effects]
    if outcome.status != request.status:
        actions.append(PatchStatus(status=outcome.status))
    if outcome.work is not None:
        return [*actions, outcome.work]
    expiry = expire_request(outcome.status, request.ttl_seconds, now)
    return [*actions, expiry] if expiry is not None else actions
