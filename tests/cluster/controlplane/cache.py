"""The folder outside the clone where programs are kept, and the lock that guards it."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Say = Callable[[str], None]
"""Receives one line of progress."""


def cache_folder() -> Path:
    """Return `$XDG_CACHE_HOME/projection-operator`, or the same under `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The specification of base directories has relative values ignored.
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    return root / "projection-operator"


@contextmanager
def locked(folder: Path, say: Say) -> Iterator[None]:
    """Hold the lock of `folder`, so that two test runs never make the same thing twice.

    The kernel drops the lock when its holder dies, so a lock is never stale.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is filling {folder}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def filled_atomically(target: Path) -> Iterator[Path]:
    """Give a scratch folder that becomes `target` if the block succeeds, and vanishes if not.

    Call it under `locked`: a scratch folder that a killed process left behind is removed.
    """
    prefix = f".making-{target.name}-"
    for stale in target.parent.glob(f"{prefix}*"):
        shutil.rmtree(stale, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    try:
        yield scratch
        scratch.chmod(0o755)
        scratch.rename(target)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
