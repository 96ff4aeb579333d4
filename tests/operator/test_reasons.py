"""The table of reasons holds what the operator writes, and nothing else."""

import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator

import projection_operator
import projector
from projection_operator.api.conditions import Condition, ConditionStatus, ConditionType
from projection_operator.api.reasons import EXPLANATIONS, Place, Reason
from projection_operator.reconcile import Refusal
from projection_operator.reconcile.verdicts import BENCHMARKED_BY_MODE, PENDING, answered, failed, refused
from projector.errors import InputError
from projector.projection import Verdict
from tests.operator.builders import memory, projection

Standing = tuple[str, Place]
"""A reason, and where it stands."""


def kinds_of(error: type[InputError]) -> Iterator[type[InputError]]:
    yield error
    for child in error.__subclasses__():
        yield from kinds_of(child)


def reasons_of_wrong_input() -> set[str]:
    """Those of the engine and of the operator; the command line has another door."""
    for package in (projector, projection_operator):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    kinds = (kind for kind in kinds_of(InputError) if not kind.__module__.startswith(("projector.cli", "tests.")))
    return {str(kind.reason) for kind in kinds}


def written() -> Iterator[Iterable[Condition]]:
    """Every set of conditions that the operator can write."""
    yield PENDING
    for mode in BENCHMARKED_BY_MODE:
        yield from (answered(projection(memory=memory(verdict)), mode) for verdict in Verdict)
        yield answered(projection(memory=None), mode)
        yield failed("X: y", mode)
        for reason in reasons_of_wrong_input() | {Reason.PROJECTION_TOO_COSTLY}:
            yield refused(Refusal(reason=reason, message="why"), mode)


def test_the_table_is_exactly_what_can_be_written() -> None:
    standing: set[Standing] = {
        (str(condition.reason), (condition.type, condition.status)) for group in written() for condition in group
    }
    explained = {(str(reason), place) for reason, entry in EXPLANATIONS.items() for place in entry.places}
    assert explained == standing


def test_every_reason_has_a_row_and_every_word_is_one_that_kubernetes_accepts() -> None:
    assert set(EXPLANATIONS) >= set(Reason)
    assert all(re.fullmatch(r"[A-Z][A-Za-z]*", reason) for reason in EXPLANATIONS)


def test_every_condition_and_status_that_is_written_is_a_known_one() -> None:
    assert {place[0] for entry in EXPLANATIONS.values() for place in entry.places} == set(ConditionType)
    assert {place[1] for entry in EXPLANATIONS.values() for place in entry.places} == set(ConditionStatus)
