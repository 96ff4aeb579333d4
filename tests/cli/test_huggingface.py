"""A Hugging Face config.json, or a model's name, on the command line, with files beside it."""

import json
from pathlib import Path

import pytest

from tests.cli.lines import SAMPLE, carried_out, complaint, understood
from tests.config.huggingface.builders import LLAMA, RUN

ZERO = {"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}}


@pytest.fixture
def config(tmp_path: Path) -> str:
    """A config.json, with a DeepSpeed file beside it."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA), encoding="utf-8")
    (tmp_path / "ds.json").write_text(json.dumps(ZERO, indent="\t"), encoding="utf-8")
    return str(path)


def test_report_of_a_config_with_a_deepspeed_file(capsys: pytest.CaptureFixture[str], config: str) -> None:
    beside = str(Path(config).with_name("ds.json"))
    ended = carried_out(capsys, "both", "--config", config, "--with", beside, *RUN, "--target-nodes", "2")
    assert (ended.code, ended.err) == (0, "")
    assert "on 16 x MI300X (2 nodes x 8)" in ended.out
    assert "shards: parameters" in " ".join(ended.out.split())


def test_batch_options_reach_the_run(capsys: pytest.CaptureFixture[str], config: str) -> None:
    beside = str(Path(config).with_name("ds.json"))
    options = ("--micro-batch-size", "2", "--global-batch-size", "64", "--target-nodes", "1")
    ended = carried_out(capsys, "memory", "--config", config, "--with", beside, "seq_length=4096", *options)
    assert (ended.code, ended.err) == (0, "")
    assert "64 sequences of 4096 tokens: 4 micro batches of 2" in " ".join(ended.out.split())


@pytest.mark.parametrize("name", ["llama3.1-70b", "meta-llama/Llama-3.1-70B"])
def test_name_of_a_model_stands_for_its_config(capsys: pytest.CaptureFixture[str], name: str) -> None:
    ended = carried_out(capsys, "memory", "--config", name, *RUN, "tensor_model_parallel_size=8")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("llama3.1-70b on 8 x MI300X")


def test_file_goes_before_a_model_of_its_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "llama3.1-70b").write_text("a: 1\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert "not a training configuration" in complaint(carried_out(capsys, "memory", "--config", "llama3.1-70b", *RUN))


def test_option_may_be_repeated() -> None:
    said = understood("both", "--config", "config.json", "--with", "a.yaml", "--with", "b.json")
    assert said.switches["with"] == (Path("a.yaml"), Path("b.json"))


def test_file_beside_another_dialect_is_refused(capsys: pytest.CaptureFixture[str], config: str) -> None:
    beside = str(Path(config).with_name("ds.json"))
    line = complaint(carried_out(capsys, "memory", "--config", SAMPLE, "--with", beside))
    assert line.startswith(f"{beside}: stands beside a configuration of the format primus")
