"""Logs as one JSON object a line; those about a request carry its key under `request`."""

import contextlib
import json
import logging
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from projection_operator.api.names import Key

_current: ContextVar[Key | None] = ContextVar("current_request", default=None)
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_KOPF = frozenset({"settings", "k8s_skip", "k8s_ref"})
"""What kopf hangs on its records (kopf/_core/actions/loggers.py)."""


@contextlib.contextmanager
def about(key: Key) -> Iterator[None]:
    """Everything that is logged in the block is about this request."""
    token = _current.set(key)
    try:
        yield
    finally:
        _current.reset(token)


class JsonFormatter(logging.Formatter):
    """Formats a record as JSON: fixed fields first, then whatever the caller gave as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        request = _request(record)
        if request is not None:
            entry["request"] = request
        extra = {name: value for name, value in vars(record).items() if name not in _STANDARD | _KOPF}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry | extra, default=str)


def _request(record: logging.LogRecord) -> str | None:
    key = _current.get()
    if key is not None:
        return str(key)
    reference = getattr(record, "k8s_ref", None)
    return f"{reference['namespace']}/{reference['name']}" if reference else None


def configure(level: str) -> None:
    """Send every logger of the process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Line by line HTTP access and connection noise says nothing that the API client does not say better.
    for noisy in ("aiohttp.access", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # kopf tells each call of a handler; ours only put keys into a queue.
    if level != "debug":
        logging.getLogger("kopf.objects").setLevel(logging.WARNING)
