"""Every reason that a condition of a ProjectionRequest can carry: where it stands, what it means, what to do about it.

Reasons are an interface: people and programs compare them, and `docs/conditions.md` is written from this table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TypeAlias

from projection_operator.api.conditions import ConditionStatus, ConditionType
from projector import errors


class Reason(StrEnum):
    """Reasons that the operator gives itself; those of wrong input come with the engine's `InputError.reason`."""

    PENDING = "Pending"
    CONFIGURATION_VALID = "ConfigurationValid"
    CONFIG_MAP_NOT_FOUND = "ConfigMapNotFound"
    CONFIG_MAP_KEY_NOT_FOUND = "ConfigMapKeyNotFound"
    PROJECTION_TOO_COSTLY = "ProjectionTooCostly"
    NOT_ACCEPTED = "NotAccepted"
    NOT_REQUESTED = "NotRequested"
    NOT_AVAILABLE = "NotAvailable"
    FITS_IN_MEMORY = "FitsInMemory"
    CLOSE_TO_CAPACITY = "CloseToCapacity"
    EXCEEDS_DEVICE_MEMORY = "ExceedsDeviceMemory"
    NOT_UNDERSTOOD = "NotUnderstood"
    PROJECTED = "Projected"
    INTERNAL_ERROR = "InternalError"


Place: TypeAlias = tuple[ConditionType, ConditionStatus]
"""A condition and its status."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """What a person who meets a reason wants to know."""

    places: tuple[Place, ...]
    """Where it can stand."""
    meaning: str
    """What has happened."""
    remedy: str
    """What to do about it."""


_TRUE, _FALSE, _UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN
_REFUSED: tuple[Place, ...] = ((ConditionType.ACCEPTED, _FALSE), (ConditionType.COMPLETED, _FALSE))

_NOTHING = "Nothing."
_MEND_FILE = "Mend what the message names and create the request anew, or change the ConfigMap that it refers to."
_MEND_REQUEST = "Create the request anew with what the message proposes."


def _refusal(meaning: str, remedy: str) -> Explanation:
    return Explanation(places=_REFUSED, meaning=meaning, remedy=remedy)


EXPLANATIONS: Mapping[str, Explanation] = MappingProxyType(
    {
        Reason.PENDING: Explanation(
            places=tuple((kind, _UNKNOWN) for kind in ConditionType),
            meaning="The request has been seen and not been examined yet.",
            remedy="Wait; an answer takes about a second.",
        ),
        Reason.CONFIGURATION_VALID: Explanation(
            places=((ConditionType.ACCEPTED, _TRUE),),
            meaning="The configuration could be read and the layout is possible; the message says what was understood.",
            remedy=_NOTHING,
        ),
        Reason.PROJECTED: Explanation(
            places=((ConditionType.COMPLETED, _TRUE),),
            meaning="The answer is in the status.",
            remedy=_NOTHING,
        ),
        Reason.FITS_IN_MEMORY: Explanation(
            places=((ConditionType.FITS, _TRUE),),
            meaning="Verdict `Fits`: the upper end of the interval is below what a GPU offers.",
            remedy=_NOTHING,
        ),
        Reason.CLOSE_TO_CAPACITY: Explanation(
            places=((ConditionType.FITS, _UNKNOWN),),
            meaning="Verdict `AtRisk`: what a GPU offers lies inside the interval.",
            remedy="Leave more room: a smaller micro batch, more recomputation, or more sharding.",
        ),
        Reason.EXCEEDS_DEVICE_MEMORY: Explanation(
            places=((ConditionType.FITS, _FALSE),),
            meaning="Verdict `DoesNotFit`: even the lower end of the interval is above what a GPU offers.",
            remedy="Use a smaller micro batch, more recomputation, more sharding, more nodes or a larger GPU.",
        ),
        Reason.NOT_UNDERSTOOD: Explanation(
            places=((ConditionType.FITS, _UNKNOWN),),
            meaning="Verdict `Unknown`: something that decides is not modelled or not known; see `status.unmodelled`.",
            remedy="Leave that part out, or judge by the figures whether it matters.",
        ),
        Reason.NOT_REQUESTED: Explanation(
            places=((ConditionType.BENCHMARKED, _FALSE), (ConditionType.FITS, _UNKNOWN)),
            meaning="`spec.profiling.mode` asks for no benchmark, or `spec.projections` not for memory.",
            remedy=_NOTHING,
        ),
        Reason.NOT_AVAILABLE: Explanation(
            places=((ConditionType.BENCHMARKED, _FALSE), *_REFUSED),
            meaning="This version runs no benchmarks (the analytical answer stands), "
            "or the configuration asks for something else that is understood and not offered yet.",
            remedy="Do without what the message names.",
        ),
        Reason.NOT_ACCEPTED: Explanation(
            places=((ConditionType.FITS, _UNKNOWN),),
            meaning="There is no answer, because the request is not accepted.",
            remedy="See the condition `Accepted`.",
        ),
        Reason.CONFIG_MAP_NOT_FOUND: _refusal(
            "A ConfigMap that the spec names is not in the request's namespace.",
            'Create it. It is noticed at once with the label `projection.dev/config: "true"`, else within minutes.',
        ),
        Reason.CONFIG_MAP_KEY_NOT_FOUND: _refusal(
            "The ConfigMap has no such key; the message lists those that it has.",
            "Add the key to the ConfigMap, or create the request anew with another key.",
        ),
        Reason.PROJECTION_TOO_COSTLY: _refusal(
            "The engine would need more time or memory than the operator grants to one request.",
            "Ask for less: fewer layers, micro batches, pipeline stages or schedules. "
            "Administrators raise `--engine-seconds` and `--engine-memory-mib`.",
        ),
        errors.ConfigurationError.reason: _refusal(
            "A key or value of the configuration is malformed, missing, unknown, or of the wrong type.", _MEND_FILE
        ),
        errors.PresetUnknown.reason: _refusal(
            "A recipe, or a model or module preset that the configuration names, is not known.",
            "Name one of those in the message, or write the values out in the configuration.",
        ),
        errors.ConfigurationTooLarge.reason: _refusal(
            "The configuration exceeds the limits on size, depth or aliases.", _MEND_FILE
        ),
        errors.LayoutImpossible.reason: _refusal(
            "The parallel layout does not divide the model or the GPUs evenly.", _MEND_REQUEST
        ),
        errors.BatchIndivisible.reason: _refusal(
            "The global batch does not divide over micro batch and data parallelism; the message names the nearest "
            "that does.",
            "Create the request anew with that number in `spec.batch.global`.",
        ),
        errors.DeviceUnknown.reason: _refusal(
            "The GPU is not in the catalog, or the nodes do not tell it: no label, different labels, or no right to "
            "read them.",
            "Create the request anew with one of `projector devices` in `spec.target.device`.",
        ),
        errors.InputError.reason: _refusal("Something else in the request cannot be used.", _MEND_REQUEST),
        Reason.INTERNAL_ERROR: Explanation(
            places=(
                (ConditionType.ACCEPTED, _UNKNOWN),
                (ConditionType.FITS, _UNKNOWN),
                (ConditionType.COMPLETED, _FALSE),
            ),
            meaning="The engine failed on this request; the operator's log has the details.",
            remedy="Report it with the configuration; it is tried again at each resync.",
        ),
    }
)
"""By reason, in the order in which the documentation lists them."""
