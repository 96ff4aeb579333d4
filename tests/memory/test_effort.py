"""What a projection of memory costs, counted in calls of functions, since times depend on the machine."""

import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest

from projector import catalog
from projector.job import Parallelism, Schedule
from projector.memory import project_memory
from projector.memory.segments import segmented
from projector.parallelism import resolve
from projector.schedule import order
from tests.bench.layouts import distinct
from tests.layers.builders import DENSE, job, mixtral, model, target

ROOT = Path(__file__).parents[2]
DEVICE = catalog.device("B200")
WITHOUT = """
import sys
from tests.bench.layouts import distinct
from projector.memory import project_memory
for case in distinct(3):
    project_memory(case.job, case.layout, case.device)
print(sorted({"numpy", "torch"} & sys.modules.keys()))
"""


def calls(layers: int, *, pipeline: int = 1, experts: bool = False) -> int:
    """Calls of functions in a projection whose layer shapes and schedule are known."""
    architecture = mixtral(layers) if experts else model((DENSE,) * layers)
    layout = Parallelism(tensor=8, pipeline=pipeline)
    asked = job(architecture, layout=layout, global_=256)
    placed = resolve(asked, target(nodes=pipeline))
    project_memory(asked, placed, DEVICE, replay=False)
    count = 0

    def tick(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(tick)
    try:
        project_memory(asked, placed, DEVICE, replay=False)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("experts", [False, True], ids=["dense", "with experts"])
def test_more_layers_cost_nothing_more(*, experts: bool) -> None:
    assert calls(640, pipeline=4, experts=experts) <= 1.02 * calls(64, pipeline=4, experts=experts)


def test_a_further_stage_costs_a_part_of_the_first() -> None:
    one, eight, sixteen = (calls(64, pipeline=stages) for stages in (1, 8, 16))
    assert (sixteen - eight) / 8 < one / 2


@pytest.mark.parametrize(
    ("schedule", "pipeline", "chunks"),
    [
        (Schedule.ONE_F_ONE_B, 8, 1),
        (Schedule.INTERLEAVED, 4, 3),
        (Schedule.ZERO_BUBBLE, 8, 1),
        (Schedule.ZBV_FORMATTED, 4, 2),
    ],
)
def test_a_shortened_order_runs_the_same_passes(schedule: Schedule, pipeline: int, chunks: int) -> None:
    count = 3 * pipeline
    shortened = segmented(schedule, pipeline, chunks, count, pipeline)
    for segments, events in zip(shortened.ranks, order(schedule, pipeline, chunks, count).ranks, strict=True):
        steps = [step for segment in segments for _ in range(segment.repetitions) for step in segment.pattern]
        assert steps == [(event.kind, event.chunk) for event in events]
        assert len(segments) < len(events) / 2


def test_neither_numpy_nor_torch_is_loaded() -> None:
    loaded = subprocess.run([sys.executable, "-c", WITHOUT], check=True, capture_output=True, text=True, cwd=ROOT)
    assert loaded.stdout.strip() == "[]"


def test_layouts_of_the_measurement_are_distinct_and_many_kinds() -> None:
    cases = list(distinct(200))
    keys = {(case.job, case.layout) for case in cases}
    assert len(keys) == len(cases)
    assert {case.layout.pipeline for case in cases} == {1, 2, 4, 8, 16}
    assert len({case.job.model.name for case in cases}) == 10
