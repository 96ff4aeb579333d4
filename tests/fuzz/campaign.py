"""A number of mutated files, divided over processes, and the figures of them all."""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.fuzz.mutations import CANARY

ROOT = Path(__file__).resolve().parents[2]
LARGEST_BYTES = 200 * 10**6
"""Resident memory that a process may have reached after all its files, the interpreter's own included."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """What became of all files."""

    files: int
    read: Counter[str]
    """Files that were read, by seed."""
    refused: Counter[str]
    """Files that got one clear line, by class of error."""
    slowest_seconds: float
    slowest: int
    """Number of the slowest file."""
    peak_bytes: int
    """Largest resident memory of a process."""
    failures: list[dict[str, object]]
    """Files that broke a promise."""


def campaign(
    files: int, *, seed: int, processes: int = 1, seconds: float | None = None, folders: Sequence[Path] = ()
) -> Figures:
    """Read `files` mutated files, or as many as `seconds` allow; a process that dies is a failure of its share."""
    with tempfile.TemporaryDirectory() as root:
        Path(root, "base.yaml").write_text("a: 1\n", encoding="utf-8")
        edges = [files * index // processes for index in range(processes + 1)]
        common = [f"--seed={seed}", f"--root={root}", *([] if seconds is None else [f"--seconds={seconds}"])]
        shares = [[f"--first={first}", f"--last={last}", *common] for first, last in pairwise(edges)]
        running = [_start(share, folders) for share in shares]
        tallies = [_finished(process, edges[index]) for index, process in enumerate(running)]
    slowest = max(tallies, key=lambda tally: tally["slowest_seconds"])
    return Figures(
        files=sum(tally["files"] for tally in tallies),
        read=sum((Counter(tally["read"]) for tally in tallies), Counter()),
        refused=sum((Counter(tally["refused"]) for tally in tallies), Counter()),
        slowest_seconds=slowest["slowest_seconds"],
        slowest=slowest["slowest"],
        peak_bytes=max(tally["peak_bytes"] for tally in tallies),
        failures=[failure for tally in tallies for failure in tally["failures"]],
    )


def _start(share: Sequence[str], folders: Sequence[Path]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.fuzz.worker", *share, *map(str, folders)]
    environment = {**os.environ, CANARY: "canary-of-the-process"}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def _finished(process: subprocess.Popen[str], first: int) -> dict[str, Any]:
    out, complaint = process.communicate()
    if process.returncode == 0:
        tally: dict[str, Any] = json.loads(out)
        return tally
    broken = f"the process of the files from {first} ended with {process.returncode}: {complaint[-500:]}"
    failure = {"number": first, "file": "", "broken": broken}
    empty = {"files": 0, "read": {}, "refused": {}, "slowest_seconds": 0.0, "slowest": -1, "peak_bytes": 0}
    return {**empty, "failures": [failure]}
