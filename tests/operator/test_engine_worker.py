"""The engine's process by itself, as it is when whoever started it does not behave."""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from projection_operator.engine_protocol import HEADER, Reply
from projection_operator.engine_worker import GRACE_SECONDS
from projector.api import Question
from tests.operator.builders import projection

PATIENCE_SECONDS = 60.0
"""How long a process may take on a busy machine; nothing is measured against it."""


@contextmanager
def worker(behaviour: str, *, ends_after_seconds: float = PATIENCE_SECONDS) -> Iterator["subprocess.Popen[bytes]"]:
    entry, seconds = f"tests.operator.engines:{behaviour}", ends_after_seconds - GRACE_SECONDS
    command = [sys.executable, "-m", "projection_operator.engine_worker", entry, str(seconds), str(512 << 20)]
    environment = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def ask(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None
    content = pickle.dumps(Question(text=""))
    process.stdin.write(HEADER.pack(len(content)) + content)
    process.stdin.flush()


def reply_of(process: "subprocess.Popen[bytes]") -> Reply:
    assert process.stdout is not None
    (length,) = HEADER.unpack(process.stdout.read(HEADER.size))
    reply = pickle.loads(process.stdout.read(length))  # noqa: S301 - from our own child
    assert isinstance(reply, Reply)
    return reply


def test_a_run_that_nobody_stops_ends_by_itself() -> None:
    with worker("hanging", ends_after_seconds=0.2) as process:
        ask(process)
        assert process.wait(PATIENCE_SECONDS) == -signal.SIGALRM


def test_an_interrupt_of_the_terminal_is_left_to_the_operator() -> None:
    with worker("answering") as process:
        for _ in range(2):
            ask(process)
            assert reply_of(process).result == projection()
            process.send_signal(signal.SIGINT)


def test_it_ends_with_its_standard_input() -> None:
    with worker("answering") as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(PATIENCE_SECONDS) == 0
