"""The command line: what it takes, what it refuses, and in which words."""

import json
import logging
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from projection_operator import logs
from projection_operator.api.names import Key
from projection_operator.main import main


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "required: command"),
        (["run", "--metrics-port", "70000"], "'70000' is not a port"),
        (["run", "--resync-seconds", "0"], "'0' is not a number of seconds above 0"),
        (["run", "--probe-seconds", "nan"], "'nan' is not a number of seconds"),
        (["run", "--workers", "0"], "'0' is not a number of at least 1"),
        (["run", "--primus-root", "/nowhere"], "'/nowhere' is not a folder"),
        (["run", "--kubeconfig", "/nowhere"], "'/nowhere' is not a readable file"),
        (["run", "--log-level", "loud"], "invalid choice: 'loud'"),
        (["webhook"], "not available yet"),
    ],
)
def test_wrong_usage_ends_with_2_and_one_clear_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(arguments)
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    assert code == 2
    assert words in capsys.readouterr().err.splitlines()[-1]


def test_missing_credentials_end_with_2_and_say_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main(["run"]) == 2
    assert "give --kubeconfig FILE" in capsys.readouterr().err


def test_a_broken_kubeconfig_ends_with_2_and_names_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config"
    path.write_text("{", encoding="utf-8")
    assert main(["run", "--kubeconfig", str(path)]) == 2
    assert str(path) in capsys.readouterr().err


def test_a_taken_port_ends_the_process_with_1_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config"
    content = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "x", "user": {}}],
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "projection_operator", "run", f"--kubeconfig={path}", "--host=127.0.0.1"]
        done = subprocess.run([*command, f"--metrics-port={port}"], capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode == 1
    assert str(port) in lines[-1]["message"]
    assert "exception" not in lines[-1]


def record(**extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"msg": "Said %s", "args": ("so",), "levelname": "INFO", "name": "here"})
    vars(made).update(extra)
    return made


def test_logs_are_json_and_carry_the_request() -> None:
    formatter = logs.JsonFormatter()
    with logs.about(Key("team", "llama")):
        inside = json.loads(formatter.format(record(reason="Projected")))
    outside = json.loads(formatter.format(record()))
    assert (inside["message"], inside["request"], inside["reason"]) == ("Said so", "team/llama", "Projected")
    assert "request" not in outside


def test_logs_of_kopf_carry_the_request_too() -> None:
    made = record(k8s_ref={"namespace": "team", "name": "llama"}, settings=object())
    assert json.loads(logs.JsonFormatter().format(made))["request"] == "team/llama"


def test_the_fields_of_a_line_cannot_be_overwritten_in_silence() -> None:
    entry = json.loads(logs.JsonFormatter().format(record(path="/x", error=ValueError("why"))))
    assert (entry["path"], entry["error"], entry["level"]) == ("/x", "why", "info")
