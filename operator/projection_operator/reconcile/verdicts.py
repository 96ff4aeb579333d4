"""From an answer, or the lack of one, to the four conditions."""

from projection_operator.api.conditions import Condition, ConditionStatus, ConditionType
from projection_operator.api.reasons import Reason
from projection_operator.reconcile.messages import accepted_message, completed_message, fits_message
from projection_operator.reconcile.observed import Refusal
from projector.projection import Projection, Verdict

PENDING = tuple(
    Condition(type=kind, status=ConditionStatus.UNKNOWN, reason=Reason.PENDING, message="Not examined yet.")
    for kind in ConditionType
)
"""What the first visit writes."""

FITS_BY_VERDICT = {
    Verdict.FITS: (ConditionStatus.TRUE, Reason.FITS_IN_MEMORY),
    Verdict.AT_RISK: (ConditionStatus.UNKNOWN, Reason.CLOSE_TO_CAPACITY),
    Verdict.DOES_NOT_FIT: (ConditionStatus.FALSE, Reason.EXCEEDS_DEVICE_MEMORY),
    Verdict.UNKNOWN: (ConditionStatus.UNKNOWN, Reason.NOT_UNDERSTOOD),
}
"""The condition Fits for each verdict: True and False only where the engine is sure."""

BENCHMARKED_BY_MODE = {
    "Simulate": (Reason.NOT_REQUESTED, "No benchmark was asked for (spec.profiling.mode is Simulate)."),
    "Benchmark": (
        Reason.NOT_AVAILABLE,
        "This version of the operator runs no benchmarks; the answer is the analytical one.",
    ),
    "Both": (
        Reason.NOT_AVAILABLE,
        "This version of the operator runs no benchmarks; the answer is the analytical one, compared with nothing.",
    ),
}
"""The condition Benchmarked, always False, by `spec.profiling.mode`."""


def answered(projection: Projection, mode: str) -> tuple[Condition, ...]:
    """Conditions of a request that has its answer."""
    return (
        _condition(
            ConditionType.ACCEPTED, ConditionStatus.TRUE, Reason.CONFIGURATION_VALID, accepted_message(projection)
        ),
        _benchmarked(mode),
        _fits(projection),
        _condition(ConditionType.COMPLETED, ConditionStatus.TRUE, Reason.PROJECTED, completed_message(projection)),
    )


def refused(refusal: Refusal, mode: str) -> tuple[Condition, ...]:
    """Conditions of a request that cannot be answered until somebody mends it or what it names."""
    return (
        _condition(ConditionType.ACCEPTED, ConditionStatus.FALSE, refusal.reason, refusal.message),
        _benchmarked(mode),
        _condition(ConditionType.FITS, ConditionStatus.UNKNOWN, Reason.NOT_ACCEPTED, "See the condition Accepted."),
        _condition(ConditionType.COMPLETED, ConditionStatus.FALSE, refusal.reason, refusal.message),
    )


def failed(summary: str, mode: str) -> tuple[Condition, ...]:
    """Conditions of a request on which the engine broke."""
    message = f"The engine failed: {summary}. This is an error of the operator, not of the request; please report it."
    return (
        _condition(ConditionType.ACCEPTED, ConditionStatus.UNKNOWN, Reason.INTERNAL_ERROR, message),
        _benchmarked(mode),
        _condition(ConditionType.FITS, ConditionStatus.UNKNOWN, Reason.INTERNAL_ERROR, message),
        _condition(ConditionType.COMPLETED, ConditionStatus.FALSE, Reason.INTERNAL_ERROR, message),
    )


def _benchmarked(mode: str) -> Condition:
    reason, message = BENCHMARKED_BY_MODE[mode]
    return _condition(ConditionType.BENCHMARKED, ConditionStatus.FALSE, reason, message)


def _fits(projection: Projection) -> Condition:
    memory = projection.memory
    if memory is None:
        message = "Memory was not asked for (spec.projections)."
        return _condition(ConditionType.FITS, ConditionStatus.UNKNOWN, Reason.NOT_REQUESTED, message)
    status, reason = FITS_BY_VERDICT[memory.verdict]
    return _condition(ConditionType.FITS, status, reason, fits_message(memory, projection))


def _condition(kind: ConditionType, status: ConditionStatus, reason: str, message: str) -> Condition:
    return Condition(type=kind, status=status, reason=reason, message=message)
