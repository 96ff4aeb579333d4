"""Reading files below one folder and nowhere else.

Configuration files name other files (`extends`, presets). `Files` resolves such names, symbolic links included, and
refuses whatever leaves its root, is not a regular file, or is larger than `MAXIMUM_BYTES`.
"""

from pathlib import Path, PurePosixPath
from typing import NamedTuple

from projector.errors import ConfigurationError, ConfigurationTooLarge, shown

MAXIMUM_BYTES = 5 * 1024 * 1024
"""Largest configuration file that is read: 5 MiB; the largest public recipe has 12 KiB."""


def check_size(size_bytes: int, *, name: str) -> None:
    """Raise `ConfigurationTooLarge` when a file or text has more than `MAXIMUM_BYTES`."""
    if size_bytes > MAXIMUM_BYTES:
        message = f"larger than {MAXIMUM_BYTES // 1024**2} MiB"
        expected = "a configuration file; the largest public recipe has 12 KiB"
        raise ConfigurationTooLarge(message, place=name, expected=expected)


def decoded(data: bytes | str, *, name: str) -> str:
    """The text of a file, without a byte order mark.

    Raises `ConfigurationTooLarge` beyond `MAXIMUM_BYTES`, `ConfigurationError` for what is not UTF-8.
    """
    if isinstance(data, str):
        check_size(len(data) if data.isascii() else len(data.encode("utf-8", "surrogatepass")), name=name)
        return data.removeprefix("\ufeff")
    check_size(len(data), name=name)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"not UTF-8 text at byte {error.start}", place=name) from None


class Files(NamedTuple):
    """The regular files below `root`."""

    root: Path
    """The folder that nothing read through this object lies outside of."""

    def locate(self, name: str, *, beside: Path | None = None, place: str) -> Path:
        """The file that a name means, relative to the file `beside` or to the root.

        `place` says where the name stands. Raises `ConfigurationError` when it leads outside the root or is no file.
        """
        path = self.inside(name, beside=beside, place=place)
        if not is_file(path):
            base = self.label(beside.parent if beside is not None else self.root.resolve())
            raise ConfigurationError(f"there is no file {shown(name)} in {base}", place=place)
        return path

    def inside(self, name: str, *, beside: Path | None = None, place: str) -> Path:
        """The path that a name means, whether or not it exists; raises `ConfigurationError` when outside the root."""
        root = self.root.resolve()
        base = beside.parent if beside is not None else root
        if "\0" in name:
            raise ConfigurationError(f"{shown(name)} is not a file name", place=place)
        try:
            path = (base / name).resolve()
        except (OSError, RuntimeError) as error:  # a name too long; links in a circle, before Python 3.13
            raise ConfigurationError(f"{shown(name)} leads nowhere", place=place) from error
        if not path.is_relative_to(root):
            message = f"{shown(name)} leads outside {self.label(root)}"
            raise ConfigurationError(message, place=place, expected="name a file inside that folder")
        return path

    def read(self, path: Path) -> bytes:
        """The bytes of a located file; raises `ConfigurationTooLarge` beyond `MAXIMUM_BYTES`."""
        try:
            with path.open("rb") as file:
                data = file.read(MAXIMUM_BYTES + 1)
        except OSError as error:
            raise ConfigurationError(f"cannot be read: {error.strerror}", place=self.label(path)) from error
        check_size(len(data), name=self.label(path))
        return data

    def label(self, path: Path) -> str:
        """The path relative to the root, for messages and provenance; the root's own name for the root."""
        root = self.root.resolve()
        if path == root:
            return f"the folder {root.name!r}"
        return str(PurePosixPath(path.relative_to(root))) if path.is_relative_to(root) else path.name


def is_file(path: Path) -> bool:
    """Whether a regular file is there; a name that the system cannot hold is none."""
    try:
        return path.is_file()
    except OSError:
        return False
