import csv
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import projector.document
from projector.job import Scaling, Sharding
from projector.projection import Confidence, MemoryLevel, Verdict
from projector.provenance import ConfigValue, Source
from projector.report.machine import FORMS
from tests.report.builders import a_projection, without_halves

SCHEMA: dict[str, Any] = json.loads(
    (Path(projector.document.__file__).parent / "projection.schema.json").read_text(encoding="utf-8")
)
SHAPE = (Path(__file__).parent / "shape.txt").read_text(encoding="utf-8").split()


def checked(document: dict[str, Any]) -> dict[str, Any]:
    """The document as a reader of the JSON has it, held against the schema."""
    read: dict[str, Any] = json.loads(FORMS["json"](document))
    jsonschema.Draft202012Validator(SCHEMA).validate(read)
    return read


def objects(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object schema with its path."""
    if "properties" in schema:
        yield path, schema
        for name, child in schema["properties"].items():
            yield from objects(child, f"{path}.{name}" if path else name)
    if "items" in schema:
        yield from objects(schema["items"], f"{path}[]")


@pytest.mark.parametrize("stages", [1, 4])
def test_complete_answers_follow_the_schema(stages: int) -> None:
    document = checked(a_projection(stages=stages).to_dict())
    assert len(document["memory"]["stages"]) == stages


def test_the_half_that_was_not_asked_for_is_null() -> None:
    document = checked(without_halves(a_projection()).to_dict())
    assert document["memory"] is None
    assert document["performance"] is None
    assert document["benchmark"] is None


def test_shape_changes_only_on_purpose() -> None:
    paths = [f"{path}.{name}".lstrip(".") for path, schema in objects(SCHEMA) for name in schema["properties"]]
    assert paths == SHAPE, "a changed meaning or a lost field needs another schema_version; then edit shape.txt"


def test_every_object_is_closed_complete_and_described() -> None:
    for path, schema in objects(SCHEMA):
        assert schema["additionalProperties"] is False, path
        assert schema["required"] == list(schema["properties"]), path
        for name, child in schema["properties"].items():
            assert child.get("description", "").endswith("."), f"{path}.{name}"


def test_schema_itself_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_an_unknown_field_is_refused() -> None:
    document = a_projection().to_dict()
    document["memory"]["surprise"] = 1
    with pytest.raises(jsonschema.ValidationError, match="surprise"):
        checked(document)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("properties.memory.properties.verdict", Verdict),
        ("properties.suggestions.items.properties.verdict", Verdict),
        ("properties.memory.properties.confidence", Confidence),
        ("properties.performance.properties.confidence", Confidence),
        ("properties.memory.properties.stages.items.properties.components.items.properties.level", MemoryLevel),
        ("properties.target.properties.scaling", Scaling),
        ("properties.target.properties.layout.properties.shard", Sharding),
        ("properties.job.properties.values.items.properties.source", Source),
    ],
)
def test_words_of_the_schema_are_those_of_the_engine(place: str, words: Any) -> None:  # noqa: ANN401 - an enumeration
    schema: Any = SCHEMA
    for step in place.split("."):
        schema = schema[step]
    assert schema["enum"] == list(words)


def test_sizes_are_bytes_times_milliseconds_and_ratios_shares() -> None:
    document = checked(a_projection().to_dict())
    stage, performance = document["memory"]["stages"][0], document["performance"]
    assert stage["persistent_bytes"] == sum(part["bytes"] for part in stage["components"][:3])
    assert stage["device_bytes"] == sum(part["bytes"] for part in stage["components"])
    levels = ("persistent", "peak_allocated", "peak_reserved", "device")
    assert [stage[f"{level}_bytes"] for level in levels] == sorted(stage[f"{level}_bytes"] for level in levels)
    assert performance["iteration_time_ms"] == 8000.0
    assert sum(step["ms"] for step in performance["waterfall"]) == pytest.approx(performance["iteration_time_ms"])
    assert 0 < performance["mfu"] < 1


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (float("inf"), "inf"),
        (float("nan"), "nan"),
        ({1: (2, 3)}, {"1": [2, 3]}),
        (Sharding.OPTIMIZER, "optimizer"),
        (1e-5, 1e-5),
        (True, True),
        (None, None),
        ({"a": [float("-inf")]}, {"a": ["-inf"]}),
    ],
    ids=str,
)
def test_any_configuration_value_becomes_strict_json(value: object, written: object) -> None:
    odd = ConfigValue(key="odd", value=value, source=Source.EXPERIMENT)
    document = checked(replace(a_projection(), values=(odd,)).to_dict())
    assert document["job"]["values"][0]["value"] == written


def test_yaml_holds_the_same_as_json() -> None:
    document = a_projection(stages=2).to_dict()
    assert yaml.safe_load(FORMS["yaml"](document)) == json.loads(FORMS["json"](document))


def test_csv_has_one_line_for_each_value() -> None:
    document = a_projection(stages=2).to_dict()
    header, *rows = csv.reader(io.StringIO(FORMS["csv"](document)))
    values = dict(rows)
    assert header == ["path", "value"]
    assert len(values) == len(rows)
    assert values["memory.stages.1.device_bytes"] == str(document["memory"]["stages"][1]["device_bytes"])
    assert values["memory.verdict"] == "Fits"
    assert values["performance.mfu"] == "0.3918"
    assert values["benchmark"] == "null"
