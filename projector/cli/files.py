"""Reading the files that a person names on the command line; every way to fail is one clear line."""

from pathlib import Path

from projector.config.files import MAXIMUM_BYTES, check_size
from projector.errors import ConfigurationError, shown


def read_text(path: Path) -> str:
    """The text of a file; pipes work too.

    Raises `ConfigurationError` when it is missing, a folder, unreadable, empty, binary or not UTF-8, and
    `ConfigurationTooLarge` beyond the loader's limit.
    """
    place = str(path)
    try:
        with path.open("rb") as file:
            content = file.read(MAXIMUM_BYTES + 1)
    except FileNotFoundError as error:
        raise ConfigurationError("there is no such file", place=place, expected=_neighbours(path)) from error
    except IsADirectoryError as error:
        raise ConfigurationError("is a folder", place=place, expected="name a file in it") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigurationError(f"cannot be read: {reason}", place=place) from error
    check_size(len(content), name=place)
    if not content.strip():
        raise ConfigurationError("is empty", place=place, expected="a file with content")
    if b"\0" in content:
        raise ConfigurationError("is not a text file", place=place, expected="UTF-8 text")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"is not UTF-8: byte {content[error.start]:#04x} at offset {error.start}"
        raise ConfigurationError(message, place=place, expected="UTF-8 text") from error


def folder(text: str) -> Path:
    """A folder that exists."""
    try:
        path = Path(text).expanduser()
        found = path.is_dir()
    except (OSError, RuntimeError):  # a name too long; no home folder
        found = False
    if not found:
        raise ConfigurationError(f"{shown(text)} is not a folder", expected="an existing folder")
    return path


def folders_of_yaml(text: str) -> tuple[Path, ...]:
    """The YAML files of folders, whose names stand between commas or semicolons."""
    names = [name.strip() for name in text.replace(";", ",").split(",") if name.strip()]
    found = (path for name in names for path in sorted(folder(name).iterdir()) if path.suffix in {".yaml", ".yml"})
    return tuple(found)


def _neighbours(path: Path) -> str:
    """The most similar file name beside a missing one, as a hint."""
    from difflib import get_close_matches  # noqa: PLC0415 - for complaints alone

    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return f"the folder {str(path.parent)!r} does not exist either"
    found = get_close_matches(path.name, names, n=1)
    return f"did you mean {path.with_name(found[0])}?" if found else ""
