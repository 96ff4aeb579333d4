"""Finding a catalog file by any of its names, without reading the others.

A file's own name, normalised, is the fast way. Otherwise the `aliases` line of every file is looked at, without a
parser of YAML: by convention it is one line of names, `aliases: [one, other]`, to which the tests hold it.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_ALIASES = re.compile(rb"^aliases: *\[([^\]]*)\]", re.MULTILINE)


def normalised(name: str) -> str:
    """Fold case, and spaces and underscores to hyphens: `AMD_Instinct_MI300X_OAM` -> `amd-instinct-mi300x-oam`."""
    return re.sub(r"[\s_]+", "-", name.strip().lower())


def find(folder: Path, name: str) -> Path | None:
    """The file of `folder` that is called `name`, by its own name or an alias; None when there is none."""
    wanted = normalised(name)
    return _files(folder).get(wanted) or _aliases(folder).get(wanted)


def stems(folder: Path) -> tuple[str, ...]:
    """Names of the files, sorted."""
    return tuple(sorted(_files(folder)))


def known_names(folder: Path) -> tuple[str, ...]:
    """Every name that `find` accepts, normalised and sorted."""
    return tuple(sorted({*_files(folder), *_aliases(folder)}))


@cache
def _files(folder: Path) -> dict[str, Path]:
    return {path.stem: path for path in folder.glob("*.yaml")}


@cache
def _aliases(folder: Path) -> dict[str, Path]:
    return {normalised(alias): path for path in _files(folder).values() for alias in aliases_of(path)}


def aliases_of(path: Path) -> Iterator[str]:
    """The aliases that a file's `aliases: [...]` line states."""
    line = _ALIASES.search(path.read_bytes())
    if line is not None:
        yield from (alias.strip(" '\"\n") for alias in line[1].decode().split(","))
