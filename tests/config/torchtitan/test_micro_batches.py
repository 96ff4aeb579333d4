"""How a pipeline takes the micro batches of an iteration, beside PyTorch's own schedules."""

from types import SimpleNamespace
from typing import Any

import pytest

from projector import catalog
from projector.config import LoadedConfiguration
from projector.errors import BatchIndivisible
from projector.job import Schedule, Target
from projector.memory import project_memory
from projector.parallelism import Layout, resolve
from projector.performance import project_performance
from projector.projection import MemoryLevel, PerformanceProjection
from projector.schedule import Event, Kind, order
from tests.config.torchtitan.files import load, text

KINDS = {"FORWARD": Kind.F, "FULL_BACKWARD": Kind.B, "BACKWARD_INPUT": Kind.B, "BACKWARD_WEIGHT": Kind.W}


def loaded(count: int, pipeline: int, schedule: str = "Interleaved1F1B", **training: object) -> LoadedConfiguration:
    """Llama 3.1 8B with so many micro batches in a run of its pipeline."""
    parallelism = {"pipeline_parallel_degree": pipeline, "pipeline_parallel_schedule": schedule}
    return load(text(parallelism=parallelism, training={"local_batch_size": count, **training}))


def target(pipeline: int) -> Target:
    return Target(device="B200", nodes=1, devices_per_node=pipeline)


def resolved(configuration: LoadedConfiguration) -> Layout:
    return resolve(configuration.job, target(configuration.job.parallelism.pipeline))


def timed(configuration: LoadedConfiguration) -> PerformanceProjection:
    layout = resolved(configuration)
    return project_performance(configuration.job, target(layout.pipeline), layout, catalog.device("B200"))


