"""Writing to a file that a person names; every way to fail is one clear line."""

import os
from collections.abc import Iterable
from pathlib import Path

from projector.config.own.writing import write
from projector.errors import ConfigurationError, InputError
from projector.provenance import LoadedConfiguration


def export(path: Path, loaded: LoadedConfiguration, *, read: Iterable[Path], folder: Path | None) -> None:
    """Write a configuration in the project's own format, wholly or not at all.

    `read` are the files that were named, `folder` the one below which the configuration's own sources lie. Raises
    `InputError` where the file cannot be written and where it is one of those.
    """
    sources = {each.file for each in loaded.values.values() if each.file}
    inputs = [*read, *(folder / source for source in sources if folder is not None)]
    write_file(path, write(loaded), inputs=inputs, place=f"--export_config {path}")


def write_file(path: Path, text: str, *, inputs: Iterable[Path], place: str) -> None:
    """Write a text, wholly or not at all; raises `InputError` where it cannot be written or is one of the inputs."""
    try:
        path = path.expanduser().resolve()
        if any(_same(path, each) for each in inputs):
            expected = "another file: an input is never overwritten"
            raise ConfigurationError("is a file that was read", place=place, expected=expected)
        if not path.parent.is_dir():
            raise InputError(f"the folder {path.parent.name!r} does not exist", place=place)
        if path.exists() and not path.is_file():
            raise InputError("is no regular file", place=place, expected="the name of a file")
        _write(path, text)
    except (OSError, RuntimeError, ValueError) as error:  # no room or right; no home folder; a null byte
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"cannot be written: {reason}", place=place) from error


def _same(path: Path, other: Path) -> bool:
    """Whether both names lead to one file, links included."""
    try:
        return path.samefile(other)
    except OSError:
        return False


def _write(path: Path, text: str) -> None:
    """Put the text in place in one step, so that nobody reads half of it."""
    beside = path.with_name(f".projector-{os.getpid()}.tmp")
    try:
        with beside.open("x", encoding="utf-8") as file:
            file.write(text)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
