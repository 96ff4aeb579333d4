"""A queue of object keys: each key at most once, never two workers on one key, failures with growing pauses.

The semantics are those of Kubernetes' `client-go/util/workqueue`: a key that is added while it is being worked on
comes again afterwards. Single-threaded: everything happens on one event loop.
"""

import asyncio
from collections import deque

from projection_operator.api.names import Key

FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 300.0
"""Pauses after the first failure and after many in a row. An API server that is down is not asked more often, and one
that is back is noticed within minutes."""


class WorkQueue:
    """Keys to look at."""

    def __init__(self) -> None:
        """Empty."""
        self._waiting: deque[Key] = deque()
        self._queued: set[Key] = set()
        self._working: set[Key] = set()
        self._again: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._available = asyncio.Event()

    def __len__(self) -> int:
        """Keys that wait for a worker."""
        return len(self._waiting)

    def add(self, key: Key) -> None:
        """Look at `key` soon."""
        if key in self._working:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._waiting.append(key)
            self._available.set()

    def add_after(self, key: Key, seconds: float) -> None:
        """Look at `key` in a while; of two such wishes the earlier one counts."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + seconds:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(seconds, self._due, key)

    def add_after_failure(self, key: Key) -> None:
        """Look at `key` again, later with each failure in a row."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.add_after(key, retry_seconds(failures))

    def succeeded(self, key: Key) -> None:
        """Forget the failures of `key`."""
        self._failures.pop(key, None)

    def forget(self, key: Key) -> None:
        """`key` is gone: drop its failures and its timer."""
        self._failures.pop(key, None)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    async def get(self) -> Key:
        """The next key; `done` must follow."""
        while not self._waiting:
            self._available.clear()
            await self._available.wait()
        key = self._waiting.popleft()
        self._queued.discard(key)
        self._working.add(key)
        return key

    def done(self, key: Key) -> None:
        """The work on `key` has ended, well or not."""
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def close(self) -> None:
        """Cancel all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _due(self, key: Key) -> None:
        del self._timers[key]
        self.add(key)


def retry_seconds(failures: int) -> float:
    """Pause after so many earlier failures in a row: doubling, with a limit."""
    return float(min(FIRST_RETRY_SECONDS * 2.0 ** min(failures, 30), LAST_RETRY_SECONDS))
