"""Schedules as a trace that chrome://tracing and Perfetto show.

The format is Chromium's Trace Event Format (docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU):
complete events (`X`) with start and duration in microseconds, and metadata (`M`) that names processes and threads.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from projector.schedule import Kind, Replay

_MICROSECONDS = 1e6
"""Microseconds of a second."""
_KINDS = {Kind.F: "forward", Kind.B: "backward", Kind.W: "weight gradient"}
_COLOURS = {Kind.F: "thread_state_running", Kind.B: "thread_state_runnable", Kind.W: "thread_state_iowait"}
"""Names of colours that the viewer reserves."""


def trace(runs: Mapping[str, Replay]) -> str:
    """The trace of some runs by name: a process for each, a thread for each stage."""
    events = [event for process, (name, run) in enumerate(runs.items()) for event in _run(process, name, run)]
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events}, allow_nan=False) + "\n"


def _run(process: int, name: str, run: Replay) -> Iterator[dict[str, Any]]:
    yield _metadata("process_name", process, 0, name=name)
    for rank, events in enumerate(run.order.ranks):
        yield _metadata("thread_name", process, rank, name=f"stage {rank}")
        yield _metadata("thread_sort_index", process, rank, sort_index=rank)
        for event, start, end in zip(events, run.timeline.starts[rank], run.timeline.ends[rank], strict=True):
            yield {
                "name": f"{event.kind}{event.micro_batch}",
                "cat": _KINDS[event.kind],
                "ph": "X",
                "pid": process,
                "tid": rank,
                "ts": start * _MICROSECONDS,
                "dur": (end - start) * _MICROSECONDS,
                "cname": _COLOURS[event.kind],
                "args": {"micro_batch": event.micro_batch, "chunk": event.chunk},
            }


def _metadata(kind: str, process: int, thread: int, **told: object) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": told}
