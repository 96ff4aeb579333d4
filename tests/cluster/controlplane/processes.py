"""The owner's side of `supervisor`: start components, notice that one died, await conditions, stop."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.cluster.controlplane import folders
from tests.cluster.controlplane import supervisor as supervisor_program
from tests.cluster.controlplane.errors import ControlPlaneError

LOG_TAIL_LINES = 25

POLL_SECONDS = 0.05
"""Pause between two looks at a condition that nothing announces."""

ANSWER_SECONDS = 10.0
"""How long the supervisor may take to answer."""

STOP_SECONDS = 20.0
"""How long stopping may take; killing four processes takes milliseconds."""


class ComponentDiedError(ControlPlaneError):
    """A component ended while it was needed; the message shows the end of its log."""


class Supervisor:
    """Runs components as children of a process that dies, with them, when this one does.

    The folder, its logs included, is removed at the end.
    """

    def __init__(self, folder: Path) -> None:
        """Start the supervising process, which takes over the lock of `folder`."""
        self.folder = folder
        self.ended: dict[str, int] = {}
        """Components that ended by themselves, with their exit codes."""
        self._received = b""
        self._detached = False
        self._reported = False
        with folders.taken(folder) as lock, (folder / "supervisor.log").open("wb") as log:
            self._process = subprocess.Popen(
                # -I and -S: neither the user's environment nor site packages reach it, and it starts faster.
                [sys.executable, "-I", "-S", supervisor_program.__file__, str(folder)],
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=[lock.fileno()],
                # Ctrl-C in the terminal reaches the owner only; it decides.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process id of the supervising process."""
        return self._process.pid

    def start(self, name: str, argv: Sequence[str]) -> None:
        """Start a component; its output goes to `<folder>/<name>.log`."""
        self._order({"start": name, "argv": list(argv)})

    def detach(self) -> None:
        """Let the components live on when this process ends, until the supervisor gets SIGTERM."""
        self._order({"detach": True})
        self.wait_until(lambda: self._detached, what="the supervisor to detach", seconds=ANSWER_SECONDS)

    def wait_until(self, condition: Callable[[], bool], *, what: str, seconds: float) -> None:
        """Wait until `condition` holds.

        Raises:
            ComponentDiedError: a component ended meanwhile.
            ControlPlaneError: it did not hold within `seconds`; the message shows the ends of all logs.
        """
        deadline = time.monotonic() + seconds
        while True:
            self._receive(POLL_SECONDS)
            self._check(f"while waiting for {what}")
            if condition():
                return
            if time.monotonic() > deadline:
                logs = "\n".join(self.log_tail(path.stem) for path in sorted(self.folder.glob("*.log")))
                raise ControlPlaneError(f"waited {seconds:g} s in vain for {what}\n{logs}")

    def check(self) -> None:
        """Raise ComponentDiedError if a component has ended by itself."""
        self._reported = False
        self._order({"report": True})
        deadline = time.monotonic() + ANSWER_SECONDS
        while not self._reported and time.monotonic() < deadline:
            self._receive(POLL_SECONDS)
        self._check("while it was needed")

    def log_tail(self, name: str) -> str:
        """Return the last lines of a component's log under a heading."""
        path = self.folder / f"{name}.log"
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        return "\n".join([f"--- end of {name}'s log", *lines[-LOG_TAIL_LINES:]])

    def stop(self) -> None:
        """Kill everything, remove the folder and return when that is done."""
        self._process.stdin.close()  # type: ignore[union-attr]
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            # The components die with it; the folder goes at the next sweep.
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()  # type: ignore[union-attr]

    def _check(self, circumstance: str) -> None:
        for name, code in self.ended.items():
            raise ComponentDiedError(f"{name} ended with {code} {circumstance}\n{self.log_tail(name)}")

    def _order(self, order: dict[str, object]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise ControlPlaneError(f"the supervisor is gone\n{self.log_tail('supervisor')}") from error

    def _receive(self, seconds: float) -> None:
        """Take in reports, waiting at most `seconds` for the first."""
        assert self._process.stdout is not None
        stream = self._process.stdout.fileno()
        if not select.select([stream], [], [], seconds)[0]:
            return
        received = os.read(stream, 65536)
        if not received:
            raise ControlPlaneError(f"the supervisor ended\n{self.log_tail('supervisor')}")
        *lines, self._received = (self._received + received).split(b"\n")
        for line in lines:
            event = json.loads(line)
            if "ended" in event:
                self.ended[event["ended"]] = event["code"]
            self._detached |= "detached" in event
            self._reported |= "reported" in event
