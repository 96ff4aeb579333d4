"""How long one projection of time takes, for a large model on a large cluster.

Processor time, so that other work on the machine does not count. The first projection also writes the schedule's order
down, which later ones of any batch with the same remainder use again.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import median

from projector import catalog
from projector.job import Target, TrainingJob
from projector.parallelism import resolve
from projector.performance import project_performance
from tests.bench.layouts import largest

REPEATS = 21
MICRO_BATCHES = 1008
NODES = 2048


def lines() -> Iterator[str]:
    """What `python -m tests.bench` prints of time."""
    yield f"time of {MICRO_BATCHES:,} micro batches on {NODES * 8:,} GPUs, milliseconds of processor time:"
    for name, case in largest():
        batch = replace(case.job.batch, micro_batches=MICRO_BATCHES)
        target = Target(device=case.device.name, nodes=NODES, devices_per_node=8)
        job = replace(case.job, batch=batch)
        first, *more = [_seconds(job, target) for _ in range(1 + REPEATS)]
        yield f"  {name}: p50 {median(more) * 1e3:.1f}, with new shapes and schedule {first * 1e3:.0f}"


def _seconds(job: TrainingJob, target: Target) -> float:
    layout, device = resolve(job, target), catalog.device(target.device)
    start = time.process_time()
    project_performance(job, target, layout, device)
    return time.process_time() - start
