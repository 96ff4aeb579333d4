"""What a decision can ask for. Each is safe to carry out twice."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from projector.api import Question


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    """Run the engine, then decide again with its answer observed."""

    question: Question
    """What to answer."""
    spec_hash: str
    """Identity of the question."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ApplyReport:
    """Server-side apply of the ConfigMap with the long tables."""

    name: str
    """Its name; the namespace is the request's."""
    answer_hash: str
    """The answer in the status that it belongs to (`reconcile.answer.answer_hash`), as an annotation."""
    data: Mapping[str, str]
    """Its content."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EmitEvent:
    """Tell about a transition; the same one told twice is one Event."""

    type: Literal["Normal", "Warning"]
    """As Kubernetes has it."""
    reason: str
    """CamelCase word."""
    note: str
    """Text for people."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PatchStatus:
    """Make the status equal to this one, if the object is still the one that was decided about."""

    status: Mapping[str, Any]
    """The whole status."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeleteRequest:
    """Delete the request; what it owns goes with it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Requeue:
    """Look again, although nothing may have happened by then."""

    after_seconds: float
    """When."""


Action: TypeAlias = Project | ApplyReport | EmitEvent | PatchStatus | DeleteRequest | Requeue
