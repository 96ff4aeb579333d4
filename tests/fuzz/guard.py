"""What a reader must not do while it reads, made impossible: it then fails where it tries."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import NoReturn

import projector

_FORBIDDEN = (
    "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "subprocess.Popen", "socket.",
    "os.putenv", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.chdir", "shutil.", "ctypes.", "pty.", "urllib.",
    "glob.", "os.kill", "os.symlink", "os.link", "os.chmod", "os.truncate",
)  # fmt: skip
"""Audit events (docs.python.org/3/library/audit_events.html), or their beginnings, that no reader has a use for."""


class ForbiddenError(BaseException):
    """Something was tried that reading a file must never do; no reader can catch it by accident."""


class _NoEnvironment(dict[str, str]):
    """Stands in for the environment of the process: nobody may look at it."""

    def _refuse(self, *_: object) -> NoReturn:
        raise ForbiddenError("looked at the environment of the process")

    __getitem__ = get = __contains__ = __iter__ = keys = items = values = copy = _refuse


def forbid(*, root: Path) -> None:
    """From now on only files of `root`, of the package and of Python's libraries may be opened, and nothing executed.

    It cannot be taken back, so that it belongs into a process of its own.
    """
    package = Path(projector.__file__).parent
    folders = (str(root), str(package), sys.prefix, sys.base_prefix, *_library())
    allowed = tuple(os.path.realpath(folder) for folder in folders)

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if event.startswith(_FORBIDDEN):
            raise ForbiddenError(f"{event} {arguments!r}")
        if event in {"open", "os.listdir", "os.scandir"} and not _inside(arguments[0], allowed):
            raise ForbiddenError(f"{event} {arguments[0]!r}")
        if event == "exec" and isinstance(arguments[0], CodeType) and not _module(arguments[0].co_filename, allowed):
            raise ForbiddenError(f"executed code of {arguments[0].co_filename!r}")

    sys.addaudithook(watch)
    os.environ = _NoEnvironment()  # type: ignore[assignment]  # noqa: B003 - nothing is to be cleared


def _library() -> Iterator[str]:
    yield from (entry for entry in sys.path if entry.endswith("site-packages"))
    yield str(Path(os.__file__).parent)


def _inside(path: object, allowed: tuple[str, ...]) -> bool:
    """Whether a path lies in an allowed folder; an open file's number does."""
    if isinstance(path, int):
        return True
    real = os.path.realpath(os.fsdecode(path if isinstance(path, str | bytes | os.PathLike) else os.curdir))
    return any(real == folder or real.startswith(f"{folder}{os.sep}") for folder in allowed)


def _module(file: str, allowed: tuple[str, ...]) -> bool:
    return file.startswith("<frozen ") or _inside(file, allowed)
