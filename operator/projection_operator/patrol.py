"""Goes round regularly: checks the watches against lists, and has everything looked at again.

What a watch missed is queued from the list, so the operator goes on answering, late, even while a watch is deaf.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from projection_operator.api.names import CONFIG_SELECTOR, Key
from projection_operator.cluster.client import ApiClient, ApiError
from projection_operator.cluster.resources import CONFIG_MAPS, REQUESTS, Resource
from projection_operator.freshness import Freshness
from projection_operator.options import Options
from projection_operator.queue import WorkQueue
from projection_operator.store import Store

logger = logging.getLogger(__name__)


class Patrol:
    """The regular round."""

    def __init__(self, client: ApiClient, store: Store, queue: WorkQueue, options: Options) -> None:
        """Nothing has been checked yet."""
        self._client = client
        self._store = store
        self._queue = queue
        self._options = options
        self._resync_due = 0.0
        self.requests = Freshness()
        self.config_maps = Freshness()
        self.rounds = 0
        """Rounds that succeeded."""

    def lag_seconds(self) -> float:
        """How long the watches have been missing something, 0 when they are not."""
        now = time.monotonic()
        return max(self.requests.lag_seconds(now), self.config_maps.lag_seconds(now))

    async def run(self) -> None:
        """Go round for ever."""
        while True:
            try:
                await self.go_round()
            except ApiError as error:
                logger.warning("The API server does not answer lists, going on", extra={"error": str(error)})
            await asyncio.sleep(self._options.probe_seconds)

    async def go_round(self) -> None:
        """One round."""
        listed, unseen = await self._check(REQUESTS, self.requests, "")
        gone = self._store.keys() - listed.keys()
        for key in (*unseen, *gone):
            self._queue.add(key)
        _, unseen = await self._check(CONFIG_MAPS, self.config_maps, CONFIG_SELECTOR)
        for config_map in unseen:
            for key in self._store.depending_on(config_map):
                self._queue.add(key)
        if time.monotonic() >= self._resync_due:
            self._resync_due = time.monotonic() + self._options.resync_seconds
            for key in listed:
                self._queue.add(key)
        self.rounds += 1

    async def _check(
        self, resource: Resource, freshness: Freshness, labels: str
    ) -> tuple[Mapping[Key, str], list[Key]]:
        began = time.monotonic()
        versions: dict[Key, str] = {}
        for namespace in self._options.namespaces or (None,):
            async for item in self._client.list_metadata(resource, namespace, labels=labels):
                metadata: dict[str, Any] = item["metadata"]
                versions[Key(metadata["namespace"], metadata["name"])] = metadata["resourceVersion"]
        return versions, freshness.listed(versions, began=began, now=time.monotonic())
