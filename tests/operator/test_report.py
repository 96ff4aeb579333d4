"""The report holds the long tables and never more than a ConfigMap can."""

import csv
import json
from dataclasses import replace

import pytest

from projection_operator.reconcile.report import DATA_BYTES, DOCUMENT_KEY, OMITTED_KEY, report_data, report_name
from projector.projection import Projection
from projector.provenance import ConfigValue, Source
from tests.operator.builders import memory, projection, request, stage


def size(data: dict[str, str]) -> int:
    return sum(len(key.encode()) + len(value.encode()) for key, value in data.items())


def with_values(count: int) -> Projection:
    value = ConfigValue(key="key", value="x" * 1000, source=Source.EXPERIMENT, file="job.yaml")
    return projection(values=(value,) * count)


def test_the_document_is_the_published_one_and_tables_are_complete() -> None:
    answer = projection()
    data = report_data(answer)
    assert json.loads(data[DOCUMENT_KEY]) == json.loads(json.dumps(answer.to_dict()))
    rows = list(csv.DictReader(data["waterfall.csv"].splitlines()))
    assert {row["name"]: row["ms"] for row in rows} == {"compute": "20000.000", "optimizer step": "2670.000"}
    assert next(csv.DictReader(data["stages.csv"].splitlines()))["device_bytes"] == str(160 << 30)


def test_tables_of_components_add_up_to_the_stages() -> None:
    data = report_data(projection())
    stages = list(csv.DictReader(data["stages.csv"].splitlines()))
    parts = list(csv.DictReader(data["components.csv"].splitlines()))
    for line in stages:
        sizes = [int(part["bytes"]) for part in parts if part["stage"] == line["stage"]]
        assert sum(sizes) == int(line["device_bytes"])
        assert int(line["device_bytes_lower"]) <= int(line["device_bytes"]) <= int(line["device_bytes_upper"])
    assert data["tree.csv"].startswith("stage,component,parameters,saved_bytes\n")


@pytest.mark.parametrize(
    ("answer", "omitted"),
    [
        (with_values(10), ""),
        (with_values(2000), "job.values"),
        (projection(memory=memory(stages=tuple(stage(number) for number in range(3000)))), "job and memory"),
        (
            projection(memory=memory(stages=tuple(replace(stage(n), peak_cause="x" * 500) for n in range(3000)))),
            "the projector command",
        ),
    ],
    ids=["short", "many values", "many stages", "hopeless"],
)
def test_what_is_too_long_is_left_out_and_named(answer: Projection, omitted: str) -> None:
    data = report_data(answer)
    assert size(data) <= DATA_BYTES
    assert omitted in data.get(OMITTED_KEY, "")
    assert (OMITTED_KEY in data) == bool(omitted)


@pytest.mark.parametrize("name", ["llama", "a" * 253, "a" * 47 + "." + "b" * 30])
def test_the_name_is_a_valid_one_and_belongs_to_the_object(name: str) -> None:
    one = report_name(request(metadata={"name": name}))
    assert one == report_name(request(metadata={"name": name}))
    assert one != report_name(request(metadata={"name": name, "uid": "another"}))
    assert len(one) <= 63
    assert one.replace("-", "").replace(".", "").isalnum()
    assert ".-" not in one
