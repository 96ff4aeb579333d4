"""What follows from how things stand: a table of situations, and what restarts cannot change."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projection_operator.api.spec import Request
from projection_operator.reconcile import (
    Action,
    Answer,
    ApplyReport,
    ConfigMapContent,
    DeleteRequest,
    EmitEvent,
    EngineFailure,
    Observed,
    PatchStatus,
    Project,
    Refusal,
    Requeue,
    Result,
    reconcile,
)
from projection_operator.reconcile.answer import answer_hash
from projector.projection import Suggestion, Verdict
from projector.provenance import Unmodelled
from tests.operator.builders import GIB, memory, projection, request, stage

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
INDIVISIBLE = Refusal(reason="BatchIndivisible", message="24 does not divide; the nearest is 192")


def decide(asked: Request, observed: Observed | None = None, now: datetime = NOW) -> list[Action]:
    return reconcile(asked, observed or Observed(), now, primus_root=None, engine_version="1")


def settle(
    asked: Request, result: Result, observed: Observed | None = None, now: datetime = NOW
) -> tuple[Request, list[Action]]:
    """Carry out decisions until nothing is left to do, as the controller does; returns the end and all actions."""
    observed, done = observed or Observed(), []
    for _ in range(3):
        actions = decide(asked, observed, now)
        done += actions
        for action in actions:
            match action:
                case PatchStatus(status=status):
                    asked = replace(asked, status=status)
                case ApplyReport(answer_hash=identity):
                    observed = replace(observed, report_hash=identity)
        work = [action for action in actions if isinstance(action, Project)]
        if not work:
            return asked, done
        observed = replace(observed, answer=Answer(spec_hash=work[0].spec_hash, result=result))
    raise AssertionError(f"it never settles: {done}")


def conditions(asked: Request) -> dict[str, tuple[str, str]]:
    return {item["type"]: (item["status"], item["reason"]) for item in asked.status["conditions"]}


def report_hash(asked: Request) -> str:
    return answer_hash(asked.status)


def test_the_first_visit_writes_all_conditions_and_then_asks() -> None:
    first, second = decide(request())
    assert isinstance(first, PatchStatus)
    assert [item["reason"] for item in first.status["conditions"]] == ["Pending"] * 4
    assert isinstance(second, Project)


@pytest.mark.parametrize(
    ("result", "mode", "expected"),
    [
        pytest.param(
            projection(),
            "Simulate",
            {
                "Accepted": ("True", "ConfigurationValid"),
                "Benchmarked": ("False", "NotRequested"),
                "Fits": ("True", "FitsInMemory"),
                "Completed": ("True", "Projected"),
            },
            id="fits",
        ),
        pytest.param(
            projection(memory=memory(Verdict.DOES_NOT_FIT)),
            "Benchmark",
            {
                "Accepted": ("True", "ConfigurationValid"),
                "Benchmarked": ("False", "NotAvailable"),
                "Fits": ("False", "ExceedsDeviceMemory"),
                "Completed": ("True", "Projected"),
            },
            id="does not fit, and a benchmark was asked for",
        ),
        pytest.param(
            projection(memory=memory(Verdict.AT_RISK)),
            "Both",
            {
                "Accepted": ("True", "ConfigurationValid"),
                "Benchmarked": ("False", "NotAvailable"),
                "Fits": ("Unknown", "CloseToCapacity"),
                "Completed": ("True", "Projected"),
            },
            id="at risk",
        ),
        pytest.param(
            projection(memory=memory(Verdict.UNKNOWN)),
            "Simulate",
            {
                "Accepted": ("True", "ConfigurationValid"),
                "Benchmarked": ("False", "NotRequested"),
                "Fits": ("Unknown", "NotUnderstood"),
                "Completed": ("True", "Projected"),
            },
            id="not understood",
        ),
        pytest.param(
            projection(memory=None),
            "Simulate",
            {
                "Accepted": ("True", "ConfigurationValid"),
                "Benchmarked": ("False", "NotRequested"),
                "Fits": ("Unknown", "NotRequested"),
                "Completed": ("True", "Projected"),
            },
            id="memory not asked for",
        ),
        pytest.param(
            INDIVISIBLE,
            "Simulate",
            {
                "Accepted": ("False", "BatchIndivisible"),
                "Benchmarked": ("False", "NotRequested"),
                "Fits": ("Unknown", "NotAccepted"),
                "Completed": ("False", "BatchIndivisible"),
            },
            id="wrong input",
        ),
        pytest.param(
            EngineFailure(summary="ZeroDivisionError: division by zero"),
            "Simulate",
            {
                "Accepted": ("Unknown", "InternalError"),
                "Benchmarked": ("False", "NotRequested"),
                "Fits": ("Unknown", "InternalError"),
                "Completed": ("False", "InternalError"),
            },
            id="the engine broke",
        ),
    ],
)
def test_answers_become_conditions(result: Result, mode: str, expected: dict[str, Any]) -> None:
    asked, _ = settle(request(profiling={"mode": mode}), result)
    assert conditions(asked) == expected


def test_the_report_and_the_event_come_before_the_status_that_promises_them() -> None:
    _, actions = settle(request(), projection())
    assert [type(action) for action in actions] == [PatchStatus, Project, ApplyReport, EmitEvent, PatchStatus]


@pytest.mark.parametrize("result", [projection(), INDIVISIBLE], ids=["answered", "refused"])
def test_a_fresh_answer_stands_without_another_run(result: Result) -> None:
    asked, _ = settle(request(), result)
    later = NOW + timedelta(days=1)
    assert decide(asked, Observed(report_hash=report_hash(asked)), later) == []


def test_an_engine_that_broke_is_tried_again_without_repeating_the_event() -> None:
    broken = EngineFailure(summary="KeyError: 'x'")
    asked, _ = settle(request(), broken)
    assert "specHash" not in asked.status
    _, actions = settle(asked, broken, now=NOW + timedelta(minutes=10))
    assert [type(action) for action in actions] == [Project]


def test_an_answer_to_another_question_is_none() -> None:
    stray = Observed(answer=Answer(spec_hash="of another question", result=projection()))
    assert [type(action) for action in decide(request(), stray)] == [PatchStatus, Project]


def test_a_report_that_somebody_deleted_is_made_again() -> None:
    asked, _ = settle(request(), projection())
    _, actions = settle(asked, projection(), Observed(report_hash=None), NOW + timedelta(minutes=10))
    assert [type(action) for action in actions] == [Project, ApplyReport, PatchStatus]


def test_a_changed_config_map_is_projected_again_and_the_old_answer_stands_meanwhile() -> None:
    def content(text: str) -> Observed:
        return Observed(config_maps={"config": ConfigMapContent(data={"k": text})})

    training = {"configMapRef": {"name": "config", "key": "k"}}
    asked, _ = settle(request(training=training), projection(), content("a"))
    changed = replace(content("b"), report_hash=report_hash(asked))
    assert [type(action) for action in decide(asked, changed)] == [Project]
    again, _ = settle(asked, projection(memory=memory(Verdict.DOES_NOT_FIT)), changed, NOW + timedelta(hours=1))
    assert again.status["verdict"] == "DoesNotFit"
    assert again.status["completionTime"] == asked.status["completionTime"]


def test_a_config_map_that_goes_away_takes_the_answer_with_it() -> None:
    training = {"configMapRef": {"name": "config", "key": "k"}}
    there = Observed(config_maps={"config": ConfigMapContent(data={"k": "a"})})
    asked, _ = settle(request(training=training), projection(), there)
    gone, actions = settle(asked, projection(), Observed(config_maps={"config": None}, report_hash=report_hash(asked)))
    assert conditions(gone)["Accepted"] == ("False", "ConfigMapNotFound")
    assert not {"verdict", "memory", "throughput", "specHash", "completionTime"} & set(gone.status)
    assert [type(action) for action in actions] == [EmitEvent, PatchStatus]


def test_a_new_generation_is_observed_without_another_run() -> None:
    asked, _ = settle(request(), projection())
    newer = replace(asked, generation=2, ttl_seconds=3600)
    patch, requeue = decide(newer, Observed(report_hash=report_hash(asked)))
    assert isinstance(patch, PatchStatus)
    assert patch.status["observedGeneration"] == 2
    assert {item["observedGeneration"] for item in patch.status["conditions"]} == {2}
    assert requeue == Requeue(after_seconds=3600.0)


@pytest.mark.parametrize(
    ("ttl", "passed", "expected"),
    [
        (None, 10**9, []),
        (60, 0, [Requeue(after_seconds=60.0)]),
        (60, 59, [Requeue(after_seconds=1.0)]),
        (60, 60, [DeleteRequest()]),
        (0, 0, [DeleteRequest()]),
    ],
)
def test_a_completed_request_expires(ttl: int | None, passed: int, expected: list[Action]) -> None:
    asked, _ = settle(request(), projection())
    asked = replace(asked, ttl_seconds=ttl)
    assert decide(asked, Observed(report_hash=report_hash(asked)), NOW + timedelta(seconds=passed)) == expected


@pytest.mark.parametrize("result", [INDIVISIBLE, EngineFailure(summary="X: y")], ids=["refused", "broken"])
def test_a_request_without_an_answer_expires_like_any_other(result: Result) -> None:
    asked, actions = settle(request(ttlSecondsAfterFinished=60), result)
    assert actions[-1] == Requeue(after_seconds=60.0)
    _, actions = settle(asked, result, now=NOW + timedelta(seconds=60))
    assert actions[-1] == DeleteRequest()


def test_a_request_that_is_not_examined_yet_does_not_expire() -> None:
    first, second = decide(request(ttlSecondsAfterFinished=0))
    assert isinstance(first, PatchStatus)
    assert isinstance(second, Project)


def test_no_time_to_live_is_too_long() -> None:
    asked, _ = settle(request(ttlSecondsAfterFinished=2**31 - 1), INDIVISIBLE)
    for item in asked.status["conditions"]:
        item["lastTransitionTime"] = "9999-12-31T23:59:59Z"
    (requeue,) = decide(asked)
    assert isinstance(requeue, Requeue)


EDITS: dict[str, dict[str, Any]] = {
    "another verdict": {"verdict": "DoesNotFit"},
    "no memory": {"memory": None},
    "another report": {"reportRef": {"name": "mine"}},
    "an older completion": {"completionTime": "2020-01-01T00:00:00Z"},
    "no conditions": {"conditions": []},
    "one condition less": {"conditions": "without Completed"},
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_answer_that_somebody_else_has_changed_is_given_again(edit: str) -> None:
    asked, _ = settle(request(), projection())
    changed = {**asked.status, **EDITS[edit]}
    if edit == "one condition less":
        changed["conditions"] = [item for item in asked.status["conditions"] if item["type"] != "Completed"]
    stored = replace(asked, status={name: value for name, value in changed.items() if value is not None})
    mended, actions = settle(stored, projection(), Observed(report_hash=report_hash(asked)), NOW + timedelta(hours=1))
    assert any(isinstance(action, Project) for action in actions)
    assert conditions(mended) == conditions(asked)
    for part in ("verdict", "memory", "reportRef"):
        assert mended.status[part] == asked.status[part]
    assert decide(mended, Observed(report_hash=report_hash(mended)), NOW + timedelta(hours=1)) == []


def test_a_refusal_that_lost_a_condition_is_told_again() -> None:
    asked, _ = settle(request(), INDIVISIBLE)
    stored = replace(asked, status={**asked.status, "conditions": asked.status["conditions"][:-1]})
    mended, _ = settle(stored, INDIVISIBLE, now=NOW + timedelta(hours=1))
    assert conditions(mended) == conditions(asked)


def test_a_condition_of_somebody_else_is_no_reason_to_answer_again() -> None:
    asked, _ = settle(request(), projection())
    foreign = {**asked.status["conditions"][0], "type": "Reviewed"}
    stored = replace(asked, status={**asked.status, "conditions": [*asked.status["conditions"], foreign]})
    assert decide(stored, Observed(report_hash=report_hash(asked)), NOW + timedelta(hours=1)) == []


def test_an_object_that_is_being_deleted_is_left_alone() -> None:
    assert decide(request(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})) == []


def test_a_request_that_does_not_fit_says_by_how_much_and_what_would_help() -> None:
    too_much = memory(Verdict.DOES_NOT_FIT, (stage(weights=200),))
    better = Suggestion(
        change="recompute_granularity=full", memory_bytes=150 * GIB, iteration_seconds=30.0, verdict=Verdict.FITS
    )
    asked, actions = settle(request(), projection(memory=too_much, suggestions=(better,)))
    message = next(item["message"] for item in asked.status["conditions"] if item["type"] == "Fits")
    for words in ("260Gi (255Gi to 265Gi) of 192Gi", "68Gi too much", "recompute_granularity=full: 150Gi"):
        assert words in message
    events = [action for action in actions if isinstance(action, EmitEvent)]
    assert [(event.type, event.reason) for event in events] == [("Warning", "ExceedsDeviceMemory")]


def test_a_request_without_a_verdict_names_what_decides_and_nothing_else() -> None:
    notes = tuple(
        Unmodelled(what=what, where="overrides", effect="memory", decides=decides)
        for what, decides in (("mamba layers", True), ("moe_router_fusion", False))
    )
    asked, _ = settle(request(), projection(memory=memory(Verdict.UNKNOWN), unmodelled=notes))
    message = next(item["message"] for item in asked.status["conditions"] if item["type"] == "Fits")
    assert message.endswith("this is not modelled: mamba layers.")


@settings(deadline=None)
@given(st.sampled_from([projection(), INDIVISIBLE, EngineFailure(summary="X: y")]), st.integers(0, 4))
def test_an_interruption_anywhere_changes_neither_the_end_nor_what_is_told(result: Result, survived: int) -> None:
    """A process that dies after any of its actions is followed by one that starts from what is stored."""
    whole, actions = settle(request(), result)
    stored, observed, told = request(), Observed(), []
    for action in actions[:survived]:
        match action:
            case PatchStatus(status=status):
                stored = replace(stored, status=status)
            case ApplyReport(answer_hash=identity):
                observed = replace(observed, report_hash=identity)
            case EmitEvent():
                told.append(action)
    resumed, rest = settle(stored, result, observed)
    assert resumed.status == whole.status
    told += [action for action in rest if isinstance(action, EmitEvent)]
    assert set(told) == {action for action in actions if isinstance(action, EmitEvent)}
    assert {action.name for action in rest if isinstance(action, ApplyReport)} <= {
        action.name for action in actions if isinstance(action, ApplyReport)
    }
