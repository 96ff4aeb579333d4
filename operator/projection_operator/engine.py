"""Runs the engine in processes of its own, and turns every way in which a run can end into a value.

Configurations are untrusted. A run gets an empty environment, a bounded address space and a deadline; a run that
exceeds them, or takes its process down, costs the request its answer and nobody else anything.
"""

import asyncio
import contextvars
import logging
import os
import pickle
import sys
from dataclasses import dataclass

from projection_operator.api.reasons import Reason
from projection_operator.engine_protocol import HEADER, Reply
from projection_operator.reconcile import Answer, EngineFailure, Project, Refusal, Result
from projector.api import Question

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What one run may use."""

    seconds: float
    """Time."""
    memory_bytes: int
    """Address space."""


class Engine:
    """A few processes that answer questions; the event loop goes on meanwhile."""

    def __init__(self, *, processes: int, limits: Limits, entry: str = "projector.api:project") -> None:
        """`entry` is the function that answers, as `module:name`."""
        self._all = [_Child(limits, entry) for _ in range(processes)]
        self._free: asyncio.Queue[_Child] = asyncio.Queue()
        for child in self._all:
            self._free.put_nowait(child)

    async def start(self) -> None:
        """Start the processes now, so that the first request does not wait for them."""
        await asyncio.gather(*(child.start() for child in self._all))

    async def answer(self, work: Project) -> Answer:
        """The answer to a question; never raises what the engine raises."""
        child = await self._free.get()
        try:
            result = await child.ask(work.question)
        finally:
            self._free.put_nowait(child)
        if isinstance(result, EngineFailure):
            logger.error("The engine failed", extra={"error": result.summary, "details": result.details})
        return Answer(spec_hash=work.spec_hash, result=result)

    async def close(self) -> None:
        """End the processes, whatever they do."""
        await asyncio.gather(*(child.kill() for child in self._all))


class _Child:
    """One process, started again whenever it is gone."""

    def __init__(self, limits: Limits, entry: str) -> None:
        self._limits = limits
        self._entry = entry
        self._process: asyncio.subprocess.Process | None = None
        self._listener: asyncio.Task[None] | None = None

    async def start(self) -> asyncio.subprocess.Process:
        """The running process."""
        if self._process is None or self._process.returncode is not None:
            limits = self._limits
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "projection_operator.engine_worker"),
                *(self._entry, str(limits.seconds), str(limits.memory_bytes)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd="/",
                # Where to find the packages, and nothing else.
                env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
            # In a context of its own: the process outlives the request for which it is started.
            self._listener = asyncio.create_task(_listen(self._process), context=contextvars.Context())
        return self._process

    async def ask(self, question: Question) -> Result:
        """The result for a question."""
        process = await self.start()
        answered = False
        try:
            async with asyncio.timeout(self._limits.seconds):
                reply = await _exchange(process, question)
            answered = not reply.spent
        except TimeoutError:
            return _too_costly(f"more than {self._limits.seconds:g} s")
        except (asyncio.IncompleteReadError, ConnectionError):
            code = await process.wait()
            return EngineFailure(summary=f"its process ended with code {code}")
        finally:
            # Also when this operator is stopping: nothing may read the late reply to an abandoned question.
            if not answered:
                await self.kill()
        if reply.out_of_memory:
            return _too_costly(f"more than {self._limits.memory_bytes >> 20} MiB of memory")
        return reply.result

    async def kill(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
        if self._listener is not None:
            await self._listener


async def _exchange(process: asyncio.subprocess.Process, question: Question) -> Reply:
    assert process.stdin is not None  # noqa: S101 - for the type checker
    assert process.stdout is not None  # noqa: S101 - for the type checker
    content = pickle.dumps(question)
    process.stdin.write(HEADER.pack(len(content)) + content)
    await process.stdin.drain()
    (length,) = HEADER.unpack(await process.stdout.readexactly(HEADER.size))
    reply = pickle.loads(await process.stdout.readexactly(length))  # noqa: S301 - our own process
    assert isinstance(reply, Reply)  # noqa: S101 - what the process writes
    return reply


async def _listen(process: asyncio.subprocess.Process) -> None:
    """Log what a process writes to standard error: nothing, unless something is wrong with it."""
    assert process.stderr is not None  # noqa: S101 - for the type checker
    while text := await process.stderr.read(1 << 16):
        logger.error("The engine's process wrote", extra={"text": text.decode("utf-8", "replace")})


def _too_costly(what: str) -> Refusal:
    message = f"the projection needs {what}; ask for less: fewer layers, micro batches, pipeline stages or schedules"
    return Refusal(reason=Reason.PROJECTION_TOO_COSTLY, message=message)
