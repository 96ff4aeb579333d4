"""Typed reading of the catalog's YAML files: one mapping at a time, with complaints that name file and key.

A *fact* is a mapping `{value: ..., source: TAG}` with an optional `status` (`estimated`, or `assumed`) and `why`.
Reading takes the value and keeps the rest as `Provenance`, so that consumers get plain numbers and reports can still
say where each comes from.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import yaml

from projector.errors import ConfigurationError, shown

_Loader: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Scalar = TypeVar("_Scalar", int, float, str, bool)
_Choice = TypeVar("_Choice", bound=StrEnum)


@dataclass(frozen=True, kw_only=True, slots=True)
class Provenance:
    """Where a fact comes from."""

    source: str
    """Tag of the citation in `sources.yaml`."""
    estimated: bool = False
    """Nobody measured or published this value for this part; `why` says how it was reached."""
    assumed: bool = False
    """An estimate that no published run of this part checks: answers that rest on it say so."""
    why: str = ""
    """How an estimate was reached, or what to know about the value; empty for none."""


def read_mapping(path: Path) -> Mapping[str, object]:
    """Parse one of the catalog's YAML files, which holds a mapping.

    Raises `ConfigurationError` when it does not. The files ship with the package and are trusted.
    """
    content = yaml.load(path.read_bytes(), Loader=_Loader)  # noqa: S506 - a safe loader
    if not isinstance(content, dict):
        raise ConfigurationError("is not a mapping", place=path.name)
    return content


class Facts:
    """A mapping that is read key by key; `finish` complains about keys that nobody read."""

    def __init__(self, content: object, *, place: str) -> None:
        """`place` names the file, and the key of an inner mapping, for complaints."""
        if not isinstance(content, Mapping):
            raise ConfigurationError(f"{shown(content)} is not a mapping", place=place)
        self._content = content
        self._unread = set(content)
        self.place = place

    def __contains__(self, key: str) -> bool:
        """Whether the file states `key`."""
        return key in self._content

    def raw(self, key: str) -> object:
        """The value of `key` as YAML has it, None when absent."""
        self._unread.discard(key)
        return self._content.get(key)

    def optional(self, key: str, kind: type[_Scalar]) -> _Scalar | None:
        """The value of `key`, None when absent; an integer serves where a float is wanted."""
        value = self.raw(key)
        if value is None:
            return None
        if kind is float and type(value) is int:
            return kind(value)
        if type(value) is not kind:
            raise ConfigurationError(shown(value), place=f"{self.place}.{key}", expected=f"expected {kind.__name__}")
        return value

    def required(self, key: str, kind: type[_Scalar]) -> _Scalar:
        """The value of `key`; raises `ConfigurationError` when it is absent or of another type."""
        value = self.optional(key, kind)
        if value is None:
            raise ConfigurationError("is missing", place=f"{self.place}.{key}", expected=f"expected {kind.__name__}")
        return value

    def default(self, key: str, otherwise: _Scalar) -> _Scalar:
        """The value of `key`, `otherwise` when absent; its type decides what is accepted."""
        value = self.optional(key, type(otherwise))
        return otherwise if value is None else value

    def choice(self, key: str, kind: type[_Choice], otherwise: _Choice | None = None) -> _Choice:
        """The member of an enumeration that `key` names, `otherwise` when absent; required without that."""
        value = self.required(key, str) if otherwise is None else self.default(key, otherwise.value)
        try:
            return kind(value)
        except ValueError:
            known = ", ".join(member.value for member in kind)
            raise ConfigurationError(
                shown(value), place=f"{self.place}.{key}", expected=f"expected one of {known}"
            ) from None

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings, empty when absent."""
        value = self.raw(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigurationError(shown(value), place=f"{self.place}.{key}", expected="expected a list of strings")
        return tuple(value)

    def inner(self, key: str) -> "Facts":
        """The mapping under `key`, an empty one when absent."""
        value = self.raw(key)
        return Facts({} if value is None else value, place=f"{self.place}.{key}")

    def __iter__(self) -> Iterator[str]:
        """The keys that the file states, in order."""
        return iter(self._content)

    def finish(self) -> None:
        """Complain about the first key that nobody read: a typing error would otherwise lose a fact silently."""
        if self._unread:
            raise ConfigurationError("is not known here", place=f"{self.place}.{min(map(str, self._unread))}")


def provenance_of(fact: Facts) -> Provenance:
    """Source, status and reason of a fact."""
    status = fact.optional("status", str)
    if status not in {None, "estimated", "assumed"}:
        raise ConfigurationError(
            f"{status!r}", place=f"{fact.place}.status", expected="expected estimated, assumed, or nothing"
        )
    return Provenance(
        source=fact.required("source", str),
        estimated=status is not None,
        assumed=status == "assumed",
        why=fact.default("why", ""),
    )
