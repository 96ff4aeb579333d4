"""Nested values that remember their source, and how one file's values lie on top of another's."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from projector.config.variables import substitute
from projector.provenance import ConfigValue, Source

Tree: TypeAlias = dict[str, "Tree | ConfigValue"]
"""Mappings stay nested; everything else, lists and empty mappings included, is one `ConfigValue`."""


def build(
    mapping: Mapping[str, Any], *, source: Source, file: str | None, variables: Mapping[str, str], prefix: str = ""
) -> Tree:
    """Give every value of a parsed file its source, and resolve the variables in its texts."""
    tree: Tree = {}
    for key, value in mapping.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            tree[key] = build(value, source=source, file=file, variables=variables, prefix=f"{name}.")
        else:
            used: list[str] = []
            resolved = _resolve(value, variables, f"{file}: {name}", used)
            origin = Source.VARIABLE if used else source
            tree[key] = ConfigValue(key=name, value=resolved, source=origin, file=file)
    return tree


def _resolve(value: Any, variables: Mapping[str, str], place: str, used: list[str]) -> Any:  # noqa: ANN401 - YAML
    if isinstance(value, str):
        substituted = substitute(value, variables, place=place)
        used += substituted.variables
        return substituted.value
    if isinstance(value, list):
        return [_resolve(item, variables, place, used) for item in value]
    if isinstance(value, dict):
        return {key: _resolve(item, variables, place, used) for key, item in value.items()}
    return value


def merge(below: Tree, above: Tree) -> Tree:
    """Both trees in one: mappings merge key by key, everything else is replaced by `above`."""
    merged = dict(below)
    for key, value in above.items():
        present = merged.get(key)
        if isinstance(present, dict) and isinstance(value, dict):
            merged[key] = merge(present, value)
        elif not (isinstance(present, dict) and isinstance(value, ConfigValue) and value.value == {}):
            merged[key] = value
    return merged


def nested(key: str, value: Tree | ConfigValue) -> Tree:
    """A tree that holds nothing but `value`, under its dotted key."""
    first, *parts = key.split(".")
    for part in reversed(parts):
        value = {part: value}
    return {first: value}


def subtree(tree: Tree, key: str) -> Tree | None:
    """The mapping under `key`; an empty or absent one gives an empty tree, a value that is no mapping gives None."""
    value = tree.get(key, {})
    if isinstance(value, ConfigValue):
        return {} if value.value in (None, {}) else None
    return value


def rekey(tree: Tree, prefix: str = "") -> Tree:
    """The same tree with every value's key counted from the tree's own top."""
    result: Tree = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            result[key] = rekey(value, f"{name}.")
        else:
            result[key] = ConfigValue(key=name, value=value.value, source=value.source, file=value.file)
    return result


def flatten(tree: Tree) -> dict[str, ConfigValue]:
    """Every value by its dotted key."""
    flat: dict[str, ConfigValue] = {}
    for value in tree.values():
        if isinstance(value, dict):
            flat.update(flatten(value))
        else:
            flat[value.key] = value
    return flat
