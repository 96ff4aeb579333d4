"""The JSON answer of a command, held against the published schema."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import projector.document
from tests.cli.lines import carried_out

SCHEMA = jsonschema.Draft202012Validator(
    json.loads((Path(projector.document.__file__).parent / "projection.schema.json").read_text(encoding="utf-8"))
)


def document(capsys: pytest.CaptureFixture[str], *tokens: str, **environment: str) -> dict[str, Any]:
    """The JSON answer of a command that succeeds, held against the published schema."""
    ended = carried_out(capsys, *tokens, "--output", "json", environment=environment)
    assert ended.code == 0, ended.err
    answer: dict[str, Any] = json.loads(ended.out)
    SCHEMA.validate(answer)
    return answer
