"""The scratch folder of a running control plane: where it lies, who holds it, when it is stale.

A folder belongs to the process that holds the lock on its `lock` file. The kernel drops that lock when the
process dies, however it dies, so a folder whose lock is free has no owner.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.cluster.controlplane.errors import UnavailableError

MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - a tmpfs; every folder in it is made by mkdtemp
NEEDED_BYTES = 512 * 1024**2
"""What must be free in memory: etcd preallocates 64 MB of log twice and grows by some 100 MB in a test session."""

TAKEN = "taken"
"""Written into the lock file once it is locked, so that a folder which is just being made does not look stale."""

JUST_MADE_SECONDS = 60.0
"""Age up to which a folder that was never locked may still be about to be."""


def _prefix() -> str:
    return f"projection-control-plane-{os.getuid()}-"


def _parents() -> Iterator[Path]:
    if MEMORY_FOLDER.is_dir() and os.access(MEMORY_FOLDER, os.W_OK):
        yield MEMORY_FOLDER
    yield Path(tempfile.gettempdir())


def make_folder() -> Path:
    """Return a new folder that only this user can enter, in memory where there is room.

    Raises:
        UnavailableError: there is no room anywhere.
    """
    for parent in _parents():
        if shutil.disk_usage(parent).free > NEEDED_BYTES:
            return Path(tempfile.mkdtemp(prefix=_prefix(), dir=parent))
    looked_at = " or ".join(str(parent) for parent in _parents())
    raise UnavailableError(
        f"a control plane needs {NEEDED_BYTES >> 20} MiB free in {looked_at}: make room or set TMPDIR"
    )


@contextmanager
def taken(folder: Path) -> Iterator[IO[str]]:
    """Take the lock of a new folder and give the open file; whoever inherits it holds the lock."""
    with _lock_file(folder).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(TAKEN)
        lock.flush()
        yield lock


def _lock_file(folder: Path) -> Path:
    return folder / "lock"


def owned_folders() -> list[Path]:
    """Return the folders of this user's control planes, running or stale."""
    found = (path for parent in _parents() for path in parent.glob(f"{_prefix()}*"))
    return sorted(path for path in found if not path.is_symlink() and path.stat().st_uid == os.getuid())


def is_running(folder: Path) -> bool:
    """Tell whether the supervisor of `folder` lives, or is about to."""
    try:
        with _lock_file(folder).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock.read() == TAKEN:
                return False
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    with contextlib.suppress(FileNotFoundError):
        return time.time() - folder.stat().st_mtime < JUST_MADE_SECONDS
    return False


def sweep() -> None:
    """Remove the folders of control planes whose supervisor was killed."""
    for folder in owned_folders():
        if not is_running(folder):
            shutil.rmtree(folder, ignore_errors=True)
