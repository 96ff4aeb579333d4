"""Runs a command cold and tells its wall time and peak memory."""

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One cold run of a command."""

    seconds: float
    """Wall time from start to exit."""
    peak_bytes: int
    """Largest resident set."""


def cold_run(command: Sequence[str]) -> Run:
    """Start the command, wait for its end; raises `CalledProcessError` when it fails."""
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, stderr=errors)
    return Run(seconds=time.perf_counter() - start, peak_bytes=usage.ru_maxrss * 1024)


def paired(first: Sequence[str], second: Sequence[str], repeats: int) -> tuple[list[Run], list[Run]]:
    """Run both commands alternately, so that load on the machine hits both alike; one warm-up of each first."""
    cold_run(first)
    cold_run(second)
    pairs = [(cold_run(first), cold_run(second)) for _ in range(repeats)]
    return [a for a, _ in pairs], [b for _, b in pairs]
