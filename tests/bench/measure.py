"""Runs a command cold and tells its wall time."""

import subprocess
import time
from collections.abc import Sequence


def cold_seconds(command: Sequence[str]) -> float:
    """Wall time from the command's start to its end; raises `CalledProcessError` when it fails."""
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def paired(first: Sequence[str], second: Sequence[str], repeats: int) -> tuple[list[float], list[float]]:
    """Run both commands alternately, so that load on the machine hits both alike; one warm-up of each first."""
    cold_seconds(first)
    cold_seconds(second)
    pairs = [(cold_seconds(first), cold_seconds(second)) for _ in range(repeats)]
    return [a for a, _ in pairs], [b for _, b in pairs]
