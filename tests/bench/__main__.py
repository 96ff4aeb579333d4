"""Prints how long the cold command and one estimate take, beside a bare interpreter."""

import contextlib
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from projector.api import Question, project
from projector.config import overrides_from_pairs, read_file
from projector.errors import InputError
from tests.bench import memory, performance
from tests.bench.measure import paired
from tests.config.primus_tree import ROOT as PRIMUS
from tests.config.primus_tree import recipes

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "samples" / "experiments" / "llama3.1-70b-mi300x.yaml"
BARE = (sys.executable, "-c", "import json, argparse, dataclasses, decimal")
COMMAND = (
    *(sys.executable, "-m", "projector", "both", "--config", str(SAMPLE)),
    *("--target-nodes", "8", "--global-batch-size", "192", "--output", "json"),
)
REPEATS = 9
NEEDED = [("micro_batch_size", "1"), ("global_batch_size", "64"), ("seq_length", "4096")]
"""What a config.json does not say."""


def _cold() -> None:
    bare, command = paired(BARE, COMMAND, REPEATS)
    fastest = min(command) / min(bare)
    print(f"bare interpreter          {min(bare) * 1e3:8.1f} ms")
    print(f"projector both, cold      {min(command) * 1e3:8.1f} ms   {fastest:.2f} x")


def _warm() -> None:
    question = Question(
        text=SAMPLE.read_text(encoding="utf-8"),
        name=SAMPLE.name,
        nodes=8,
        overrides={"global_batch_size": "192"},
        device="MI300X",
    )
    project(question)
    times = []
    for _ in range(30):
        start = time.perf_counter()
        project(question)
        times.append(time.perf_counter() - start)
    print(f"one projection, warm      {median(times) * 1e3:8.1f} ms (median of {len(times)})")


def _reading() -> None:
    """The samples of every format, and the slowest public recipe where a Primus checkout is at hand."""
    for sample in (SAMPLE, *sorted((ROOT / "samples" / "configurations").glob("*-*b*.*"))):
        given = overrides_from_pairs(NEEDED) if sample.suffix == ".json" else ()
        print(f"reading {sample.name:34}{_read_seconds(sample, overrides=given) * 1e3:8.1f} ms, warm")
    slowest = max(((_read_seconds(path, primus_root=PRIMUS), path.name) for path in recipes()), default=None)
    if slowest is not None:
        print(f"slowest public recipe     {slowest[0] * 1e3:8.1f} ms, warm ({slowest[1]})")


def _read_seconds(path: Path, **given: Any) -> float:  # noqa: ANN401 - what `read_file` takes
    """Processor time of the fastest of a few readings; one that is refused counts as read."""
    times = []
    for _ in range(4):
        start = time.process_time()
        with contextlib.suppress(InputError):
            read_file(path, **given)
        times.append(time.process_time() - start)
    return min(times)


if __name__ == "__main__":
    _cold()
    _warm()
    _reading()
    for line in (*memory.lines(), *performance.lines()):
        print(line)
