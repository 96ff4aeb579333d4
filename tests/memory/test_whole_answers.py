"""`project` answers questions about files: reads, lays out, projects both halves, names what it assumed."""

from pathlib import Path

import pytest

import projector
from projector import Question, project
from projector.errors import BatchIndivisible, ConfigurationError, DeviceUnknown, InputError
from projector.projection import MemoryLevel, Verdict

SAMPLE = Path(__file__).parents[2] / "samples" / "experiments" / "llama3.1-70b-mi300x.yaml"


EIGHT_STAGES = {"global_batch_size": "192", "pipeline_model_parallel_size": "8"} | dict.fromkeys(
    ("recompute_granularity", "recompute_method", "recompute_num_layers"), "null"
)
"""Nothing recomputed, as schedules that separate weight gradients want it."""


def ask(**changes: object) -> Question:
    fields: dict[str, object] = {
        "text": SAMPLE.read_text(),
        "name": SAMPLE.name,
        "device": "MI300X",
        "nodes": 8,
        "overrides": {"global_batch_size": "192"},
    }
    return Question(**(fields | changes))  # type: ignore[arg-type]


def test_the_sample_fits_on_8_nodes_of_mi300x() -> None:
    answer = project(ask())
    assert answer.parameters.total == 70_553_706_496
    assert (answer.layout.data, answer.micro_batches, answer.global_batch) == (64, 1, 192)
    assert answer.memory is not None
    assert answer.memory.verdict is Verdict.FITS
    assert answer.performance is not None
    assert answer.performance.iteration_seconds > 0


def test_as_written_its_batch_does_not_divide_and_the_nearest_is_named() -> None:
    with pytest.raises(BatchIndivisible, match=r"24 .* micro batch 3 x data parallel 64 = 192; the nearest .* 192"):
        project(ask(overrides={}))


def test_half_a_question_gets_half_an_answer() -> None:
    assert project(ask(performance=False)).performance is None
    assert project(ask(memory=False)).memory is None


def test_what_nothing_stated_is_listed() -> None:
    answer = project(ask(device=None, nodes=None, overrides={"global_batch_size": "24"}))
    said = [assumption.what for assumption in answer.assumed]
    assert "GPU MI300X" in said
    assert "1 node(s) of 8 GPUs" in said


def test_every_schedule_that_the_layout_allows_is_compared_with_its_memory() -> None:
    answer = project(ask(schedule="all", overrides=EIGHT_STAGES))
    assert answer.performance is not None
    assert answer.memory is not None
    compared = {one.name: one.peak_allocated_bytes for one in answer.performance.compared_schedules}
    assert {"1f1b", "zerobubble"} <= compared.keys()
    assert compared["1f1b"] == max(stage.level_bytes(MemoryLevel.ALLOCATED) for stage in answer.memory.stages)


def test_memory_and_time_follow_the_schedule_that_was_asked_for() -> None:
    plain, asked = (project(ask(schedule=name, overrides=EIGHT_STAGES)) for name in ("auto", "zerobubble"))
    assert asked.performance is not None
    assert asked.performance.schedule.name == "zerobubble"
    assert asked.memory is not None
    assert plain.memory is not None
    assert asked.memory.stages[-1].device_bytes > plain.memory.stages[-1].device_bytes


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"schedule": "fastest"}, ConfigurationError),
        ({"device": "Voodoo2"}, DeviceUnknown),
        ({"nodes": 0}, InputError),
        ({"devices_per_node": 0}, InputError),
        ({"nodes": -3}, InputError),
    ],
)
def test_wrong_questions_are_refused(changes: dict[str, object], error: type[InputError]) -> None:
    with pytest.raises(error):
        project(ask(**changes))


def test_public_names_are_loaded_on_demand() -> None:
    assert projector.Question is Question
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        projector.nothing  # noqa: B018 - it raises
