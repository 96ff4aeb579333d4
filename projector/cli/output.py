"""Standard output and standard error, whatever the caller has made of them."""

import os
import sys
from pathlib import Path

from projector.errors import InputError


def open_closed() -> None:
    """Give streams that the caller has closed (`>&-`) somewhere to go."""
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - lives as long as the process
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - as above


def discard() -> None:
    """Drop what standard output still holds; the interpreter flushes it once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write(answer: str) -> None:
    """Print; a terminal or pipe that is not UTF-8 gets escapes rather than no answer.

    Raises `InputError` where standard output cannot take it, such as a full disk, and `BrokenPipeError`.
    """
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(answer.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        discard()
        raise InputError(f"cannot be written: {error.strerror}", place="standard output") from error
