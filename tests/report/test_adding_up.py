"""What is printed adds up, for many jobs, in both outputs."""

import json
from dataclasses import replace
from functools import cache
from typing import Any

import jsonschema
import pytest

from projector.memory import count_parameters, interval, project_memory, saved_activations
from projector.projection import MemoryLevel, Projection
from projector.report.text import report
from tests.bench.layouts import distinct
from tests.report.builders import a_projection
from tests.report.test_document import SCHEMA
from tests.report.test_text import lines_of, numbers_of

JOBS = 60
REPLAYED = 4
"""Of them, jobs whose allocations are replayed, which takes a hundred times as long."""
GIB = 1 << 30
LEVELS = {
    MemoryLevel.PERSISTENT: "persistent_bytes",
    MemoryLevel.ALLOCATED: "peak_allocated_bytes",
    MemoryLevel.RESERVED: "peak_reserved_bytes",
    MemoryLevel.DEVICE: "device_bytes",
}


@cache
def answers() -> tuple[Projection, ...]:
    """The memory half of the answers about jobs of all sizes, layouts and modes of recomputation."""
    found = []
    for number, case in enumerate(distinct(JOBS, seed=5)):
        memory = project_memory(case.job, case.layout, case.device, replay=number < REPLAYED)
        found.append(
            replace(
                a_projection(stages=len(memory.stages)),
                memory=replace(memory, activations=saved_activations(case.job, case.layout)),
                parameters=count_parameters(case.job, case.layout),
                performance=None,
            )
        )
    return tuple(found)


@cache
def documents() -> tuple[dict[str, Any], ...]:
    return tuple(json.loads(json.dumps(answer.to_dict())) for answer in answers())


def test_the_document_follows_the_schema() -> None:
    for document in documents():
        jsonschema.Draft202012Validator(SCHEMA).validate(document)


def test_components_up_to_a_level_add_up_to_it_on_every_stage() -> None:
    for document in documents():
        for stage in document["memory"]["stages"]:
            running = 0
            for level, name in LEVELS.items():
                running += sum(part["bytes"] for part in stage["components"] if part["level"] == level)
                assert stage[name] == running


def test_the_tree_of_a_stage_adds_up_to_its_parameters_and_its_saved_activations() -> None:
    for document in documents():
        most = 0
        for stage, counted in zip(document["memory"]["stages"], document["parameters"]["stages"], strict=True):
            assert sum(row["parameters"] for row in counted["components"]) == counted["parameters"]
            assert counted["parameters"] == stage["parameters"]
            saved = sum(part["bytes"] for part in stage["components"] if part["name"].startswith("saved activations: "))
            assert sum(row["parameters"] for row in stage["tree"]) == stage["parameters"]
            assert sum(row["saved_bytes"] for row in stage["tree"]) == saved
            most = max(most, stage["parameters"])
        assert document["parameters"]["per_device_max"] == most


def test_uncertainties_add_up_to_the_interval() -> None:
    for document in documents():
        for stage in document["memory"]["stages"]:
            below, above = (
                sum(each[side] for each in stage["uncertainties"]) for side in ("below_bytes", "above_bytes")
            )
            assert stage["device_bytes_lower"] == max(0, stage["device_bytes"] - below)
            assert stage["device_bytes_upper"] == stage["device_bytes"] + above


def test_what_a_micro_batch_keeps_adds_up_by_component() -> None:
    for document in documents():
        for layer in document["memory"]["activations"]:
            assert layer["bytes"] == sum(part["bytes"] for part in layer["components"])
        decoder = [each for each in document["memory"]["activations"] if each["layer"].endswith("e_layer")]
        layers = sum(len(stage["layers"]) for stage in document["memory"]["stages"])
        assert sum(each["count"] for each in decoder) == layers


@pytest.mark.parametrize("stages", [1, 2, 4, 8, 16])
def test_printed_figures_add_up_within_80_columns(stages: int) -> None:
    chosen = [answer for answer in answers() if answer.memory and len(answer.memory.stages) == stages]
    assert chosen
    for answer in chosen:
        text = report(answer)
        assert max(map(len, text.splitlines())) <= 80
        _assert_levels_add_up(text, "component" if stages > 1 else "-------------------")
        if stages > 1:
            _assert_stages_add_up(text)


@pytest.mark.parametrize("margin", [0.0, 0.05])
def test_the_printed_parts_of_the_interval_add_up_to_it(margin: float) -> None:
    for answer in answers():
        assert answer.memory is not None
        worst = answer.memory.worst
        kept_free = interval.margin(worst.device_bytes, worst.uncertainties, margin)
        upper = worst.device_bytes_upper + kept_free.above_bytes
        wider = replace(worst, device_bytes_upper=upper, uncertainties=(*worst.uncertainties, kept_free))
        stages = [wider if each is worst else each for each in answer.memory.stages]
        printed = report(replace(answer, memory=replace(answer.memory, stages=tuple(stages))))
        block = lines_of(printed, f"Interval of stage {worst.stage}, GiB")
        rows = [[float(cell.replace(",", "")) for cell in line.split()[-2:]] for line in block]
        assert [sum(column) for column in zip(*rows[:-1], strict=True)] == pytest.approx(rows[-1], abs=1e-6)
        width = [(worst.device_bytes - worst.device_bytes_lower) / GIB, (upper - worst.device_bytes) / GIB]
        assert rows[-1] == pytest.approx(width, abs=0.006)
        assert any("safety margin" in line for line in block) == (margin > 0)


def _assert_levels_add_up(text: str, title: str) -> None:
    block = lines_of(text, title)
    running = [0.0] * len(numbers_of(block[-1]))
    for line in block:
        figures = [float(cell.replace(",", "").replace("-", "0")) for cell in line.split()[-len(running) :]]
        if line.startswith("="):
            assert figures == pytest.approx(running, abs=1e-6), line
        elif line.startswith("  "):
            running = [total + figure for total, figure in zip(running, figures, strict=True)]


def _assert_stages_add_up(text: str) -> None:
    lines = text.splitlines()
    start = lines.index("Parameters per GPU, by stage")
    block = lines[start + 3 :]
    end = next(index for index, line in enumerate(block) if line.startswith("= stage"))
    printed = [int(cell.replace(",", "")) for cell in block[end].split()[2:]]
    for place, total in enumerate(printed):
        cells = [line.split()[1:][place] for line in block[:end]]
        assert sum(int(cell.replace(",", "")) for cell in cells if cell != "-") == total


def test_a_peak_is_named_with_its_stage_its_moment_and_what_is_in_flight() -> None:
    for answer in answers():
        assert answer.memory is not None
        worst = answer.memory.worst
        words = " ".join(report(answer).split())
        where = f"stage {worst.stage} of {len(answer.memory.stages)} needs most; its peak"
        assert f"{where if len(answer.memory.stages) > 1 else 'the peak'}: {worst.peak_cause}" in words
        assert worst.peak_cause.endswith("in flight") or not sum(worst.passes_in_flight)
        assert "; ".join(answer.memory.confidence_reasons) in words
