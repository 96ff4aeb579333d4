"""Prints how long the cold command and one estimate take, beside a bare interpreter."""

import sys
import time
from pathlib import Path
from statistics import median

from projector.api import Question, project
from tests.bench.measure import paired

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "samples" / "experiments" / "llama3.1-70b-mi300x.yaml"
BARE = (sys.executable, "-c", "import json, argparse, dataclasses, decimal")
COMMAND = (
    *(sys.executable, "-m", "projector", "both", "--config", str(SAMPLE)),
    *("--target-nodes", "8", "--global-batch-size", "192", "--output", "json"),
)
REPEATS = 9


def _cold() -> None:
    bare, command = paired(BARE, COMMAND, REPEATS)
    fastest = min(run.seconds for run in command) / min(run.seconds for run in bare)
    print(f"bare interpreter          {min(r.seconds for r in bare) * 1e3:8.1f} ms")
    print(f"projector both, cold      {min(r.seconds for r in command) * 1e3:8.1f} ms   {fastest:.2f} x")
    print(f"peak memory               {max(r.peak_bytes for r in command) / 2**20:8.1f} MiB")


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


if __name__ == "__main__":
    _cold()
    _warm()
