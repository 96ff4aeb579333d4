"""Control planes that `up` leaves running: start, list, stop."""

import json
import os
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.cluster.controlplane import folders
from tests.cluster.controlplane.binaries import Binaries
from tests.cluster.controlplane.errors import ControlPlaneError
from tests.cluster.controlplane.plane import start

CHECKOUT = Path(__file__).resolve().parents[3]
"""The clone this package lies in; `down` stops only what was started from it."""

STOP_SECONDS = 20.0
POLL_SECONDS = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class Detached:
    """A control plane that runs until it is stopped."""

    name: str
    """Tells it from others; part of its folder's name."""
    url: str
    """Base address of the API server."""
    kubeconfig: str
    """Path of the administrator's kubeconfig."""
    checkout: str
    """The clone it was started from."""
    supervisor_pid: int
    """Process that owns the components."""

    @property
    def folder(self) -> Path:
        """Its scratch folder."""
        return Path(self.kubeconfig).parent


def start_detached(binaries: Binaries) -> Detached:
    """Start a control plane that outlives this process.

    Raises:
        ControlPlaneError: it did not start.
    """
    running = start(binaries)
    plane = running.plane
    detached = Detached(
        name=plane.folder.name.rpartition("-")[2],
        url=plane.url,
        kubeconfig=str(plane.kubeconfig),
        checkout=str(CHECKOUT),
        supervisor_pid=running.supervisor.pid,
    )
    _record(plane.folder).write_text(json.dumps(asdict(detached)))
    running.supervisor.detach()
    return detached


def running_detached() -> list[Detached]:
    """Return this user's detached control planes, of whatever clone."""
    records = [_record(folder) for folder in folders.owned_folders() if folders.is_running(folder)]
    return [Detached(**json.loads(record.read_text())) for record in records if record.exists()]


def stop(detached: Detached) -> None:
    """Stop a control plane; returns when all of it is gone.

    Raises:
        ControlPlaneError: it did not stop.
    """
    # The supervisor holds its lock, so it lives and the process id is still its own.
    os.kill(detached.supervisor_pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while folders.is_running(detached.folder):
        if time.monotonic() > deadline:
            raise ControlPlaneError(f"control plane {detached.name}: process {detached.supervisor_pid} does not stop")
        time.sleep(POLL_SECONDS)


def _record(folder: Path) -> Path:
    return folder / "detached.json"