def order_of_torch(
    monkeypatch: pytest.MonkeyPatch, *, pipeline: int, chunks: int, count: int, name: str = "Interleaved1F1B"
) -> list[list[Event]]:
    """What PyTorch's schedule runs on every rank; raises `ValueError` for a number that it refuses."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules", reason="torch is not installed")
    schedule: Any = getattr(schedules, f"Schedule{name}")

    def start(self: Any, *, stages: list[Any], n_microbatches: int, **_: object) -> None:  # noqa: ANN401 - torch's
        self._n_microbatches, self._stages, self._num_stages = n_microbatches, stages, pipeline * chunks
        self.pp_group_size = pipeline

    # Its stages hold modules and its base talks to other ranks; neither decides the order.
    monkeypatch.setattr(schedule.__mro__[1], "__init__", start)
    monkeypatch.setattr(schedule, "_prepare_schedule_with_comms", lambda *_: None, raising=False)
    stages = [
        SimpleNamespace(group_size=pipeline, group_rank=0, num_stages=pipeline * chunks, submod=None)
        for _ in range(chunks)
    ]
    found = schedule(stages, count).pipeline_order
    return [
        [
            Event(KINDS[action.computation_type.name], action.stage_index // pipeline, action.microbatch_index)
            for action in found[rank]
            if action is not None
        ]
        for rank in range(pipeline)
    ]


@pytest.mark.parametrize("pipeline", [2, 4, 8])
def test_interleaving_takes_and_refuses_what_pytorch_does_in_its_order(
    monkeypatch: pytest.MonkeyPatch, pipeline: int
) -> None:
    for count in range(1, 3 * pipeline + 2):
        try:
            theirs = order_of_torch(monkeypatch, pipeline=pipeline, chunks=2, count=count)
        except ValueError:
            with pytest.raises(BatchIndivisible, match=f"{count} micro batches over {pipeline} pipeline ranks"):
                loaded(count, pipeline)
            continue
        layout = resolved(loaded(count, pipeline))
        ours = order(Schedule.INTERLEAVED, pipeline, 2, layout.run_micro_batches, layout.micro_batch_group)
        assert [list(rank) for rank in ours.ranks] == theirs, count


@pytest.mark.parametrize(
    ("name", "schedule", "chunks"),
    [
        ("LoopedBFS", Schedule.LOOPED_BFS, 3),
        ("InterleavedZeroBubble", Schedule.INTERLEAVED_ZERO_BUBBLE, 2),
        ("InterleavedZeroBubble", Schedule.INTERLEAVED_ZERO_BUBBLE, 3),
        ("ZBVZeroBubble", Schedule.ZBV_FORMATTED, 2),
    ],
)
@pytest.mark.parametrize("pipeline", [2, 3, 8])
def test_other_schedules_of_pytorch_have_its_order(
    monkeypatch: pytest.MonkeyPatch, name: str, schedule: Schedule, chunks: int, pipeline: int
) -> None:
    for count in (pipeline, 2 * pipeline, 4 * pipeline):
        theirs = order_of_torch(monkeypatch, pipeline=pipeline, chunks=chunks, count=count, name=name)
        ours = order(schedule, pipeline, chunks, count)
        assert [list(rank) for rank in ours.ranks] == theirs


@pytest.mark.parametrize("schedule", ["GPipe", "LoopedBFS"])
def test_schedules_without_turns_keep_every_micro_batch(schedule: str) -> None:
    some, many = (timed(loaded(count, 2, schedule)).schedule.stages[0].peak_in_flight for count in (4, 32))
    assert (some, many) == (4, 32)
    peaks = [
        project_memory(each.job, resolved(each), catalog.device("B200")).stages[0].level_bytes(MemoryLevel.ALLOCATED)
        for each in (loaded(count, 2, schedule) for count in (10, 20, 30))
    ]
    assert peaks[2] - peaks[1] == pytest.approx(peaks[1] - peaks[0], rel=0.02)
    assert peaks[1] - peaks[0] > 0


def test_the_numbers_that_a_refusal_names_are_taken() -> None:
    with pytest.raises(BatchIndivisible, match=r"no 2 equal rounds; 18, or a multiple of 8$"):
        loaded(19, 8)
    assert resolved(loaded(18, 8)).micro_batch_group == 9
    assert resolved(loaded(24, 8)).micro_batch_group == 8


@pytest.mark.parametrize("schedule", ["1F1B", "DualPipeV"])
def test_schedules_that_need_a_micro_batch_for_each_stage_refuse_fewer(schedule: str) -> None:
    stages = 4 if schedule == "1F1B" else 8
    with pytest.raises(BatchIndivisible, match=f"{stages} micro batches or more"):
        loaded(stages - 1, 4, schedule)
    assert resolved(loaded(stages, 4, schedule)).micro_batches == stages


@pytest.mark.parametrize("schedule", ["GPipe", "LoopedBFS", "ZBVZeroBubble"])
def test_other_schedules_take_any_number(schedule: str) -> None:
    configuration = loaded(7, 2, schedule)
    assert resolved(configuration).micro_batches == 7
    assert timed(configuration).iteration_seconds > 0


def test_fewer_micro_batches_than_stages_are_answered() -> None:
    configuration = loaded(4, 8)
    layout = resolved(configuration)
    assert project_memory(configuration.job, layout, catalog.device("B200")).stages
    # Four micro batches in each of two chunks, counted in stages.
    assert timed(configuration).schedule.stages[0].peak_in_flight == 4


@pytest.mark.parametrize("count", [3, 8])
def test_accumulated_gradients_drain_the_pipeline_between_runs(count: int) -> None:
    once, thrice = (loaded(count, 4, global_batch_size=count * runs) for runs in (1, 3))
    layout = resolved(thrice)
    assert (layout.micro_batches, layout.pipeline_runs, layout.run_micro_batches) == (3 * count, 3, count)
    one, three = timed(once), timed(thrice)
    # A busier device clocks a little lower.
    assert three.bubble_ratio == pytest.approx(one.bubble_ratio, rel=0.05)
    waits = [next(step.seconds for step in each.waterfall if step.name == "pipeline bubble") for each in (one, three)]
    assert waits[1] == pytest.approx(3 * waits[0], rel=0.05)
    peaks = [project_memory(each.job, resolved(each), catalog.device("B200")).stages[0] for each in (once, thrice)]
    assert peaks[0].passes_in_flight == peaks[1].passes_in_flight
    # The second run finds the gradients of the first, which one run makes when its passes are over.
    held, later = ({part.name: part for part in peak.components} for peak in peaks)
    gradients = held.pop("gradients"), later.pop("gradients")
    assert [part.level for part in gradients] == [MemoryLevel.RESERVED, MemoryLevel.ALLOCATED]
    assert gradients[0].size_bytes == gradients[1].size_bytes
    inside = [
        [part for part in each.values() if part.level in {MemoryLevel.PERSISTENT, MemoryLevel.ALLOCATED}]
        for each in (held, later)
    ]
    assert inside[0] == inside[1]


def test_a_global_batch_of_no_whole_runs_is_refused() -> None:
    with pytest.raises(BatchIndivisible, match=r"12 micro batches .* pipeline runs of 8; a multiple of 8"):
        resolved(loaded(8, 4, global_batch_size=12))
