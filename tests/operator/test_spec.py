"""Parsing bridges what may be absent, with the same defaults as the schema."""

from pathlib import Path
from typing import Any

import yaml

from projection_operator.api.spec import parse_request
from tests.operator.builders import request

ROOT = Path(__file__).resolve().parents[2]
DEFINITION = yaml.safe_load((ROOT / "crds" / "projectionrequests.yaml").read_text(encoding="utf-8"))
SPEC = DEFINITION["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]


def with_defaults(schema: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """The value as the API server stores it: every absent field that has a default gets it."""
    result = dict(value)
    for name, field in schema["properties"].items():
        if name not in result and "default" in field:
            result[name] = field["default"]
        if isinstance(result.get(name), dict):
            result[name] = with_defaults(field, result[name])
    return result


def test_a_field_that_is_absent_means_what_the_schema_says() -> None:
    spec: dict[str, dict[str, Any]] = {"training": {"inline": "a: 1"}, "target": {"nodes": 1}, "profiling": {}}
    metadata = {"namespace": "team", "name": "llama", "uid": "1", "resourceVersion": "1"}
    stored = with_defaults(SPEC, spec)
    assert stored["target"].keys() > spec["target"].keys()
    for sparse in (spec, {**spec, "profiling": None}):
        assert parse_request({"metadata": metadata, "spec": sparse}) == parse_request(
            {"metadata": metadata, "spec": stored}
        )


def test_an_answer_depends_on_both_config_maps() -> None:
    asked = request(
        training={"configMapRef": {"name": "training", "key": "k"}},
        target={"nodes": 1, "device": "MI300X", "hardwareConfigRef": {"name": "hardware", "key": "k"}},
    )
    assert asked.config_maps == {"training", "hardware"}
    assert request().config_maps == frozenset()
