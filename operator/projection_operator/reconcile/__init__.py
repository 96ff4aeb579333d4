"""Pure decisions: what is asked and what is observed in, actions out. No clock, no network, no engine run."""

from projection_operator.reconcile.actions import (
    Action,
    ApplyReport,
    DeleteRequest,
    EmitEvent,
    PatchStatus,
    Project,
    Requeue,
)
from projection_operator.reconcile.decide import reconcile
from projection_operator.reconcile.observed import Answer, ConfigMapContent, EngineFailure, Observed, Refusal, Result

__all__ = [
    "Action",
    "Answer",
    "ApplyReport",
    "ConfigMapContent",
    "DeleteRequest",
    "EmitEvent",
    "EngineFailure",
    "Observed",
    "PatchStatus",
    "Project",
    "Refusal",
    "Requeue",
    "Result",
    "reconcile",
]
