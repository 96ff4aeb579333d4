"""What the cluster looks like to one request at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from projector.errors import InputError
from projector.projection import Projection


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Why a question has no answer, where the person who asked can mend it."""

    reason: str
    """One word, as the conditions carry it."""
    message: str
    """Where, what, and what would be right."""

    @classmethod
    def of(cls, error: InputError) -> "Refusal":
        """The same, from the exception that the engine raises."""
        return cls(reason=error.reason, message=str(error))


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigMapContent:
    """A ConfigMap, as far as it is of interest."""

    data: Mapping[str, str]
    """Texts by key."""
    binary: Mapping[str, bytes] = field(default_factory=dict)
    """Bytes by key."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineFailure:
    """The engine ended in a way that it never should."""

    summary: str
    """Kind and text of the exception, on one line."""
    details: str = ""
    """What the log shall hold about it."""


Result: TypeAlias = Projection | Refusal | EngineFailure
"""How a run of the engine can end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What the engine said to a question."""

    spec_hash: str
    """Identity of the question."""
    result: Result
    """The answer, or why there is none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """Everything outside the request that a decision may depend on."""

    config_maps: Mapping[str, ConfigMapContent | None] = field(default_factory=dict)
    """The ConfigMaps that the request names; None for one that is not there."""
    node_products: frozenset[str] | None = None
    """Labels `amd.com/gpu.product-name` of the matching nodes; None when nodes may not be read or need not be."""
    report_hash: str | None = None
    """`projection.dev/answer-hash` of the report as it stands; None when there is no report."""
    answer: Answer | None = None
    """The engine's answer, when it has just been asked."""
