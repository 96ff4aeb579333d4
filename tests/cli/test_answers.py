"""The command end to end, on the project's sample and on public recipes."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from projector.api import Question, project
from projector.cli import main
from projector.cli.parser import COMMANDS
from projector.projection import Projection
from tests.cli.answer import document
from tests.cli.lines import SAMPLE, SAMPLES, carried_out, complaint

BOTH = ("both", "--config", SAMPLE)
EIGHT_NODES = (*BOTH, "--target-nodes", "8", "--global-batch-size", "192")
PIPELINED = (
    "pipeline_model_parallel_size=4",
    "use_torch_fsdp2=false",
    "use_distributed_optimizer=true",
    "recompute_granularity=null",
    "micro_batch_size=1",
    "global_batch_size=64",
)
RECIPES = Path(os.environ.get("PRIMUS_ROOT", SAMPLES.parents[1] / "shared" / "primus")) / "examples" / "megatron"


def test_text_report_of_the_sample_starts_with_the_verdict_and_fits_the_screen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended = carried_out(capsys, *EIGHT_NODES)
    lines = ended.out.splitlines()
    assert (ended.code, ended.err) == (0, "")
    assert lines[0].endswith("on 64 x MI300X (8 nodes x 8)")
    assert lines[2].startswith("memory    ")
    assert "of 191.98 GiB usable per GPU" in lines[2]
    assert max(map(len, lines)) <= 80


def test_json_answer_follows_the_schema_and_names_the_target(capsys: pytest.CaptureFixture[str]) -> None:
    answer = document(capsys, *EIGHT_NODES)
    target = answer["target"]
    assert (target["nodes"], target["devices"], target["device"], target["scaling"]) == (8, 64, "MI300X", "strong")
    assert target["layout"]["data"] == 64
    assert target["batch"] == {"micro_batch": 3, "global_batch": 192, "micro_batches": 1, "sequence_length": 8192}
    assert answer["parameters"]["total"] == 70_553_706_496
    waterfall = sum(step["ms"] for step in answer["performance"]["waterfall"])
    assert waterfall == pytest.approx(answer["performance"]["iteration_time_ms"])


def test_every_form_holds_the_same_answer(capsys: pytest.CaptureFixture[str]) -> None:
    answer = document(capsys, *EIGHT_NODES)
    as_yaml = carried_out(capsys, *EIGHT_NODES, "--output", "yaml").out
    as_csv = carried_out(capsys, *EIGHT_NODES, "--output", "csv").out
    values = dict(csv.reader(io.StringIO(as_csv)))
    assert yaml.safe_load(as_yaml) == answer
    assert float(values["performance.iteration_time_ms"]) == answer["performance"]["iteration_time_ms"]


@pytest.mark.parametrize(
    ("command", "memory", "performance"),
    [("memory", True, False), ("performance", False, True), ("both", True, True), ("show", False, False)],
)
def test_each_command_answers_its_own_half(
    capsys: pytest.CaptureFixture[str], command: str, *, memory: bool, performance: bool
) -> None:
    answer = document(capsys, command, "--config", SAMPLE)
    assert (answer["memory"] is not None, answer["performance"] is not None) == (memory, performance)


def test_an_indivisible_batch_is_refused_with_the_numbers_and_the_nearest_batch(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = complaint(carried_out(capsys, *BOTH, "--target-nodes", "8"))
    for number in ("24", "3", "64", "192"):
        assert number in line.split(": ", 1)[1]


def test_weak_scaling_grows_the_batch_with_the_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    target = document(capsys, *BOTH, "--target-nodes", "8", "--scaling", "weak")["target"]
    assert (target["scaling"], target["batch"]["global_batch"]) == ("weak", 192)


def test_a_misspelt_override_names_the_nearest_value(capsys: pytest.CaptureFixture[str]) -> None:
    line = complaint(carried_out(capsys, *BOTH, "--micro_batch_sise", "4"))
    assert "micro_batch_sise" in line
    assert "did you mean micro_batch_size" in line


@pytest.mark.parametrize(
    ("environment", "place", "wanted"),
    [
        ({"PRIMUS_GPU_ARCH": "mi355x"}, ("device",), "MI355X"),
        ({"NNODES": "2", "GPUS_PER_NODE": "4"}, ("devices",), 8),
        ({"NNODES": "1"}, ("nodes",), 1),
    ],
    ids=str,
)
def test_variables_of_the_launcher_decide_the_target(
    capsys: pytest.CaptureFixture[str], environment: dict[str, str], place: tuple[str], wanted: object
) -> None:
    assert document(capsys, *BOTH, **environment)["target"][place[0]] == wanted


def test_an_unnamed_gpu_is_listed_as_assumed_and_a_named_one_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    def assumed(answer: dict[str, Any]) -> str:
        return " ".join(each["what"] for each in answer["job"]["assumed"])

    assert "MI300X" in assumed(document(capsys, *BOTH))
    assert "MI300X" not in assumed(document(capsys, *BOTH, "--gpu-arch", "mi300x"))


def test_what_has_no_effect_is_named_in_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    environment = {"RANK": "3", "PRIMUS_BENCH_WARMUP_ITERS": "5", "PRIMUS_TP": "4", "PRIMUS_TEAM": "red"}
    ignored = document(capsys, *BOTH, "--data_path", "/data", **environment)["job"]["ignored"]
    for name in ("--data_path (option: ", "RANK (env", "PRIMUS_BENCH_WARMUP_ITERS (env", "PRIMUS_TP (environment: the"):
        assert any(entry.startswith(name) for entry in ignored), name
    assert not any(entry.startswith("PRIMUS_TEAM") for entry in ignored), "the sample has ${PRIMUS_TEAM}"


def test_variables_reach_the_configuration_and_say_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    text = Path(SAMPLE).read_text(encoding="utf-8")
    job.write_text(text.replace("micro_batch_size: 3", "micro_batch_size: ${MY_BATCH:3}"), encoding="utf-8")
    answer = document(capsys, "memory", "--config", str(job), MY_BATCH="1")
    assert answer["target"]["batch"]["micro_batch"] == 1
    assert {"micro_batch_size": "variable"}.items() <= {e["key"]: e["source"] for e in answer["job"]["values"]}.items()


@pytest.mark.parametrize(
    ("tokens", "place", "wanted"),
    [
        (("--enable-zero-bubble",), ("performance", "schedule", "name"), "zerobubble"),
        (("--pipeline-schedule-algorithm", "1f1b"), ("performance", "schedule", "name"), "1f1b"),
        (("--num-virtual-stages-per-pipeline-rank", "5"), ("target", "layout", "virtual_pipeline"), 5),
        (("--micro-batch-size", "2"), ("target", "batch", "micro_batch"), 2),
        (("--global-batch-size", "128"), ("target", "batch", "global_batch"), 128),
        (("--devices-per-node", "4"), ("target", "devices_per_node"), 4),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_layout_options_reach_the_answer(
    capsys: pytest.CaptureFixture[str], tokens: tuple[str, ...], place: tuple[str, ...], wanted: object
) -> None:
    overrides = [each for each in PIPELINED if each.split("=")[0] not in "".join(tokens).replace("-", "_")]
    answer: Any = document(capsys, *BOTH, *overrides, *tokens)
    for step in place:
        answer = answer[step]
    assert answer == wanted


def test_comparing_schedules_fills_the_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    answer = document(capsys, *BOTH, *PIPELINED, "--pipeline-schedule-algorithm", "all")
    assert {"1f1b", "zerobubble"} <= {each["name"] for each in answer["performance"]["compared_schedules"]}


def test_a_hardware_file_changes_the_time(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    hardware = tmp_path / "slow.yaml"
    hardware.write_text("hardware_config:\n  node_bw: 50\n", encoding="utf-8")
    fast = document(capsys, *BOTH)["performance"]["iteration_time_ms"]
    slow = document(capsys, *BOTH, "--hardware-config", str(hardware))["performance"]["iteration_time_ms"]
    assert slow > fast


CALIBRATION = """
device: {device}
outside_allocator: {{bytes: 12884901888, groups: 3, source: "amd-smi less torch reserved, iteration 3"}}
rates: {{gemm: 520}}
"""


def test_a_calibration_file_narrows_the_interval_and_is_listed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    measured = tmp_path / "node.yaml"
    measured.write_text(CALIBRATION.format(device="gfx942"), encoding="utf-8")
    usual = document(capsys, *BOTH)["memory"]["stages"][0]
    answer = document(capsys, *BOTH, "--calibration", str(measured))
    stage = answer["memory"]["stages"][0]
    outside = [part["bytes"] for part in stage["components"] if part["level"] == "device"]
    assert sum(outside) == pytest.approx(12 * 2**30, abs=8 * 2**30)
    assert stage["device_bytes_upper"] - stage["device_bytes"] < usual["device_bytes_upper"] - usual["device_bytes"]
    assert any(each["what"] == "12.00 GiB outside PyTorch's allocator" for each in answer["job"]["assumed"])
    assert "calibration.rates" in answer["job"]["ignored"]


def test_a_calibration_of_another_gpu_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    measured = tmp_path / "node.yaml"
    measured.write_text(CALIBRATION.format(device="H100"), encoding="utf-8")
    line = complaint(carried_out(capsys, *BOTH, "--calibration", str(measured)))
    assert "calibration file.device: was measured on H100, and the job is projected on MI300X" in line
    measured.write_text(CALIBRATION.format(device="H1000"), encoding="utf-8")
    line = complaint(carried_out(capsys, *BOTH, "--calibration", str(measured)))
    assert line.startswith("calibration file.device: the GPU 'H1000' is not in the catalog")


def test_a_schedule_whose_order_another_one_lends_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("memory", "--config", SAMPLE, "--pipeline-schedule-algorithm", "seaailab-ilp", *PIPELINED)
    assumed = [each["what"] for each in document(capsys, *asked)["job"]["assumed"]]
    assert "the order of zerobubble-heuristic for seaailab-ilp" in assumed


EXPERTS = """
projector: 1
model: {catalog: mixtral-8x7b}
parallelism: {expert: 8}
batch: {micro: 1, global: 64, sequence_length: 4096}
"""


def test_a_stated_imbalance_of_routing_takes_the_place_of_an_assumed_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "experts.yaml"
    config.write_text(EXPERTS, encoding="utf-8")
    asked = ("memory", "--config", str(config), "--gpu-arch", "H200")
    free, stated = document(capsys, *asked), document(capsys, *asked, "--routing-imbalance", "2")
    in_file = document(capsys, *asked, "software.routing_imbalance=2")
    balanced = document(capsys, *asked, "--routing-imbalance", "1")
    assert stated["memory"] == in_file["memory"]

    def assumptions(answer: dict[str, Any]) -> list[str]:
        return [each["what"] for each in answer["job"]["assumed"] if "busiest GPU" in each["what"]]

    assert len(assumptions(free)) == 1
    assert assumptions(stated) == assumptions(balanced) == []
    least, usual, most = (answer["memory"]["stages"][0]["peak_allocated_bytes"] for answer in (balanced, free, stated))
    assert least < usual < most
    dense = document(capsys, "memory", "--config", SAMPLE, "--routing-imbalance", "2")
    assert "equal rows on every GPU" in [each["what"] for each in dense["job"]["assumed"]]
    line = complaint(carried_out(capsys, *asked, "--routing-imbalance", "9"))
    assert "routing_imbalance: a routing imbalance of 9 cannot be" in line


def test_safety_margin_widens_the_interval(capsys: pytest.CaptureFixture[str]) -> None:
    usual = document(capsys, *BOTH)["memory"]["stages"][0]
    wide = document(capsys, *BOTH, "--memory-safety-margin", "0.2")["memory"]["stages"][0]
    assert wide["device_bytes"] == usual["device_bytes"]
    assert wide["device_bytes_upper"] > usual["device_bytes_upper"]


@pytest.mark.parametrize(
    ("tokens", "verdict", "code", "warned"),
    [
        (("num_layers=2", "recompute_num_layers=2"), "Fits", 0, False),
        (("num_layers=2", "recompute_num_layers=2", "--memory-safety-margin", "50"), "AtRisk", 0, True),
        (("num_layers=400",), "DoesNotFit", 3, False),
    ],
)
def test_check_turns_the_verdict_into_an_exit_code(
    capsys: pytest.CaptureFixture[str], tokens: tuple[str, ...], verdict: str, code: int, *, warned: bool
) -> None:
    ended = carried_out(capsys, "memory", "--config", SAMPLE, *tokens, "--check", "--output", "json")
    assert json.loads(ended.out)["memory"]["verdict"] == verdict
    assert ended.code == code
    assert (f"--check passes with the verdict {verdict}" in ended.err) == warned
    assert carried_out(capsys, "memory", "--config", SAMPLE, *tokens).code == 0


def test_show_names_the_file_of_every_value(capsys: pytest.CaptureFixture[str]) -> None:
    ended = carried_out(capsys, "show", "--config", SAMPLE, "micro_batch_size=1")
    assert ended.code == 0
    assert "override\n  micro_batch_size = 1\n" in ended.out
    assert "  seq_length = 8192\n" in ended.out
    assert max(map(len, ended.out.splitlines())) <= 80
    answer = document(capsys, "show", "--config", SAMPLE, "micro_batch_size=1")
    for value in answer["job"]["values"]:
        assert f"  {value['key']} = " in ended.out


def test_show_gives_the_values_even_where_the_layout_is_impossible(capsys: pytest.CaptureFixture[str]) -> None:
    ended = carried_out(capsys, "show", "--config", SAMPLE, "--target-nodes", "8")
    assert ended.code == 2
    assert "  global_batch_size = 24\n" in ended.out
    assert ended.err.startswith("projector: global_batch_size: ")
    refused = carried_out(capsys, "show", "--config", SAMPLE, "--target-nodes", "8", "--output", "json")
    assert (refused.code, refused.out) == (2, "")


@pytest.mark.parametrize("command", ["models", "devices"])
def test_catalog_names_sources(capsys: pytest.CaptureFixture[str], command: str) -> None:
    text = carried_out(capsys, command)
    assert text.code == 0
    assert "\nSources\n" in text.out
    assert max(map(len, text.out.splitlines())) <= 80
    entries = json.loads(carried_out(capsys, command, "--output", "json").out)[command]
    for entry in entries:
        sources = entry["sources"] if command == "models" else [fact["source"] for fact in entry["facts"].values()]
        assert sources, entry["name"]
        assert any(line.split()[0] == entry["name"] for line in text.out.split("\n\n")[0].splitlines())


def test_every_fact_of_a_device_has_a_cited_source(capsys: pytest.CaptureFixture[str]) -> None:
    answer = json.loads(carried_out(capsys, "devices", "--output", "json").out)
    mi300x = next(device for device in answer["devices"] if device["name"] == "MI300X")
    capacity = mi300x["facts"]["memory_capacity_bytes"]
    assert capacity["value"] == pytest.approx(191.98 * 2**30, rel=1e-6)
    assert capacity["source"] in answer["sources"]


@pytest.mark.skipif(not RECIPES.is_dir(), reason="no checkout of AMD-AGI/Primus; set PRIMUS_ROOT")
@pytest.mark.parametrize("device", ["MI300X", "MI355X"])
def test_public_recipes_are_answered_or_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    """Each is answered once and printed twice, without replays of the allocator, which change nothing but figures."""
    answers: dict[str, Projection] = {}

    def once(question: Question) -> Projection:
        return answers.get(question.text) or answers.setdefault(question.text, project(question))

    monkeypatch.setattr("projector.cli.commands.project", once)
    monkeypatch.setattr("projector.memory.reserved.EFFORT_STEPS", 0)
    answered = 0
    for recipe in sorted(RECIPES.glob(f"configs/{device}/*-pretrain.yaml")):
        tokens = ("both", "--config", str(recipe), "--gpu-arch", device, "--primus-root", str(RECIPES.parents[1]))
        ended = carried_out(capsys, *tokens)
        if ended.code != 0:
            complaint(ended)
            continue
        answered += 1
        assert max(map(len, ended.out.splitlines())) <= 80, recipe.name
        document(capsys, *tokens)
    assert answered > 50


def test_console_command_and_module_are_the_same_door() -> None:
    command = [str(Path(sys.executable).with_name("projector")), *BOTH]
    module = [sys.executable, "-m", "projector", *BOTH]
    outputs = [subprocess.run(each, capture_output=True, check=True, text=True).stdout for each in (command, module)]
    assert outputs[0] == outputs[1]
    assert outputs[0].endswith("\n")


def test_every_command_is_answered_here() -> None:
    known = {"memory", "performance", "both", "schedule", "show", "convert", "models", "devices", "backends"}
    assert set(COMMANDS) == known
    assert main.__module__ == "projector.cli"
