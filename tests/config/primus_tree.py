"""Where the public Primus recipes and the values that Primus itself resolves are, for tests that need them."""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

_BESIDE = Path(__file__).parents[3] / "shared"
ROOT = Path(os.environ.get("PRIMUS_ROOT", _BESIDE / "primus"))
REFERENCE = Path(os.environ.get("PRIMUS_REFERENCE", _BESIDE / "primus-reference.json"))

needs_tree = pytest.mark.skipif(
    not (ROOT / "primus" / "configs").is_dir(), reason=f"no Primus tree at {ROOT} (set PRIMUS_ROOT)"
)
needs_reference = pytest.mark.skipif(
    not REFERENCE.is_file(), reason=f"no resolved values of Primus at {REFERENCE} (set PRIMUS_REFERENCE)"
)


@cache
def reference() -> dict[str, dict[str, Any]]:
    """Values that Primus's own loader resolved, by recipe and key."""
    values: dict[str, dict[str, Any]] = json.loads(REFERENCE.read_text())["loader_values"]
    return values


def recipes(folder: str = "examples") -> list[Path]:
    """Every YAML file below a folder of the tree."""
    return sorted((ROOT / folder).rglob("*.yaml"))
