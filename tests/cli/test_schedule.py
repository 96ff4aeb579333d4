"""`projector schedule`: from a training configuration, from given chunk times, compared and traced."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.lines import SAMPLE, SAMPLES, Ended, carried_out, complaint

PIPELINE = str(SAMPLES / "schedules" / "four-stages.yaml")
JOB = ("--config", SAMPLE, "pipeline_model_parallel_size=4", "micro_batch_size=1", "global_batch_size=128")
TARGET = ("--target-nodes", "8")


def document(ended: Ended) -> dict[str, Any]:
    assert (ended.code, ended.err) == (0, "")
    read: dict[str, Any] = json.loads(ended.out)
    return read


def a_file(folder: Path, **keys: object) -> str:
    """A file of given chunk times: 4 stages and passes of 1, 1 and 1 ms unless said otherwise."""
    entries = {
        "stages": 4,
        "micro_batches": 8,
        "times_ms": {"forward": 1, "backward_input": 1, "backward_weight": 1},
        **keys,
    }
    path = folder / "times.yaml"
    path.write_text(yaml.safe_dump({"pipeline": entries}), encoding="utf-8")
    return str(path)


def test_a_training_configuration_is_drawn_with_the_chunk_times_of_its_projection(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (drawn,) = document(carried_out(capsys, "schedule", *JOB, *TARGET, "--output", "json"))["schedules"]
    projected = document(carried_out(capsys, "performance", *JOB, *TARGET, "--output", "json"))["performance"]
    assert {key: drawn[key] for key in ("name", "time_ms", "stages")} == projected["schedule"]
    assert drawn["iteration_time_ms"] == projected["iteration_time_ms"]
    assert (drawn["label"], drawn["micro_batches"], drawn["drawn_micro_batches"]) == ("1f1b", 8, 8)
    assert [len(stage["chunks"]) for stage in drawn["stages"]] == [1, 1, 1, 1]


KEPT = tuple(f"recompute_{key}=null" for key in ("granularity", "method", "num_layers"))
"""Nothing recomputed, as schedules that separate weight gradients want it."""


def test_options_of_a_projection_change_the_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    times = []
    for more in ((), ("--gpu-arch", "mi355x"), ("--pipeline-schedule-algorithm", "zerobubble")):
        (drawn,) = document(carried_out(capsys, "schedule", *JOB, *TARGET, *KEPT, *more, "--output", "json"))[
            "schedules"
        ]
        times.append((drawn["name"], drawn["time_ms"]))
    assert len(set(times)) == 3
    assert [name for name, _ in times] == ["1f1b", "1f1b", "zerobubble"]


def test_all_compares_what_the_framework_has_and_draws_what_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    line = ("schedule", *JOB, *TARGET, *KEPT, "--pipeline-schedule-algorithm", "all")
    found = document(carried_out(capsys, *line, "--output", "json"))
    assert [each["label"] for each in found["schedules"]] == ["1f1b"]
    assert {"1f1b", "zerobubble", "zerobubble-heuristic"} <= {each["name"] for each in found["compared_schedules"]}
    times = [each["iteration_time_ms"] for each in found["compared_schedules"]]
    assert times == sorted(times)
    assert all(each["peak_in_flight"] > 0 < each["peak_allocated_bytes"] for each in found["compared_schedules"])
    assert "Schedules compared\n" in carried_out(capsys, *line).out


def test_given_chunk_times_are_drawn_and_printed_by_stage(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = carried_out(capsys, "schedule", "--config", a_file(tmp_path)).out
    assert "4 stages, 8 micro batches: 33.0 ms, bubble 27.3 %" in out
    assert "stage 3 " in out
    assert "  0              24.0         0.0         9.0                      4.0" in out
    assert "  3              24.0         0.0         9.0                      1.0" in out


def test_all_of_given_chunk_times_draws_the_fastest(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = a_file(tmp_path, schedule="all", chunks=2)
    found = document(carried_out(capsys, "schedule", "--config", path, "--output", "json"))
    compared = {each["name"]: each for each in found["compared_schedules"]}
    assert {"1f1b-interleaved", "zbv-formatted", "zbv-greedy-half", "zbv-greedy-min", "looped-bfs"} <= set(compared)
    assert compared["zbv-formatted"]["time_ms"] == pytest.approx(51)
    assert compared["looped-bfs"]["peak_in_flight"] == 8
    (drawn,) = found["schedules"]
    assert drawn["time_ms"] == min(each["time_ms"] for each in found["compared_schedules"])


@pytest.mark.parametrize("micro_batches", [1, 2, 3, 6, 7, 10, 1001])
@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_any_number_of_micro_batches_is_answered(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, micro_batches: int, chunks: int
) -> None:
    path = a_file(tmp_path, schedule="all", chunks=chunks, micro_batches=micro_batches)
    found = document(carried_out(capsys, "schedule", "--config", path, "--output", "json"))
    assert len(found["compared_schedules"]) >= 3
    for each in found["compared_schedules"]:
        assert each["time_ms"] >= 3 * chunks * micro_batches


def test_a_file_may_name_several_schedules(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = a_file(tmp_path, schedule=["gpipe", "zerobubble"])
    found = document(carried_out(capsys, "schedule", "--config", path, "--output", "json"))
    assert [each["name"] for each in found["schedules"]] == ["gpipe", "zerobubble"]
    assert [each["name"] for each in found["compared_schedules"]] == ["zerobubble", "gpipe"]
    line = ("schedule", "--config", path, "--pipeline-schedule-algorithm", "1f1b", "--output", "json")
    assert [each["name"] for each in document(carried_out(capsys, *line))["schedules"]] == ["1f1b"]


def test_the_integer_program_is_called_the_heuristic_where_that_is_what_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = a_file(tmp_path, schedule="seaailab-ilp", micro_batches=500)
    found = document(carried_out(capsys, "schedule", "--config", path, "--output", "json"))
    assert (found["schedules"][0]["name"], found["schedules"][0]["label"]) == ("zerobubble-heuristic",) * 2
    assert found["assumed"][0]["what"] == "the order of zerobubble-heuristic for seaailab-ilp"


def test_too_few_micro_batches_are_warned_about_everywhere(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (warning,) = document(carried_out(capsys, "both", *JOB, *TARGET, "--output", "json"))["performance"]["warnings"]
    assert warning.startswith("8 micro batches for 4 pipeline stages: 28.")
    assert "(a global batch of " in warning
    for command in ("performance", "both", "schedule"):
        text = " ".join(carried_out(capsys, command, *JOB, *TARGET).out.split())
        assert f"Warnings -------- - {warning}" in text
    given = document(carried_out(capsys, "schedule", "--config", a_file(tmp_path), "--output", "json"))
    waiting = "8 micro batches for 4 pipeline stages: 27.3 % of the pipeline phase is waiting"
    assert given["warnings"] == [f"{waiting}; about 27 micro batches would bring it to 10 %"]
    many = (*JOB[:-1], "global_batch_size=1024")
    assert document(carried_out(capsys, "both", *many, *TARGET, "--output", "json"))["performance"]["warnings"] == []


def test_the_trace_is_written_beside_every_form(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, trace = a_file(tmp_path, schedule=["1f1b", "1f1b"]), tmp_path / "trace.json"
    for form in ("text", "json", "yaml", "csv"):
        assert carried_out(capsys, "schedule", "--config", path, "--trace", str(trace), "--output", form).code == 0
        events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
        assert sum(event["ph"] == "X" for event in events) == 2 * 4 * 8 * 2
        assert {event["args"]["name"] for event in events if event["name"] == "process_name"} == {"1f1b", "1f1b 1"}
        trace.unlink()


def test_forms_hold_the_same(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    line = ("schedule", "--config", a_file(tmp_path), "--output")
    known = document(carried_out(capsys, *line, "json"))
    assert yaml.safe_load(carried_out(capsys, *line, "yaml").out) == known
    rows = list(csv.reader(io.StringIO(carried_out(capsys, *line, "csv").out)))
    assert ["schedules.0.stages.0.bubble_ms", json.dumps(known["schedules"][0]["stages"][0]["bubble_ms"])] in rows


def test_width_and_colour_are_as_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = a_file(tmp_path)
    plain = carried_out(capsys, "schedule", "--config", path, "--width", "120").out
    assert {len(line) for line in plain.splitlines() if line.startswith("stage ")} == {120}
    assert "\x1b" not in plain
    assert "\x1b[30;44m" in carried_out(capsys, "schedule", "--config", path, "--color", "always").out


def test_the_file_of_primus_is_answered(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "pp_simulation.yaml"
    scheduler = "pp_size: 8, micro_batches: 32"
    algorithms = "primus.core.pipeline_parallel.scheduler.algorithms"
    path.write_text(
        "fwd_time: 1000\nbwd_time: 1000\nwgrad_time: 1000\noutput_dir: x\nschedulers:\n"
        f"- {{name: basic_1f1b, class: {algorithms}.basic_1f1b.Schedule1F1B, vpp_size: 1, {scheduler}}}\n"
        f"- {{name: zbv, class: {algorithms}.zbv_formatted.ScheduleZBVFormatted, vpp_size: 2, {scheduler}}}\n",
        encoding="utf-8",
    )
    found = document(carried_out(capsys, "schedule", "--config", str(path), "--output", "json"))
    assert [(each["label"], each["name"], each["time_ms"]) for each in found["schedules"]] == [
        ("basic_1f1b", "1f1b", 117_000.0),
        ("zbv", "zbv-formatted", 99_500.0),
    ]
    assert found["ignored"] == ["output_dir"]


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        (
            ("--gpu-arch", "mi300x"),
            "--gpu-arch: concerns a training configuration, not given chunk times; one of --color",
        ),
        (("stage=3",), f"{PIPELINE}: pipeline.stage: is not a known key; did you mean stages?"),
        (
            ("schedule=1f1b",),
            "pipeline schedule: 1f1b with 2 model chunks per stage; 1f1b needs 1",
        ),
        (("schedule=interleaved-zerobubble", "chunks=2", "micro_batch_group=3"), "pipeline schedule interleaved-zero"),
        (
            ("stages=2000", "chunks=1", "micro_batches=9999", "times_ms={'forward': 1, 'backward': 2}", "schedule=all"),
            "pipeline_model_parallel_si",
        ),
        (("--trace", "/nowhere/x"), "--trace /nowhere/x: the folder 'nowhere' does not exist"),
        (("--trace", PIPELINE), f"--trace {PIPELINE}: is a file that was read; another file: an input is never"),
        (("--width", "10"), "--width: 10 columns; a number from 40 to 10000"),
    ],
    ids=lambda value: " ".join(value).replace(PIPELINE, "FILE") if isinstance(value, tuple) else "",
)
def test_wrong_use_is_one_clear_line(capsys: pytest.CaptureFixture[str], more: tuple[str, ...], wanted: str) -> None:
    assert complaint(carried_out(capsys, "schedule", "--config", PIPELINE, *more)).startswith(wanted)


def test_a_training_configuration_is_never_overwritten_by_its_trace(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    copy = tmp_path / "job.yaml"
    copy.write_text(Path(SAMPLE).read_text(encoding="utf-8"), encoding="utf-8")
    line = carried_out(capsys, "schedule", "--config", str(copy), *JOB[2:], *TARGET, "--trace", str(copy))
    assert "is a file that was read" in complaint(line)
