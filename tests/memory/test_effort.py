"""What a projection of memory costs, counted in calls of functions, since times depend on the machine."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from projector import catalog
from projector.job import Parallelism, Schedule
from projector.memory import project_memory
from projector.memory.segments import segmented, situations
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
    return counted(lambda: project_memory(asked, placed, DEVICE, replay=False))


def resolving_calls(layers: int) -> int:
    """Calls of functions in the resolution of a layout of a model that was laid out before."""
    asked = job(model((DENSE,) * layers), layout=Parallelism(tensor=8, pipeline=4), global_=256)
    resolve(asked, target(nodes=4))
    return counted(lambda: resolve(asked, target(nodes=4)))


def counted(act: Callable[[], object]) -> int:
    """Calls of functions in an action."""
    count = 0

    def tick(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(tick)
    try:
        act()
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


@pytest.mark.parametrize(("pipeline", "chunks", "most"), [(8, 1, 8), (4, 2, 12), (16, 8, 80)])
def test_few_situations_of_a_schedule_may_be_the_peak_however_many_micro_batches_run(
    pipeline: int, chunks: int, most: int
) -> None:
    schedule = Schedule.INTERLEAVED if chunks > 1 else Schedule.ONE_F_ONE_B
    counts = [
        [
            len(situations(schedule, pipeline, chunks, count, pipeline, rank=rank, passes=None).found)
            for rank in range(pipeline)
        ]
        for count in (3 * pipeline, 6 * pipeline)
    ]
    assert counts[0] == counts[1]
    assert max(counts[0]) <= most


def test_a_stage_takes_fewer_than_a_hundred_and_fifty_calls() -> None:
    eight, sixteen = (calls(64, pipeline=stages) for stages in (8, 16))
    assert (sixteen - eight) / 8 < 150


def test_a_layout_is_resolved_without_a_look_at_every_layer() -> None:
    small, large = (resolving_calls(layers) for layers in (64, 640))
    assert large < 1.5 * small


def test_neither_numpy_nor_torch_is_loaded() -> None:
    loaded = subprocess.run([sys.executable, "-c", WITHOUT], check=True, capture_output=True, text=True, cwd=ROOT)
    assert loaded.stdout.strip() == "[]"


def test_layouts_of_the_measurement_are_distinct_and_many_kinds() -> None:
    cases = list(distinct(200))
    keys = {(case.job, case.layout) for case in cases}
    assert len(keys) == len(cases)
    assert {case.layout.pipeline for case in cases} == {1, 2, 4, 8, 16}
    assert len({case.job.model.name for case in cases}) == 10
