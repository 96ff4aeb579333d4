"""The picture of a schedule, and the trace of it."""

import json
import re
from itertools import pairwise
from typing import Any

import pytest

from projector.job import Schedule
from projector.projection import ChunkDurations, PipelinePhase
from projector.report.timeline import picture
from projector.report.trace import trace
from projector.schedule import AVAILABLE, Replay, grouped, replay, suits

COLOUR = re.compile("\x1b\\[[0-9;]*m")


def a_run(schedule: Schedule, stages: int = 4, micro_batches: int = 8, *, chunks: int = 1) -> Replay:
    one = ChunkDurations(forward=1.0, backward_input=1.0, backward_weight=1.0)
    return replay(
        schedule,
        grouped(
            PipelinePhase(
                chunks=((one,) * chunks,) * stages, micro_batches=micro_batches, transfer_seconds=(0.0,) * stages
            )
        ),
    )


def test_1f1b_looks_as_in_the_paper() -> None:
    """Narayanan et al., arXiv 2104.04473, figure 4: a backward pass is twice a forward pass."""
    assert (
        picture(a_run(Schedule.ONE_F_ONE_B, 3, 3), width=8 + 45)
        == """\
        0                                     15.00 s
stage 0 F0>F1>F2>............B0<<<<...B1<<<<...B2<<<<
stage 1 ...F0>F1>......B0<<<<F2>B1<<<<...B2<<<<......
stage 2 ......F0>B0<<<<F1>B1<<<<F2>B2<<<<............
F forward, B backward; . waiting; numbers are micro batches"""
    )


@pytest.mark.parametrize("schedule", AVAILABLE)
@pytest.mark.parametrize("width", [40, 80, 137, 400])
@pytest.mark.parametrize("micro_batches", [4, 5, 100])
def test_every_line_has_the_width_and_colour_changes_no_character(
    schedule: Schedule, width: int, micro_batches: int
) -> None:
    run = a_run(schedule, micro_batches=micro_batches, chunks=2 if suits(schedule, 2) else 1)
    plain = picture(run, width=width)
    lines = plain.splitlines()[1:5]
    assert {len(line) for line in lines} <= {width, width - 1}
    assert len({len(line) for line in lines}) == 1
    coloured = picture(run, width=width, colour=True)
    assert COLOUR.sub("", coloured) == plain
    assert coloured.count("\x1b[0m") == coloured.count("\x1b[30;")
    assert all(set(line[8:]) <= set("FBWfbw<>=.~ 0123456789") for line in lines)


def test_kinds_are_told_apart_without_colour() -> None:
    rows = picture(a_run(Schedule.ZERO_BUBBLE, 2, 2), width=8 + 42).splitlines()[1:3]
    assert rows == ["stage 0 F0>>>>F1>>>>......B0<<<<W0====B1<<<<W1====".ljust(50, "."), rows[1]]
    assert re.findall("[FBW]", rows[1]) == ["F", "B", "F", "B", "W", "W"]


def test_the_middle_of_a_long_run_is_left_out_and_its_ends_are_numbered() -> None:
    first, *_, last, _ = picture(a_run(Schedule.ONE_F_ONE_B, 4, 500), width=80).splitlines()[1:]
    assert first.startswith("stage 0 F0F1F2F3")
    assert " ~ " in first
    assert first.endswith("B497..B498..B499")
    assert last.endswith("......")


def test_odd_chunks_are_in_lower_case() -> None:
    marks = set("".join(picture(a_run(Schedule.INTERLEAVED, 2, 2, chunks=2), width=80).splitlines()[1:3]))
    assert {"F", "f", "B", "b"} <= marks


def test_ten_stages_keep_their_lines_aligned() -> None:
    lines = picture(a_run(Schedule.ONE_F_ONE_B, 10, 10), width=120).splitlines()
    assert {line.index(" ", 6) for line in lines[1:10]} == {7}
    assert {len(line) for line in lines[1:11]} == {120}


def events(text: str) -> list[dict[str, Any]]:
    """The events of a trace, held against what the format asks of each kind."""
    document = json.loads(text)
    assert set(document) == {"displayTimeUnit", "traceEvents"}
    for event in document["traceEvents"]:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event["ph"] in {"X", "M"}
        if event["ph"] == "X":
            assert event["ts"] >= 0
            assert event["dur"] > 0
    found: list[dict[str, Any]] = document["traceEvents"]
    return found


@pytest.mark.parametrize("schedule", AVAILABLE)
def test_the_trace_holds_every_pass_once_and_none_of_a_stage_overlap(schedule: Schedule) -> None:
    chunks = 2 if suits(schedule, 2) else 1
    run = a_run(schedule, chunks=chunks)
    passes = [event for event in events(trace({"it": run})) if event["ph"] == "X"]
    kinds = 3 if schedule.splits_backward else 2
    assert len(passes) == len({(e["tid"], e["cat"], *e["args"].values()) for e in passes}) == 4 * 8 * chunks * kinds
    for rank in range(4):
        spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in passes if e["tid"] == rank)
        assert all(end <= start + 1e-3 for (_, end), (start, _) in pairwise(spans))
    assert max(event["ts"] + event["dur"] for event in passes) == pytest.approx(run.timeline.seconds * 1e6)


def test_schedules_are_processes_and_stages_threads_with_names() -> None:
    runs = {"a": a_run(Schedule.ONE_F_ONE_B, 2), "b": a_run(Schedule.ZERO_BUBBLE, 2)}
    told = [event for event in events(trace(runs)) if event["ph"] == "M"]
    named = {(e["pid"], e["tid"], e["name"]): e["args"].get("name") for e in told if "name" in e["args"]}
    assert named == {
        (0, 0, "process_name"): "a",
        (1, 0, "process_name"): "b",
        **{(process, rank, "thread_name"): f"stage {rank}" for process in (0, 1) for rank in (0, 1)},
    }
