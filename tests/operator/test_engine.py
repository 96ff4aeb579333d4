"""Every way in which the engine can end is a value, and the loop goes on meanwhile."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from projection_operator.engine import Engine
from projection_operator.reconcile import EngineFailure, Project
from projector.api import Question
from projector.errors import BatchIndivisible
from projector.projection import Projection
from tests.operator.builders import projection

WORK = Project(question=Question(text=""), spec_hash="abc")


def raising(error: Exception) -> Callable[[Question], Projection]:
    def project(_: Question) -> Projection:
        raise error

    return project


async def test_an_answer_carries_the_identity_of_its_question() -> None:
    engine, expected = Engine(lambda _: expected, threads=1), projection()
    answer = await engine.answer(WORK)
    assert (answer.spec_hash, answer.result) == ("abc", expected)
    engine.close()


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (ZeroDivisionError("division by zero"), EngineFailure(summary="ZeroDivisionError: division by zero")),
        (ValueError("one\ntwo"), EngineFailure(summary="ValueError: one")),
        (RecursionError(), EngineFailure(summary="RecursionError: ")),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_should_never_happen_is_a_failure_and_not_the_end(error: Exception, result: EngineFailure) -> None:
    engine = Engine(raising(error), threads=1)
    assert (await engine.answer(WORK)).result == result
    engine.close()


async def test_wrong_input_is_handed_on() -> None:
    error = BatchIndivisible("no")
    engine = Engine(raising(error), threads=1)
    assert (await engine.answer(WORK)).result is error
    engine.close()


async def test_the_loop_goes_on_while_the_engine_runs() -> None:
    answered = threading.Event()

    def project(_: Question) -> Projection:
        assert answered.wait(30)
        return projection()

    engine = Engine(project, threads=1)
    pending = asyncio.create_task(engine.answer(WORK))
    await asyncio.sleep(0)
    assert not pending.done()
    answered.set()
    assert isinstance((await pending).result, Projection)
    engine.close()
