"""`extends`: a file lies on top of the files that it names, each of them read by the same rules."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from projector.config.files import Files
from projector.config.safe_yaml import parse_mapping
from projector.config.tree import Tree, build, merge
from projector.errors import ConfigurationError, ConfigurationTooLarge, shown
from projector.provenance import ConfigValue, Source

MAXIMUM_FILES = 64
"""Files that one configuration may bring together; the longest public chain has 9."""


@dataclass(slots=True)
class Extender:
    """Reads files and what they extend; one object per chain, so that no file is read twice."""

    files: Files | None
    """Where extended files may lie; None allows no `extends` at all."""
    source: Source
    """Who counts as the author of the values."""
    variables: Mapping[str, str]
    """Values for `${VAR}`."""
    _done: dict[Path, Tree] = field(default_factory=dict)
    _open: list[Path] = field(default_factory=list)

    def file(self, path: Path) -> Tree:
        """The resolved values of a located file.

        Raises `ConfigurationError` for a cycle or anything wrong in a file, `ConfigurationTooLarge` for too many files.
        """
        if self.files is None:
            raise ConfigurationError("files cannot be read here", place=path.name)
        if path in self._done:
            return self._done[path]
        label = self.files.label(path)
        if path in self._open:
            chain = " -> ".join(self.files.label(opened) for opened in [*self._open, path])
            raise ConfigurationError(f"extends itself: {chain}", place=label)
        if len(self._done) + len(self._open) >= MAXIMUM_FILES:
            raise ConfigurationTooLarge(f"brings together more than {MAXIMUM_FILES} files", place=label)
        self._open.append(path)
        tree = self.text(self.files.read(path), name=label, path=path)
        self._open.pop()
        self._done[path] = tree
        return tree

    def text(self, data: bytes | str, *, name: str, path: Path | None = None) -> Tree:
        """The resolved values of a text; `path` is its file, beside which `extends` looks, else the root."""
        tree = build(parse_mapping(data, name=name), source=self.source, file=name, variables=self.variables)
        below: Tree = {}
        for extended in _extended(tree, name):
            if self.files is None:
                expected = "write the values into the text itself"
                message = f"{shown(extended)} cannot be read from here"
                raise ConfigurationError(message, place=f"{name}: extends", expected=expected)
            located = self.files.locate(extended, beside=path, place=f"{name}: extends")
            below = merge(below, self.file(located))
        tree.pop("extends", None)
        return merge(below, tree)


def _extended(tree: Tree, name: str) -> list[str]:
    stated = tree.get("extends")
    if stated is None:
        return []
    value = stated.value if isinstance(stated, ConfigValue) else stated
    items: list[object] = value if isinstance(value, list) else [] if value is None else [value]
    names = [item for item in items if isinstance(item, str)]
    if len(names) < len(items):
        stranger = next(item for item in items if not isinstance(item, str))
        what = "a mapping" if isinstance(stranger, dict) else shown(stranger)
        raise ConfigurationError(f"{what} is not a file name", place=f"{name}: extends", expected="file names")
    return names
