"""`projector convert` and `--export_config`: the effective configuration in the project's own format."""

import json
import os
import re
from pathlib import Path

import pytest

from projector.config import LoadedConfiguration, read
from tests.cli.lines import SAMPLE, carried_out, complaint

CONVERT = ("convert", "--config", SAMPLE)
HARDWARE = "hardware_config: {node_bw: 448}\n"


def back(text: str) -> LoadedConfiguration:
    return read(text, name="own.yaml")


def test_convert_prints_what_reads_back_to_the_same_answer(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(carried_out(capsys, *CONVERT).out, encoding="utf-8")
    answers = [
        json.loads(carried_out(capsys, "both", "--config", str(each), "--output", "json").out)
        for each in (SAMPLE, path)
    ]
    assert [answer["job"]["format"] for answer in answers] == ["primus", "projector"]
    for part in ("memory", "performance", "parameters", "unmodelled"):
        assert answers[0][part] == answers[1][part]


def test_json_reads_back_to_the_same_job_as_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    texts = [carried_out(capsys, *CONVERT, "--output", form).out for form in ("text", "yaml", "json")]
    assert texts[0] == texts[1]
    assert json.loads(texts[2])["projector"] == 1
    assert back(texts[0]).job == back(texts[2]).job


def test_overrides_options_and_the_cluster_are_in_what_is_converted(capsys: pytest.CaptureFixture[str]) -> None:
    ended = carried_out(
        capsys, *CONVERT, "tensor_model_parallel_size=2", "--micro-batch-size", "4", environment={"NNODES": "3"}
    )
    loaded = back(ended.out)
    assert (loaded.job.parallelism.tensor, loaded.job.batch.micro) == (2, 4)
    assert (loaded.nodes, loaded.devices_per_node) == (3, None)


def test_a_configuration_that_fits_no_target_is_converted_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    ended = carried_out(capsys, *CONVERT, "global_batch_size=7")
    assert (ended.code, back(ended.out).job.batch.global_) == (0, 7)


def test_what_has_no_influence_is_named_in_what_is_converted(capsys: pytest.CaptureFixture[str]) -> None:
    out = carried_out(capsys, *CONVERT, "--data_path", "/data").out
    comments = " ".join(line.removeprefix("# ") for line in out.splitlines() if line.startswith("#"))
    assert re.search(r"adam_beta1, .*--data_path \(option: data is not read", comments)


@pytest.mark.parametrize("command", ["memory", "performance", "both", "show", "convert"])
def test_every_command_exports_the_effective_configuration(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    path = tmp_path / "effective.yaml"
    path.write_text("an older one", encoding="utf-8")
    line = (command, "--config", SAMPLE, "--target-nodes", "2", "global_batch_size=48")
    plain, ended = carried_out(capsys, *line), carried_out(capsys, *line, "--export_config", str(path))
    assert (ended.code, ended.out, ended.err) == (0, plain.out, "")
    loaded = back(path.read_text(encoding="utf-8"))
    assert (loaded.nodes, loaded.job.batch.global_) == (2, 48)
    assert list(tmp_path.iterdir()) == [path]


def test_the_schedule_that_was_asked_for_is_exported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "effective.yaml"
    line = ("performance", "--config", SAMPLE, "--pipeline-schedule-algorithm", "1f1b", "--export_config", str(path))
    assert carried_out(capsys, *line).code == 0
    assert back(path.read_text(encoding="utf-8")).job.schedule == "1f1b"


def test_no_input_is_ever_overwritten(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    paths = {name: tmp_path / name for name in ("base.yaml", "job.yaml", "hardware.yaml", "link.yaml", "hard.yaml")}
    paths["base.yaml"].write_bytes(Path(SAMPLE).read_bytes())
    paths["job.yaml"].write_text("extends: base.yaml\n", encoding="utf-8")
    paths["hardware.yaml"].write_text(HARDWARE, encoding="utf-8")
    paths["link.yaml"].symlink_to(paths["job.yaml"])
    os.link(paths["job.yaml"], paths["hard.yaml"])
    contents = {path: path.read_bytes() for path in paths.values()}
    line = ("both", "--config", str(paths["job.yaml"]), "--hardware-config", str(paths["hardware.yaml"]))
    for path in paths.values():
        refused = complaint(carried_out(capsys, *line, "--export_config", str(path)))
        wanted = "is a file that was read; another file: an input is never overwritten"
        assert refused == f"--export_config {path}: {wanted}"
    assert {path: path.read_bytes() for path in paths.values()} == contents


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("absent/job.yaml", "absent/job.yaml: the folder 'absent' does not exist"),
        ("inner", "inner: is no regular file; the name of a file"),
        ("pipe", "pipe: is no regular file; the name of a file"),
        ("file/job.yaml", "file/job.yaml: the folder 'file' does not exist"),
        ("x" * 300, "cannot be written: File name too long"),
        ("a\0b", "cannot be written: embedded null byte"),
    ],
    ids=["missing folder", "folder", "pipe", "file as folder", "long name", "null byte"],
)
def test_a_file_that_cannot_be_written_is_one_clear_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, wanted: str
) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "file").write_text("", encoding="utf-8")
    os.mkfifo(tmp_path / "pipe")
    before = sorted(tmp_path.iterdir())
    line = complaint(carried_out(capsys, "both", "--config", SAMPLE, "--export_config", str(tmp_path / name)))
    assert line.startswith(f"--export_config {tmp_path}/")
    assert line.endswith(wanted)
    assert sorted(tmp_path.iterdir()) == before


def test_nothing_is_exported_where_there_is_no_answer(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "effective.yaml"
    line = ("both", "--config", SAMPLE, "global_batch_size=7", "--export_config", str(path))
    assert carried_out(capsys, *line).code == 2
    assert not path.exists()


@pytest.mark.parametrize(
    "arguments", [("--backend_path",), ("--backend_path", "/somewhere"), ("--data_path", "./data")]
)
def test_paths_of_a_run_change_nothing_and_are_named(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    plain, given = (
        json.loads(carried_out(capsys, "both", "--exp", SAMPLE, *more, "--output", "json").out)
        for more in ((), arguments)
    )
    (named,) = set(given["job"]["ignored"]) - set(plain["job"]["ignored"])
    assert named.startswith(f"{arguments[0]} (option: ")
    assert {**given, "job": None} == {**plain, "job": None}
