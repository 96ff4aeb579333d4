"""Step times from given chunk times, beside those that AMD Primus's own pipeline simulation printed for them.

`PRIMUS_REFERENCE` names the file (see tests/config/primus_tree.py). Every row of it is equal, or stands in
`primus_differences.yaml` with the ratio of both and the reason.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from projector.job import Schedule
from projector.projection import ChunkDurations, PipelinePhase
from projector.schedule import Kind, grouped, order, phase_time
from tests.config.primus_tree import REFERENCE

needs_reference = pytest.mark.skipif(
    not REFERENCE.is_file(), reason=f"no step times of Primus at {REFERENCE} (set PRIMUS_REFERENCE)"
)
DIFFERENCES: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "primus_differences.yaml").read_text(encoding="utf-8")
)
SCHEDULES = {
    "basic_1f1b": Schedule.ONE_F_ONE_B,
    "interleaved_1f1b": Schedule.INTERLEAVED,
    "zerobubble": Schedule.ZERO_BUBBLE,
    "zerobubble-heuristic": Schedule.ZERO_BUBBLE_HEURISTIC,
    "zbv-formatted": Schedule.ZBV_FORMATTED,
    "zbv-greedy-half": Schedule.ZBV_GREEDY_HALF,
    "zbv-greedy-min": Schedule.ZBV_GREEDY_MIN,
}
NEEDS_A_FULL_PIPELINE = {"basic_1f1b", "interleaved_1f1b"}
"""Primus's simulation of these stops where it waits for a micro batch that does not exist; its time is then cut."""


class Row(NamedTuple):
    """A step time that Primus printed."""

    id: int
    name: str
    milliseconds: float
    phase: PipelinePhase

    @property
    def schedule(self) -> Schedule:
        return SCHEDULES[self.name]

    def ratio(self, milliseconds: float) -> float:
        return milliseconds / self.milliseconds


def rows() -> Iterator[Row]:
    for record in json.loads(REFERENCE.read_text(encoding="utf-8"))["records"]:
        for each in record.get("schedulers", ()):
            if not (record.get("schedule_deadlock") and each["name"] in NEEDS_A_FULL_PIPELINE):
                phase = phase_of(record["stage_chunk_times"], SCHEDULES[each["name"]], each["micro_batches"])
                yield Row(record["id"], each["name"], each["step_time_ms"], phase)


def phase_of(times: list[list[dict[str, float]]], schedule: Schedule, micro_batches: int) -> PipelinePhase:
    """Times in milliseconds; Primus halves the backward pass where the schedule divides it."""
    weight = 0.5 if schedule.splits_backward else 0.0
    chunks = tuple(
        tuple(
            ChunkDurations(
                forward=one["fwd"], backward_input=one["bwd"] * (1 - weight), backward_weight=one["bwd"] * weight
            )
            for one in rank
        )
        for rank in times
    )
    phase = PipelinePhase(chunks=chunks, micro_batches=micro_batches, transfer_seconds=(0.0,) * len(chunks))
    return grouped(phase) if schedule is Schedule.INTERLEAVED else phase


@needs_reference
def test_every_row_is_equal_or_explained() -> None:
    told = {(each["schedule"], row): ratio for each in DIFFERENCES for row, ratio in each["rows"].items()}
    found = {(row.name, row.id): row.ratio(phase_time(row.schedule, row.phase).seconds) for row in rows()}
    assert len(found) == 877
    assert told.keys() <= found.keys()
    for key, ratio in found.items():
        assert ratio == pytest.approx(told.get(key, 1.0), abs=1e-4), key


@needs_reference
def test_zbv_is_equal_with_as_many_micro_batches_as_primus_runs() -> None:
    """It never runs fewer than 2 x stages - 1."""
    for row in rows():
        if row.schedule is Schedule.ZBV_FORMATTED:
            run = replace(row.phase, micro_batches=max(row.phase.micro_batches, 2 * row.phase.stages - 1))
            assert row.ratio(phase_time(row.schedule, run).seconds) == pytest.approx(1, abs=1e-6)


@needs_reference
def test_interleaving_is_equal_where_forwards_are_handed_over_behind_the_next_backward() -> None:
    """Primus writes the send of a forward behind the backward that follows it (interleaved_1f1b.py)."""
    compared = 0
    for row in rows():
        count, stages = row.phase.micro_batches, row.phase.stages
        if row.schedule is Schedule.INTERLEAVED and count > stages and count % stages == 0:
            assert row.ratio(late_handed_over(row.phase)) == pytest.approx(1, abs=1e-6)
            compared += 1
    assert compared == 29


def late_handed_over(phase: PipelinePhase) -> float:
    """Length of an interleaved run in which a forward's output leaves after the backward that follows it."""
    known = order(Schedule.INTERLEAVED, phase.stages, phase.chunks_per_stage, phase.micro_batches)
    last = phase.stages * phase.chunks_per_stage - 1
    left: dict[tuple[Kind, int, int], float] = {}
    clocks, places = [0.0] * phase.stages, [0] * phase.stages
    held: dict[int, list[tuple[Kind, int, int]]] = defaultdict(list)
    while any(place < len(events) for place, events in zip(places, known.ranks, strict=True)):
        for rank, events in enumerate(known.ranks):
            for place in range(places[rank], len(events)):
                kind, chunk, index = events[place]
                stage, step = known.virtual_stage(rank, chunk), -1 if kind is Kind.F else 1
                if stage != (0 if kind is Kind.F else last):
                    if (kind, stage + step, index) not in left:
                        break
                    clocks[rank] = max(clocks[rank], left[kind, stage + step, index])
                one = phase.chunks[rank][chunk]
                clocks[rank] += one.forward if kind is Kind.F else one.backward_input + one.backward_weight
                places[rank] += 1
                held[rank].append((kind, stage, index))
                if not (kind is Kind.F and place + 1 < len(events) and events[place + 1].kind is Kind.B):
                    left.update(dict.fromkeys(held.pop(rank), clocks[rank]))
    return max(clocks)
