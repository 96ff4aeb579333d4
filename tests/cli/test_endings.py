"""However a command ends, its exit code says how and nobody sees a traceback that they did not ask for."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from projector.cli import main
from tests.cli.lines import SAMPLE, carried_out

COMMAND = (sys.executable, "-m", "projector", "both", "--config")


class Defect(Mapping[str, str]):
    """An environment that fails as a defect would."""

    def __getitem__(self, name: str) -> str:
        raise RuntimeError("made\nup")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("made\nup")

    def __len__(self) -> int:
        return 1


def test_a_defect_is_one_line_that_asks_for_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    ended = carried_out(capsys, "both", "--config", SAMPLE, environment=Defect())
    assert ended.code == 1
    assert ended.out == ""
    assert ended.err.startswith("projector: unexpected RuntimeError: made up. This is a defect of projector: ")
    assert ended.err.count("\n") == 1
    assert "--debug" in ended.err


def test_debug_adds_the_traceback_of_a_defect(capsys: pytest.CaptureFixture[str]) -> None:
    ended = carried_out(capsys, "both", "--config", SAMPLE, "--debug", environment=Defect())
    assert ended.code == 1
    assert "Traceback (most recent call last)" in ended.err


def test_debug_may_stand_in_front_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert carried_out(capsys, "--debug", "both", "--config", SAMPLE).code == 0


def test_ctrl_c_ends_quietly_with_130(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = subprocess.Popen((*COMMAND, str(pipe)), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    # The pipe opens for writing once the command has it open for reading.
    with pipe.open("wb"):
        command.send_signal(signal.SIGINT)
        out, err = command.communicate(timeout=60)
    assert (command.returncode, out, err) == (130, b"", b"")


def test_a_reader_that_goes_away_ends_it_quietly_with_141() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as gone:
        done = subprocess.run((*COMMAND, SAMPLE), stdout=gone, stderr=subprocess.PIPE, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_full_disk_is_one_clear_line() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run((*COMMAND, SAMPLE), stdout=full, stderr=subprocess.PIPE, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr == b"projector: standard output: cannot be written: No space left on device\n"


def test_a_closed_standard_output_leaves_the_exit_code() -> None:
    closed = ("sh", "-c", '"$@" >&-', "sh", *COMMAND, SAMPLE, "--check", "--gpu-arch", "H100")
    done = subprocess.run(closed, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (3, b"")


def test_output_that_is_not_utf_8_gets_escapes() -> None:
    command = (sys.executable, "-m", "projector", "show", "--config", SAMPLE, "wandb_project=caf\u00e9")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environment, capture_output=True, check=True, timeout=60)
    assert b'wandb_project = "caf\\xe9"' in done.stdout


def test_arguments_default_to_those_of_the_process(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["projector", "memory"])
    assert main() == 2
    assert "--config FILE, the training configuration, is needed" in capsys.readouterr().err
