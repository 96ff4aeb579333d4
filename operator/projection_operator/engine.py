"""Runs the engine beside the event loop, and turns every way in which it can end into a value."""

import asyncio
import contextvars
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from projection_operator.reconcile import Answer, EngineFailure, Project
from projector.api import Question
from projector.errors import InputError
from projector.projection import Projection

logger = logging.getLogger(__name__)

Projector: TypeAlias = Callable[[Question], Projection]
"""`projector.api.project`, or what a test puts in its place."""


class Engine:
    """A few threads that answer questions; the event loop goes on meanwhile."""

    def __init__(self, projector: Projector, *, threads: int) -> None:
        """`threads` runs at once; further questions wait."""
        self._projector = projector
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="engine")

    async def answer(self, work: Project) -> Answer:
        """The answer to a question; never raises what the engine raises."""
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(self._pool, context.run, self._project, work.question)
        return Answer(spec_hash=work.spec_hash, result=result)

    def close(self) -> None:
        """Start no more runs; those under way end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _project(self, question: Question) -> Projection | InputError | EngineFailure:
        try:
            return self._projector(question)
        except InputError as error:
            return error
        except Exception as error:
            logger.exception("The engine failed")
            return EngineFailure(summary=f"{type(error).__name__}: {error}".splitlines()[0])
