"""What the API server does not insist on: descriptions for `kubectl explain`, bounds, and no field by accident."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from docs import api_reference

if TYPE_CHECKING:
    from collections.abc import Iterator

Schema = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
DEFINITION: Schema = yaml.safe_load((ROOT / "crds" / "projectionrequests.yaml").read_text(encoding="utf-8"))
VERSION: Schema = DEFINITION["spec"]["versions"][0]
SCHEMA: Schema = VERSION["schema"]["openAPIV3Schema"]


def walk(path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Every schema at or below ``path``, with its dotted path."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from walk(f"{path}.{name}", child)
    if "items" in schema:
        yield from walk(f"{path}[]", schema["items"])


NODES = dict(walk("", SCHEMA))
OWN = {path: schema for path, schema in NODES.items() if path.startswith((".spec", ".status"))}

# Adding, renaming or removing a field of the question changes the API: do it in this list as well, on purpose.
SPEC_FIELDS = (ROOT / "tests" / "crds" / "spec_fields.txt").read_text(encoding="utf-8").split()


def test_the_fields_of_the_question_are_the_frozen_ones() -> None:
    assert sorted(path for path in NODES if path.startswith(".spec")) == SPEC_FIELDS


# The API server describes the metadata itself and lets no one else do it.
@pytest.mark.parametrize("path", [path for path in NODES if path != ".metadata"])
def test_every_field_is_described(path: str) -> None:
    description = NODES[path].get("description", "")
    assert description.endswith((".", "/NAME")), f"{path}: {description!r} is not a sentence"
    assert "  " not in description
    assert description.isascii(), "terminals without UTF-8 show kubectl explain, too"


@pytest.mark.parametrize("path", [path for path in OWN if OWN[path].get("default")])
def test_the_description_of_a_field_with_a_default_names_it(path: str) -> None:
    default = OWN[path]["default"]
    assert f"{' and '.join(default) if isinstance(default, list) else default} when absent" in OWN[path]["description"]


@pytest.mark.parametrize("path", NODES)
def test_no_field_is_free_form_or_a_floating_point_number(path: str) -> None:
    schema = NODES[path]
    assert schema["type"] in {"object", "array", "string", "integer"}
    assert (
        not {"additionalProperties", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"}
        & schema.keys()
    )
    assert schema["type"] != "object" or schema.get("properties") or path == ".metadata"


@pytest.mark.parametrize("path", OWN)
def test_every_field_is_bounded(path: str) -> None:
    schema = OWN[path]
    bounds = {
        "string": ("maxLength", "enum", "format"),
        "array": ("maxItems",),
        "integer": ("maximum",),
        "object": ("properties",),
    }
    assert any(key in schema for key in bounds[schema["type"]])
    if schema["type"] == "integer":
        assert "minimum" in schema
        assert schema["maximum"] < 2 ** {"int32": 31, "int64": 53}[schema["format"]], (
            "JSON readers lose larger integers"
        )


@pytest.mark.parametrize("path", [path for path in OWN if OWN[path]["type"] == "array"])
def test_every_list_says_how_it_merges(path: str) -> None:
    schema = OWN[path]
    assert schema["x-kubernetes-list-type"] in {"map", "set", "atomic"}
    if schema["x-kubernetes-list-type"] == "map":
        assert set(schema["x-kubernetes-list-map-keys"]) <= set(schema["items"]["required"])


def test_every_field_of_the_question_but_the_ttl_is_immutable() -> None:
    rules = SCHEMA["properties"]["spec"]["x-kubernetes-validations"]
    frozen = {rule["fieldPath"].removeprefix(".") for rule in rules if "oldSelf" in rule["rule"]}
    assert frozen == SCHEMA["properties"]["spec"]["properties"].keys() - {"ttlSecondsAfterFinished"}


RULES = [(path, rule) for path, schema in NODES.items() for rule in schema.get("x-kubernetes-validations", [])]


@pytest.mark.parametrize(("path", "rule"), RULES, ids=[f"{path}: {rule['message'][:40]}" for path, rule in RULES])
def test_every_rule_has_a_plain_message_about_one_field(path: str, rule: Schema) -> None:
    assert rule["message"]
    assert len(rule["message"]) < 200
    assert rule["message"][0].islower(), "the API server puts the field before it"
    assert path + rule.get("fieldPath", "") in NODES
    assert rule["reason"] in {"FieldValueInvalid", "FieldValueForbidden"}


@pytest.mark.parametrize("column", VERSION["additionalPrinterColumns"], ids=lambda column: column["name"])
def test_every_column_shows_a_field_of_the_schema(column: Schema) -> None:
    path = column["jsonPath"].replace('[?(@.type=="Completed")]', "[]")
    if path == ".metadata.creationTimestamp":
        assert column["type"] == "date"
    else:
        assert NODES[path]["type"] == column["type"]


def test_the_columns_end_with_the_age() -> None:
    assert [column["name"] for column in VERSION["additionalPrinterColumns"] if not column.get("priority")] == [
        "Model",
        "Devices",
        "Verdict",
        "Memory",
        "Tokens/s/GPU",
        "Mode",
        "Reason",
        "Age",
    ]


def test_the_reference_page_is_current() -> None:
    assert api_reference.PAGE.read_text(encoding="utf-8") == api_reference.render(DEFINITION), (
        "run python -m docs.api_reference"
    )
