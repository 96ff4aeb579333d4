"""Carries out what `reconcile` decides: reads the cluster, runs the engine, writes the answers.

Each look at a request starts from the object as the API server has it now, never from memory, so it does not matter
why the request was queued or what was missed before.
"""

import asyncio
import base64
import dataclasses
import logging
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from projection_operator.api.conditions import ConditionType, condition_of
from projection_operator.api.names import ANSWER_HASH_ANNOTATION, API_VERSION, KIND, REPORT_LABELS, Key
from projection_operator.api.spec import Request, parse_request
from projection_operator.cluster.client import ApiClient, ApiError, Conflict, NotFound
from projection_operator.cluster.events import emit
from projection_operator.cluster.inventory import Inventory
from projection_operator.cluster.mergepatch import merge_patch
from projection_operator.cluster.resources import CONFIG_MAPS, REQUESTS
from projection_operator.engine import Engine
from projection_operator.logs import about
from projection_operator.metrics.operator import OperatorMetrics
from projection_operator.queue import WorkQueue
from projection_operator.reconcile import (
    Action,
    ApplyReport,
    ConfigMapContent,
    DeleteRequest,
    EmitEvent,
    Observed,
    PatchStatus,
    Project,
    Requeue,
    reconcile,
)
from projection_operator.reconcile.report import report_name
from projection_operator.store import Store
from projection_operator.version import version

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Controller:
    """Works on requests, one look at a time."""

    client: ApiClient
    """The API server."""
    inventory: Inventory
    """The nodes."""
    engine: Engine
    """Answers questions."""
    store: Store
    """The living requests."""
    queue: WorkQueue
    """What to look at."""
    metrics: OperatorMetrics
    """Counts."""
    primus_root: Path | None
    """Presets that configurations may use."""
    instance: str
    """This process, in Events."""

    async def work(self) -> None:
        """Take keys from the queue, for ever."""
        while True:
            key = await self.queue.get()
            try:
                with about(key):
                    await self._look(key)
            finally:
                self.queue.done(key)

    async def _look(self, key: Key) -> None:
        """One look, counted and timed; what fails is tried again later."""
        started = time.monotonic()
        try:
            result = await self.look_at(key)
            self.queue.succeeded(key)
        except Conflict as error:
            # Somebody changed the object meanwhile: decide again about what it is now.
            logger.info("Changed meanwhile, looking again", extra={"error": str(error)})
            result = "unchanged"
            self.queue.add(key)
        except NotFound as error:
            # The request was deleted during the look, which the next one will find; or its namespace is going.
            logger.info("Gone meanwhile, looking again", extra={"error": str(error)})
            result = "gone"
            self.queue.add_after_failure(key)
        except ApiError as error:
            result = self._failed(key)
            logger.warning("The API server refused, trying again later", extra={"error": str(error)})
        except Exception:
            result = self._failed(key)
            logger.exception("Failed, trying again later")
        self.metrics.reconciled.labels(result).inc()
        self.metrics.seconds.observe(time.monotonic() - started)

    def _failed(self, key: Key) -> str:
        self.metrics.errors.inc()
        self.queue.add_after_failure(key)
        return "error"

    async def look_at(self, key: Key) -> str:
        """Bring one request to where it should be; returns how it ended, as `metrics.operator.RESULTS` has it."""
        try:
            body = await self.client.get(REQUESTS, key.namespace, key.name)
        except NotFound:
            self.store.remove(key)
            self.queue.forget(key)
            return "gone"
        self.store.put(body)
        request = parse_request(body)
        observed = await self._observe(request)
        changed = False
        while True:
            work: Project | None = None
            for action in self._decide(request, observed):
                if isinstance(action, Project):
                    work = action
                else:
                    request = await self._carry_out(action, request)
                    changed = changed or not isinstance(action, Requeue)
            if work is None:
                return "changed" if changed else "unchanged"
            observed = dataclasses.replace(observed, answer=await self.engine.answer(work))

    def _decide(self, request: Request, observed: Observed) -> list[Action]:
        now = datetime.now(UTC)
        return reconcile(request, observed, now, primus_root=self.primus_root, engine_version=version())

    async def _observe(self, request: Request) -> Observed:
        names = sorted(request.config_maps)
        contents = await asyncio.gather(*(self._config_map(request.key.namespace, name) for name in names))
        return Observed(
            config_maps=dict(zip(names, contents, strict=True)),
            node_products=None if request.target.device else await self.inventory.products(request.node_selector),
            report_hash=await self._report_hash(request) if "reportRef" in request.status else None,
        )

    async def _config_map(self, namespace: str, name: str) -> ConfigMapContent | None:
        try:
            body = await self.client.get(CONFIG_MAPS, namespace, name)
        except NotFound:
            return None
        binary = {key: base64.b64decode(text) for key, text in (body.get("binaryData") or {}).items()}
        return ConfigMapContent(data=body.get("data") or {}, binary=binary)

    async def _report_hash(self, request: Request) -> str | None:
        try:
            report = await self.client.get_metadata(CONFIG_MAPS, request.key.namespace, report_name(request))
        except NotFound:
            return None
        annotations: Mapping[str, str] = report["metadata"].get("annotations") or {}
        return annotations.get(ANSWER_HASH_ANNOTATION)

    async def _carry_out(self, action: Action, request: Request) -> Request:
        """Do one thing; returns the request as it is afterwards."""
        match action:
            case PatchStatus(status=status):
                return await self._patch_status(request, status)
            case ApplyReport() as report:
                body = report_body(request, report)
                await self.client.apply(CONFIG_MAPS, request.key.namespace, body)
            case EmitEvent() as event:
                await emit(self.client, request, event, instance=self.instance, now=datetime.now(UTC))
            case DeleteRequest():
                logger.info("Deleting: its time after completion is over")
                conditions = {"uid": request.uid, "resourceVersion": request.resource_version}
                await self.client.delete(REQUESTS, request.key.namespace, request.key.name, preconditions=conditions)
            case Requeue(after_seconds=seconds):
                self.queue.add_after(request.key, seconds)
            case Project():
                raise AssertionError("questions are the engine's")
        return request

    async def _patch_status(self, request: Request, status: Mapping[str, Any]) -> Request:
        patch = {
            "metadata": {"uid": request.uid, "resourceVersion": request.resource_version},
            "status": merge_patch(request.status, status),
        }
        name = request.key.name
        body = await self.client.merge(REQUESTS, request.key.namespace, name, patch, subresource="status")
        self.store.put(body)
        completed = condition_of(status, ConditionType.COMPLETED)
        logger.info("Status written", extra={"completed": completed["status"], "reason": completed["reason"]})
        return parse_request(body)


def report_body(request: Request, report: ApplyReport) -> dict[str, Any]:
    """The ConfigMap of a report, owned by its request."""
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": request.key.name, "uid": request.uid, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": report.name,
            "namespace": request.key.namespace,
            "labels": {**REPORT_LABELS, "app.kubernetes.io/instance": report.name},
            "annotations": {ANSWER_HASH_ANNOTATION: report.answer_hash},
            "ownerReferences": [owner],
        },
        "data": dict(report.data),
    }
