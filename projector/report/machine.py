"""A document in the forms that programs read."""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any


def as_json(document: Mapping[str, Any]) -> str:
    """Indented JSON."""
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def as_yaml(document: Mapping[str, Any]) -> str:
    """YAML in the document's own order."""
    import yaml  # noqa: PLC0415 - for this form alone

    return yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=120)


def as_csv(document: Mapping[str, Any]) -> str:
    """Two columns: the path of every value, such as `memory.stages.0.device_bytes`, and the value as JSON or text."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("path", "value"))
    writer.writerows(_leaves("", document))
    return out.getvalue()


def _leaves(path: str, value: object) -> Iterator[tuple[str, object]]:
    inner: Iterator[tuple[object, object]] | None = None
    if isinstance(value, Mapping) and value:
        inner = iter(value.items())
    elif isinstance(value, list) and value:
        inner = iter(enumerate(value))
    if inner is None:
        yield path, value if isinstance(value, str) else json.dumps(value)
        return
    for key, item in inner:
        yield from _leaves(f"{path}.{key}" if path else str(key), item)


FORMS = {"json": as_json, "yaml": as_yaml, "csv": as_csv}
"""The forms by the name that `--output` gives them."""
