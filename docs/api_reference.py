"""Writes docs/api.md, the reference of ProjectionRequest, from its definition, so that the two cannot differ.

Run `python -m docs.api_reference` in the root of the repository after a change in crds/.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

Schema = dict[str, Any]

ROOT = Path(__file__).resolve().parent.parent
DEFINITION = ROOT / "crds" / "projectionrequests.yaml"
PAGE = ROOT / "docs" / "api.md"

INTRODUCTION = """\
# ProjectionRequest

`{group}/{version}`, short name `{short}`. This page is written by `python -m docs.api_reference` from
`crds/{file}`; the same text is shown by `kubectl explain projectionrequest.spec`.

{description}
"""


def render(definition: Schema) -> str:
    """The whole page, as Markdown, for a parsed CustomResourceDefinition with one version."""
    names = definition["spec"]["names"]
    version = definition["spec"]["versions"][0]
    root: Schema = version["schema"]["openAPIV3Schema"]
    introduction = INTRODUCTION.format(
        group=definition["spec"]["group"],
        version=version["name"],
        short=names["shortNames"][0],
        file=DEFINITION.name,
        description=root["description"],
    )
    sections = (
        _section(path, schema)
        for part in ("spec", "status")
        for path, schema in _objects(part, root["properties"][part])
    )
    return "\n".join([introduction, *sections])


def _objects(path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    """The object at `path` and every object below it, parents first; `[]` after a name marks a list of such objects."""
    yield path, schema
    for name, child in schema["properties"].items():
        if child["type"] == "object":
            yield from _objects(f"{path}.{name}", child)
        elif child.get("items", {}).get("type") == "object":
            yield from _objects(f"{path}.{name}[]", child["items"])


def _section(path: str, schema: Schema) -> str:
    required = schema.get("required", [])
    lines = [f"{'##' if '.' not in path else '###'} {path}", "", _cell(schema["description"]), ""]
    lines += ["| field | type | meaning |", "| --- | --- | --- |"]
    lines += [
        f"| `{name}` | {_type(child, required=name in required)} | {_meaning(child)} |"
        for name, child in schema["properties"].items()
    ]
    rules = dict.fromkeys(rule["message"] for rule in schema.get("x-kubernetes-validations", []))
    if rules:
        lines += ["", "Checked when it is applied:", "", *(f"- {message}" for message in rules)]
    return "\n".join([*lines, ""])


def _type(schema: Schema, *, required: bool) -> str:
    kind = f"list of {schema['items']['type']}s" if schema["type"] == "array" else schema["type"]
    return f"{kind}, required" if required else kind


def _meaning(schema: Schema) -> str:
    values = schema.get("enum") or schema.get("items", {}).get("enum")
    facts = [f"One of `{'`, `'.join(values)}`."] if values else []
    if "maximum" in schema:
        facts.append(f"{schema['minimum']} to {schema['maximum']}.")
    return _cell(" ".join([schema["description"], *facts]))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(render(yaml.safe_load(DEFINITION.read_text(encoding="utf-8"))), encoding="utf-8")
