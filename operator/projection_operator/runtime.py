"""Puts the parts together and keeps them running: server, workers, patrol."""

import asyncio
import logging
import os
import socket
from collections.abc import Coroutine

from aiohttp import web

from projection_operator.cluster.client import ApiClient, ApiError
from projection_operator.cluster.credentials import Credentials
from projection_operator.cluster.inventory import Inventory
from projection_operator.cluster.resources import REQUESTS
from projection_operator.controller import Controller
from projection_operator.engine import Engine, Limits
from projection_operator.metrics.operator import OperatorMetrics
from projection_operator.options import Options
from projection_operator.patrol import Patrol
from projection_operator.queue import WorkQueue
from projection_operator.server import serve
from projection_operator.store import Store

logger = logging.getLogger(__name__)

API_POLL_SECONDS = 1.0
"""Pause between two looks whether the CustomResourceDefinition is there."""


class Runtime:
    """Everything that lives as long as the process."""

    def __init__(self, options: Options, credentials: Credentials) -> None:
        """Nothing runs yet."""
        self.options = options
        self.store = Store()
        self.queue = WorkQueue()
        self.client = ApiClient(credentials)
        self.patrol = Patrol(self.client, self.store, self.queue, options)
        self.stop = asyncio.Event()
        """Set when the process has to end, because a part has died, and when it has."""
        self.started = False
        """Everything runs, or ran."""
        self.failed = False
        """A part has died."""
        self.blocked = ""
        """What on this machine keeps the operator from starting, in words."""
        self._metrics = OperatorMetrics(
            self.store, queue_depth=lambda: len(self.queue), watch_lag=self.patrol.lag_seconds
        )
        self._engine = Engine(
            processes=options.engine_processes,
            limits=Limits(seconds=options.engine_seconds, memory_bytes=options.engine_memory_mib << 20),
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._server: web.AppRunner | None = None

    async def start(self) -> None:
        """Serve probes at once, then wait for the API, then start to work."""
        options = self.options
        self._server = await serve(
            options.host,
            options.metrics_port,
            healthy=self.unhealthy,
            ready=self.unready,
            registry=self._metrics.registry,
        )
        logger.info("Serving health and metrics", extra={"address": list(self._server.addresses[0][:2])})
        self.client.open()
        await self._engine.start()
        await self._wait_for_api()
        controller = Controller(
            client=self.client,
            inventory=Inventory(self.client),
            engine=self._engine,
            store=self.store,
            queue=self.queue,
            metrics=self._metrics,
            primus_root=options.primus_root,
            instance=f"{socket.gethostname()}-{os.getpid()}",
        )
        for number in range(options.workers):
            self._spawn(controller.work(), f"worker {number}")
        self._spawn(self.patrol.run(), "patrol")
        self.started = True

    async def close(self) -> None:
        """Stop everything; what was under way is found again by the next start."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.queue.close()
        await self._engine.close()
        await self.client.close()
        if self._server is not None:
            await self._server.cleanup()
        # kopf waits for the flag in a task of its own, and for that task when it ends.
        self.stop.set()

    def unhealthy(self) -> str:
        """What is wrong with the process, so that it has to be started anew."""
        lag = self.patrol.lag_seconds()
        if lag > self.options.deaf_seconds:
            return f"the watch has missed changes for {lag:.0f} s (limit {self.options.deaf_seconds:g} s)"
        return ""

    def unready(self) -> str:
        """What keeps the operator from answering yet."""
        return "" if self.patrol.rounds else "the first list of requests is not there yet"

    async def _wait_for_api(self) -> None:
        """Return when the API server serves ProjectionRequests: kopf looks for the kind only once."""
        said = False
        while True:
            try:
                if await self.client.serves(REQUESTS):
                    return
                if not said:
                    logger.warning("The CustomResourceDefinition of ProjectionRequest is missing, waiting for it")
                    said = True
            except ApiError as error:
                logger.warning("The API server does not answer, waiting for it", extra={"error": str(error)})
            await asyncio.sleep(API_POLL_SECONDS)

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            logger.critical(
                "A part of the operator died, stopping", extra={"part": task.get_name()}, exc_info=task.exception()
            )
            self.failed = True
            self.stop.set()
