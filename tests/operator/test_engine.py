"""Every way in which a run of the engine can end is a value, and the next run is not affected."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from projection_operator.engine import Engine, Limits
from projection_operator.reconcile import EngineFailure, Project, Refusal, Result
from projector.api import Question
from projector.projection import Projection
from tests.operator.builders import projection


@asynccontextmanager
async def engine(behaviour: str, *, seconds: float = 60.0, processes: int = 1) -> AsyncIterator[Engine]:
    limits = Limits(seconds=seconds, memory_bytes=512 << 20)
    made = Engine(processes=processes, limits=limits, entry=f"tests.operator.engines:{behaviour}")
    try:
        yield made
    finally:
        await made.close()


async def ask(made: Engine, text: str = "") -> Result:
    answer = await made.answer(Project(question=Question(text=text), spec_hash="abc"))
    assert answer.spec_hash == "abc"
    return answer.result


async def test_an_answer_arrives_as_it_was_given() -> None:
    async with engine("answering") as made:
        assert await ask(made) == projection()


async def test_wrong_input_is_a_refusal_with_the_engines_own_words() -> None:
    async with engine("refusing") as made:
        assert await ask(made) == Refusal(
            reason="BatchIndivisible", message="global_batch_size: 24 does not divide; the nearest is 192"
        )


@pytest.mark.parametrize(
    ("behaviour", "summary", "details"),
    [
        ("breaking", "ZeroDivisionError: one", "in breaking"),
        ("recursing", "RecursionError: maximum recursion depth", "in recursing"),
        ("dying", "its process ended with code 7", ""),
    ],
)
async def test_what_should_never_happen_is_a_failure_and_not_the_end(
    behaviour: str, summary: str, details: str
) -> None:
    async with engine(behaviour) as made:
        result = await ask(made)
        assert isinstance(result, EngineFailure)
        assert summary in result.summary
        assert details in result.details


@pytest.mark.parametrize(
    ("behaviour", "seconds", "words"),
    [("hanging", 0.5, "0.5 s"), ("devouring", 60.0, "512 MiB"), ("nibbling", 60.0, "512 MiB")],
)
async def test_a_run_that_costs_too_much_is_refused(behaviour: str, seconds: float, words: str) -> None:
    async with engine(behaviour, seconds=seconds) as made:
        result = await ask(made)
        assert isinstance(result, Refusal)
        assert result.reason == "ProjectionTooCostly"
        assert f"needs more than {words}" in result.message


async def test_prints_of_the_engine_get_into_the_log_and_not_into_the_reply(caplog: pytest.LogCaptureFixture) -> None:
    async with engine("printing") as made:
        assert await ask(made) == projection()
    (record,) = caplog.records
    assert vars(record)["text"] == "noise on standard output\n"


async def test_the_environment_of_the_operator_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIMUS_ROOT", "/somewhere")
    async with engine("environment") as made:
        result = await ask(made)
        assert isinstance(result, Projection)
        assert result.model == "[] False"


async def test_a_process_is_used_again_however_large_the_operator_is() -> None:
    ballast = b"x" * (200 << 20)
    async with engine("numbered") as made:
        assert await ask(made) == await ask(made)
    del ballast


async def test_a_process_that_has_grown_is_replaced() -> None:
    async with engine("growing") as made:
        models = {result.model for result in [await ask(made), await ask(made)] if isinstance(result, Projection)}
        assert len(models) == 2


@pytest.mark.parametrize("trouble", ["die", "devour", "break"])
async def test_the_next_question_is_answered_whatever_happened_to_the_last(trouble: str) -> None:
    async with engine("moody") as made:
        assert not isinstance(await ask(made, trouble), Projection)
        assert await ask(made) == projection()


async def test_an_abandoned_question_does_not_answer_the_next_one() -> None:
    async with engine("moody") as made:
        await made.start()
        abandoned = asyncio.create_task(ask(made, "hang"))
        await asyncio.sleep(0)
        abandoned.cancel()
        with pytest.raises(asyncio.CancelledError):
            await abandoned
        assert await ask(made) == projection()


async def test_one_that_hangs_does_not_hold_up_the_others() -> None:
    async with engine("moody", processes=2) as made:
        stuck = asyncio.create_task(ask(made, "hang"))
        assert [await ask(made) for _ in range(3)] == [projection()] * 3
        assert not stuck.done()
        stuck.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stuck
