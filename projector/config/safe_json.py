"""JSON from people nobody knows, with the limits that `safe_yaml` sets.

A JSON text is not always YAML: it may be indented with tabs, and `5e8` is a number in it. A text in braces that is no
JSON may still be YAML, and is read as such.
"""

from typing import TYPE_CHECKING, Any, NoReturn

from projector.config.files import decoded
from projector.config.safe_yaml import MAXIMUM_DEPTH, MAXIMUM_NODES, parse_mapping
from projector.errors import ConfigurationError, ConfigurationTooLarge, shown

if TYPE_CHECKING:
    from json import JSONDecodeError


def parse_json_or_yaml(data: str, *, name: str) -> dict[str, Any]:
    """The mapping that a JSON or YAML text holds.

    `name` is the file in messages. Raises `ConfigurationTooLarge` beyond the limits of `safe_yaml`,
    `ConfigurationError` with line and column for everything else that is wrong.
    """
    text = decoded(data, name=name).strip()
    if not text.startswith("{"):
        return parse_mapping(data, name=name)
    import json  # noqa: PLC0415 - most configurations are YAML, and every start of the command counts

    # Every value but the first stands behind one of these marks, so that too many are refused before any is built.
    if sum(map(text.count, ",[{")) > MAXIMUM_NODES:
        raise ConfigurationTooLarge(f"more than {MAXIMUM_NODES} values", place=name)
    try:
        value = json.loads(text, object_pairs_hook=lambda pairs: _mapping(pairs, name=name))
    except json.JSONDecodeError as error:
        return _yaml_instead(data, error, name=name)
    except RecursionError:
        _too_deep(name)
    except ValueError as error:  # an integer of thousands of digits
        raise ConfigurationError("a number is too long", place=name) from error
    _check_depth(value, name=name)
    mapping: dict[str, Any] = value
    return mapping


def _mapping(pairs: list[tuple[str, Any]], *, name: str) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for key, value in pairs:
        if key in mapping:
            raise ConfigurationError(f"the key {shown(key)} occurs twice", place=name, expected="keep one of them")
        mapping[key] = value
    return mapping


def _yaml_instead(data: str, error: "JSONDecodeError", *, name: str) -> dict[str, Any]:
    try:
        return parse_mapping(data, name=name)
    except ConfigurationTooLarge:
        raise
    except ConfigurationError:
        place = f"{name}:{error.lineno}:{error.colno}"
        raise ConfigurationError(f"not JSON: {error.msg}", place=place) from None


def _check_depth(value: object, *, name: str) -> None:
    level = [value]
    for _ in range(MAXIMUM_DEPTH):
        inner: list[object] = []
        for item in level:
            inner += item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        if not inner:
            return
        level = inner
    _too_deep(name)


def _too_deep(name: str) -> NoReturn:
    raise ConfigurationTooLarge(f"nested deeper than {MAXIMUM_DEPTH} levels", place=name)
