"""Command lines for tests: understood, and carried out."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from projector.cli import main
from projector.cli.parser import read_command_line
from projector.cli.question import Said, understand

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
SAMPLE = str(SAMPLES / "experiments" / "llama3.1-70b-mi300x.yaml")


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


def understood(*tokens: str, **environment: str) -> Said:
    """What a command line means in an environment."""
    return understand(read_command_line(tokens), environment)


def carried_out(
    capsys: pytest.CaptureFixture[str], *tokens: str, environment: Mapping[str, str] | None = None
) -> Ended:
    """Run a command in this process."""
    code = main(tokens, environment or {})
    out, err = capsys.readouterr()
    return Ended(code=code, out=out, err=err)


def complaint(ended: Ended) -> str:
    """The one line that a refused command prints on standard error."""
    assert ended.code == 2, ended
    assert ended.out == ""
    lines = ended.err.splitlines()
    assert len(lines) == 1, ended.err
    assert lines[0].startswith("projector: ")
    return lines[0].removeprefix("projector: ")
