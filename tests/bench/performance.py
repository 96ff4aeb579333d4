"""How long one projection of time takes, alone and with memory, over layouts of which no two are equal.

Processor time, as for memory. A layer of new shapes is costed once; what an estimate takes beyond that is the second of
two projections of one layout.
"""

import gc
import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import median

from projector.job import Target
from projector.parallelism import resolve
from projector.performance import project_performance
from tests.bench.layouts import Case, distinct, largest
from tests.bench.memory import LAYOUTS, line, memory_seconds, target_of

MICRO_BATCHES = 1008
NODES = 2048
_REPEATS = 21


def lines() -> Iterator[str]:
    """What `python -m tests.bench` prints of time."""
    cases = list(distinct(LAYOUTS))
    gc.collect()
    gc.freeze()
    first, again, both = [], [], []
    for case in cases:
        first.append(_seconds(case))
        again.append(_seconds(case))
        memory_seconds(case)
        both.append(again[-1] + memory_seconds(case))
    yield f"time of {len(cases)} distinct layouts, milliseconds of processor time:"
    yield line("with the costs of new layer shapes", first)
    yield line("beyond them", again)
    yield line("beyond them, and memory", both)
    yield f"time of {MICRO_BATCHES:,} micro batches on {NODES * 8:,} GPUs:"
    for name, case in largest():
        job = replace(case.job, batch=replace(case.job.batch, micro_batches=MICRO_BATCHES))
        target = Target(device=case.device.name, nodes=NODES, devices_per_node=8)
        many = Case(job=job, layout=resolve(job, target), device=case.device)
        start, *more = [_seconds(many) for _ in range(1 + _REPEATS)]
        yield f"  {name}: p50 {median(more) * 1e3:.1f}, with new shapes and schedule {start * 1e3:.0f}"
    gc.unfreeze()


def _seconds(case: Case) -> float:
    target = target_of(case)
    start = time.process_time()
    project_performance(case.job, target, case.layout, case.device)
    return time.process_time() - start
