"""Keys come once, alone, in order, and again after failures with growing pauses."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projection_operator import queue as module
from projection_operator.api.names import Key
from projection_operator.queue import LAST_RETRY_SECONDS, WorkQueue, retry_seconds

A, B = Key("ns", "a"), Key("ns", "b")


async def test_a_key_added_twice_comes_once_and_keys_keep_their_order() -> None:
    queue = WorkQueue()
    for key in (B, A, B):
        queue.add(key)
    assert len(queue) == 2
    assert [await queue.get(), await queue.get()] == [B, A]


async def test_a_key_added_during_its_work_comes_again_afterwards_and_not_before() -> None:
    queue = WorkQueue()
    queue.add(A)
    await queue.get()
    queue.add(A)
    queue.add(A)
    assert len(queue) == 0
    queue.done(A)
    assert len(queue) == 1


async def test_a_worker_wakes_up_for_a_key() -> None:
    queue = WorkQueue()
    worker = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add(A)
    assert await worker == A


async def test_the_earlier_of_two_timers_counts() -> None:
    queue = WorkQueue()
    queue.add_after(A, 3600)
    queue.add_after(A, 0)
    queue.add_after(A, 3600)
    assert await asyncio.wait_for(queue.get(), 10) == A
    queue.close()


async def test_a_key_that_is_gone_takes_its_timer_along() -> None:
    queue = WorkQueue()
    queue.add_after(A, 0)
    queue.forget(A)
    queue.add_after(B, 0)
    assert await asyncio.wait_for(queue.get(), 10) == B
    assert len(queue) == 0


def test_pauses_double_up_to_a_limit() -> None:
    assert [retry_seconds(failures) for failures in range(4)] == [1.0, 2.0, 4.0, 8.0]
    assert retry_seconds(10**6) == LAST_RETRY_SECONDS


async def test_pauses_grow_with_failures_in_a_row_and_a_success_or_the_end_of_the_object_forgets_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[int] = []

    def pause(failures: int) -> float:
        counted.append(failures)
        return 3600.0

    monkeypatch.setattr(module, "retry_seconds", pause)
    queue = WorkQueue()
    for _ in range(3):
        queue.add_after_failure(A)
    queue.succeeded(A)
    queue.add_after_failure(A)
    queue.forget(A)
    queue.add_after_failure(A)
    queue.close()
    assert counted == [0, 1, 2, 0, 0]


@settings(deadline=None)
@given(st.lists(st.sampled_from(["add a", "add b", "get", "done"]), max_size=60))
def test_no_wish_is_lost_and_no_key_is_worked_on_twice_at_once(steps: list[str]) -> None:
    asyncio.run(_play(steps))


async def _play(steps: list[str]) -> None:
    queue, working = WorkQueue(), list[Key]()
    wished: set[Key] = set()
    for step in steps:
        if step.startswith("add"):
            key = A if step.endswith("a") else B
            queue.add(key)
            wished.add(key)
        elif step == "get" and len(queue):
            key = await queue.get()
            assert key not in working
            working.append(key)
            wished.discard(key)
        elif step == "done" and working:
            queue.done(working.pop())
    for key in working:
        queue.done(key)
    left = {await queue.get() for _ in range(len(queue))}
    assert left == wished
