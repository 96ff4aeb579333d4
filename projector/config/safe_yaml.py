"""YAML from people nobody knows: the values of PyYAML's SafeLoader, with limits and with places in every complaint.

Scalars mean what YAML 1.1 says (`1e-5` is text, `1.0e-5` a number, `on` and `yes` are true). What a loader of
configuration has no use for is refused or read as text: tags and objects, several documents, keys that are not text,
keys that occur twice, and dates, which stay text. Values are built from parser events with a stack of our own, so that
neither nesting nor aliases can exhaust memory or the interpreter's stack.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.constructor import SafeConstructor
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from yaml.nodes import ScalarNode
from yaml.resolver import Resolver

from projector.config.files import decoded
from projector.errors import ConfigurationError, ConfigurationTooLarge

MAXIMUM_DEPTH = 32
"""Mappings and lists inside one another; the deepest public recipe has 6."""
MAXIMUM_NODES = 200_000
"""Values after expansion of aliases; the longest public preset has fewer than 1,000."""
CHARACTERS_PER_NODE = 100
"""Characters of a text that count as one more value, so that aliases of long texts cannot grow without bound either."""

_PREFIX = "tag:yaml.org,2002:"
_MERGE = object()
_CONSTRUCTOR = SafeConstructor()
_CONSTRUCT = {
    f"{_PREFIX}null": _CONSTRUCTOR.construct_yaml_null,
    f"{_PREFIX}bool": _CONSTRUCTOR.construct_yaml_bool,
    f"{_PREFIX}int": _CONSTRUCTOR.construct_yaml_int,
    f"{_PREFIX}float": _CONSTRUCTOR.construct_yaml_float,
}
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_mapping(data: bytes | str, *, name: str) -> dict[str, Any]:
    """The mapping that a YAML text holds.

    `name` is the file in messages. Raises `ConfigurationTooLarge` beyond 5 MiB, `MAXIMUM_DEPTH` or `MAXIMUM_NODES`,
    `ConfigurationError` with line and column for everything else that is wrong.
    """
    text = decoded(data, name=name)
    try:
        value = _Builder(name=name).build(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        # libyaml stops deep nesting by itself before its events arrive here.
        kind = ConfigurationTooLarge if "nesting" in (error.problem or "") else ConfigurationError
        raise _error(name, error.problem_mark, error.problem or "not YAML", kind) from None
    except yaml.YAMLError as error:
        raise ConfigurationError(f"not YAML: {' '.join(str(error).split())}", place=name) from None
    if not isinstance(value, dict):
        found = "empty" if value is None else f"a {_kind(value)}"
        raise ConfigurationError(f"the file is {found}", place=name, expected="a mapping of keys to values")
    return value


def _kind(value: object) -> str:
    return {list: "list", str: "text", bool: "boolean"}.get(type(value), "number")


def _error(
    name: str,
    mark: Any,  # noqa: ANN401 - yaml.Mark, or the C parser's own class
    message: str,
    kind: type[ConfigurationError] = ConfigurationError,
    *,
    expected: str = "",
) -> ConfigurationError:
    place = name if mark is None else f"{name}:{mark.line + 1}:{mark.column + 1}"
    return kind(message, place=place, expected=expected)


@dataclass(slots=True)
class _Container:
    """A mapping or list that is still open."""

    value: Any
    anchor: str | None
    start: int
    key: Any = None
    has_key: bool = False
    merged: list[dict[str, Any]] = field(default_factory=list)

    def close(self) -> Any:  # noqa: ANN401 - a dict or a list
        """The finished value; merge keys (`<<`) fill in what the mapping itself does not state."""
        for mapping in self.merged:
            for key, value in mapping.items():
                self.value.setdefault(key, value)
        return self.value


@dataclass(slots=True)
class _Builder:
    """Turns parser events into values."""

    name: str
    stack: list[_Container] = field(default_factory=list)
    anchors: dict[str, tuple[Any, int]] = field(default_factory=dict)
    nodes: int = 0
    result: Any = None

    def build(self, events: Iterator[Event]) -> Any:  # noqa: ANN401 - any YAML value
        """The value that the events describe; raises `ConfigurationError` as `parse_mapping` does."""
        documents = 0
        for event in events:
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise _error(self.name, event.start_mark, "a second document starts here", expected="one document")
            elif isinstance(event, NodeEvent):
                self._node(event)
            elif isinstance(event, MappingEndEvent | SequenceEndEvent):
                container = self.stack.pop()
                value = container.close()
                self._anchor(container.anchor, value, self.nodes - container.start)
                self._add(value, event)
        return self.result

    def _node(self, event: NodeEvent) -> None:
        self._count(1, event)
        if isinstance(event, AliasEvent):
            self._add(self._alias(event), event)
            return
        if getattr(event, "tag", None) not in {None, "!"}:
            message = f"the tag {event.tag!r} is not allowed"  # type: ignore[attr-defined]
            raise _error(self.name, event.start_mark, message, expected="plain values only")
        if isinstance(event, ScalarEvent):
            value, weight = self._scalar(event), len(event.value) // CHARACTERS_PER_NODE
            self._count(weight, event)
            self._anchor(event.anchor, value, 1 + weight)
            self._add(value, event)
        elif isinstance(event, MappingStartEvent | SequenceStartEvent):
            if len(self.stack) >= MAXIMUM_DEPTH:
                message = f"nested deeper than {MAXIMUM_DEPTH} levels"
                raise _error(self.name, event.start_mark, message, ConfigurationTooLarge)
            empty: Any = {} if isinstance(event, MappingStartEvent) else []
            self.stack.append(_Container(value=empty, anchor=event.anchor, start=self.nodes - 1))

    def _count(self, nodes: int, event: NodeEvent) -> None:
        self.nodes += nodes
        if self.nodes > MAXIMUM_NODES:
            message = f"more than {MAXIMUM_NODES} values once aliases are expanded"
            raise _error(self.name, event.start_mark, message, ConfigurationTooLarge)

    def _anchor(self, anchor: str | None, value: object, nodes: int) -> None:
        if anchor is not None:
            self.anchors[anchor] = (value, nodes)

    def _alias(self, event: AliasEvent) -> Any:  # noqa: ANN401 - any YAML value
        anchor = event.anchor
        if any(container.anchor == anchor for container in self.stack):
            raise _error(self.name, event.start_mark, f"the alias *{anchor} stands inside its own anchor")
        if anchor not in self.anchors:
            raise _error(self.name, event.start_mark, f"the alias *{anchor} has no anchor before it")
        value, nodes = self.anchors[anchor]
        self._count(nodes - 1, event)
        return value

    def _scalar(self, event: ScalarEvent) -> Any:  # noqa: ANN401 - any YAML scalar
        text: str = event.value
        if not event.implicit[0]:
            return text
        tag = _implicit_tag(text)
        if tag == f"{_PREFIX}merge":
            return _MERGE
        construct = _CONSTRUCT.get(tag)
        if construct is None:
            return text
        try:
            return construct(ScalarNode(tag, text))
        except ValueError:
            raise _error(self.name, event.start_mark, f"{text[:40]!r} is not a usable number") from None

    def _add(self, value: Any, event: Event) -> None:  # noqa: ANN401 - any YAML value
        if not self.stack:
            self.result = "<<" if value is _MERGE else value
            return
        top = self.stack[-1]
        if isinstance(top.value, list):
            top.value.append("<<" if value is _MERGE else value)
        elif not top.has_key:
            top.key, top.has_key = self._key(value, top.value, event), True
        else:
            top.has_key = False
            if top.key is _MERGE:
                top.merged += self._merged(value, event)
            else:
                top.value[top.key] = "<<" if value is _MERGE else value

    def _key(self, key: object, mapping: dict[str, Any], event: Event) -> object:
        if key is _MERGE:
            return key
        if not isinstance(key, str):
            message = f"the key {key!r} is a {_kind(key)}" if not isinstance(key, dict) else "a mapping as a key"
            raise _error(self.name, event.start_mark, message, expected="keys are text; quote it if it is meant")
        if key in mapping:
            raise _error(self.name, event.start_mark, f"the key {key!r} occurs twice", expected="keep one of them")
        return key

    def _merged(self, value: object, event: Event) -> list[dict[str, Any]]:
        stated = value if isinstance(value, list) else [value]
        mappings = [mapping for mapping in stated if isinstance(mapping, dict)]
        if len(mappings) < len(stated):
            raise _error(self.name, event.start_mark, "`<<` takes a mapping or a list of mappings")
        return mappings


def _implicit_tag(text: str) -> str:
    resolvers = Resolver.yaml_implicit_resolvers
    for tag, pattern in resolvers.get(text[:1], []) + resolvers.get(None, []):
        if pattern.match(text):
            return str(tag)
    return f"{_PREFIX}str"
