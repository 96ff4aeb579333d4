"""The process in which the engine runs: questions come in on standard input, replies go out on standard output.

Started by `engine` as `python -m projection_operator.engine_worker ENTRY SECONDS MEMORY_BYTES`. It ends with its
standard input, that is with whoever started it.
"""

import importlib
import os
import pickle
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from projection_operator.engine_protocol import HEADER, Reply
from projection_operator.reconcile.observed import EngineFailure, Refusal, Result
from projector.errors import InputError

if TYPE_CHECKING:
    from projector.api import Question
    from projector.projection import Projection

SPENT_BYTES = 64 << 20
"""Resident size, once reached, from which a process is not used again; an ordinary one stays below 40 MiB."""

GRACE_SECONDS = 5.0
"""How long after the deadline, which the other side keeps, this process ends by itself should nobody be there."""


def main(entry: str, seconds: float, memory_bytes: int) -> None:
    """Answer until standard input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    # Replies have a descriptor of their own: whatever is printed goes to the log.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # The one who started this process decides when it ends; Ctrl-C in a terminal reaches both.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    module, _, name = entry.partition(":")
    project = getattr(importlib.import_module(module), name)
    while header := sys.stdin.buffer.read(HEADER.size):
        question = pickle.loads(sys.stdin.buffer.read(*HEADER.unpack(header)))  # noqa: S301 - from our own parent
        signal.setitimer(signal.ITIMER_REAL, seconds + GRACE_SECONDS)
        reply = pickle.dumps(answer(project, question))
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        replies.write(HEADER.pack(len(reply)) + reply)
        replies.flush()


def answer(project: "Callable[[Question], Projection]", question: "Question") -> Reply:
    """Run the engine once."""
    # Made beforehand: while the exception lives, so does what filled the memory, and nothing more can be made.
    result: Result = EngineFailure(summary="MemoryError")
    out_of_memory = False
    try:
        result = project(question)
    except InputError as error:
        result = Refusal.of(error)
    except MemoryError:
        out_of_memory = True
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the other side's to tell
        summary = f"{type(error).__name__}: {error}".splitlines()[0]
        result = EngineFailure(summary=summary, details=traceback.format_exc())
    return Reply(result=result, out_of_memory=out_of_memory, spent=_peak_bytes() > SPENT_BYTES)


def _peak_bytes() -> int:
    """Largest resident size of this program so far (proc_pid_status(5), VmHWM).

    Not getrusage(2): its `ru_maxrss` survives execve and begins at the size of the process that started this one.
    """
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
