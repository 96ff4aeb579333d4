"""The status holds the figures of the answer, within the limits of the schema."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from projection_operator.api.quantity import bytes_of
from projection_operator.api.status import DeviceSource, answer_fields
from projector.projection import MemoryComponent, MemoryLevel, Projection
from projector.provenance import Assumption, Unmodelled
from tests.operator.builders import GIB, memory, performance, projection, stage

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    definition = yaml.safe_load((ROOT / "crds" / "projectionrequests.yaml").read_text(encoding="utf-8"))
    found: dict[str, Any] = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    result: dict[str, Any] = closed(found)
    return result


def closed(schema: Any) -> Any:  # noqa: ANN401 - any part of a JSON schema
    """The schema with unknown fields refused, since the API server drops them in silence."""
    if isinstance(schema, dict):
        extra = {"additionalProperties": False} if "properties" in schema else {}
        return {key: closed(value) for key, value in schema.items()} | extra
    return schema


def fields(answer: Projection, tokens: int | None = None) -> dict[str, Any]:
    return answer_fields(answer, device_source=DeviceSource.SPEC, tokens=tokens)


def huge() -> Projection:
    long = "x" * 3000
    parts = tuple(
        MemoryComponent(name=f"{number} {long}", level=MemoryLevel.ALLOCATED, size_bytes=GIB) for number in range(200)
    )
    stages = tuple(replace(stage(number), components=parts, peak_cause=long) for number in range(400))
    return projection(
        model=long,
        memory=replace(memory(stages=stages), confidence_reasons=(long,) * 100),
        unmodelled=(Unmodelled(what=long, where=long, effect=long, decides=False),) * 100,
        assumed=(Assumption(what=long, why=long),) * 100,
        performance=replace(performance(), warnings=(long,) * 100),
    )


def test_warnings_of_the_time_half_are_told() -> None:
    warned = projection(performance=replace(performance(), warnings=("too few micro batches",)))
    assert fields(warned)["warnings"] == ["too few micro batches"]
    assert fields(projection(performance=None))["warnings"] == []


@pytest.mark.parametrize(
    "answer",
    [projection(), projection(memory=None), projection(performance=None), huge()],
    ids=["both", "performance only", "memory only", "everything too long"],
)
def test_every_answer_is_a_valid_status(answer: Projection, schema: dict[str, Any]) -> None:
    jsonschema.validate(fields(answer, tokens=10**12), schema)


def test_the_worst_stage_is_the_one_that_is_shown() -> None:
    status = fields(projection(memory=memory(stages=(stage(0), stage(1, weights=120), stage(2)))))
    assert status["memory"]["worstStage"] == 1
    assert status["memory"]["perDevice"]["expected"] == "180Gi"
    assert [item["layers"] for item in status["memory"]["stages"]] == [4, 4, 4]


def test_the_reasons_of_the_confidence_stand_beside_it() -> None:
    reasons = ("routing differs from run to run", "few runs are published")
    status = fields(projection(memory=replace(memory(), confidence_reasons=reasons)))
    assert (status["confidence"], status["confidenceReasons"]) == ("Medium", list(reasons))


def test_components_add_up_however_many_there_are() -> None:
    components = fields(huge())["memory"]["components"]
    assert len(components) == 64
    assert sum(bytes_of(item["size"]) for item in components) == 200 * GIB


def test_parts_of_the_same_name_become_one() -> None:
    parts = tuple(MemoryComponent(name="weights", level=MemoryLevel.PERSISTENT, size_bytes=GIB) for _ in range(3))
    status = fields(projection(memory=memory(stages=(replace(stage(), components=parts),))))
    assert status["memory"]["components"] == [{"name": "weights", "size": "3Gi"}]


def test_figures_are_integers_with_units() -> None:
    assert fields(projection(), tokens=15 * 10**12)["throughput"] == {
        "tokensPerSecondPerDevice": 1084,
        "iterationTimeMilliseconds": 22670,
        "iterationTimeLowerBoundMilliseconds": 20670,
        "iterationTimeUpperBoundMilliseconds": 25670,
        "confidence": "Medium",
        "confidenceReasons": ["attention kernels not stated"],
        "teraflopsPerDevice": 499,
        "modelFlopsUtilizationPercent": 38,
        "trainingTimeSeconds": round(15 * 10**12 / (1084.4 * 64)),
    }
