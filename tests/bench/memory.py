"""How long one projection of memory takes, over layouts of which no two are equal.

Processor time, so that other work on the machine does not count. Layers of new shapes have to be described once, which
takes as long as several projections; both are told apart by projecting the same shapes without a pipeline first. A
search also resolves each layout, and replays the caching allocator only for those that it reports.
"""

import gc
import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import median, quantiles

from projector.job import Target
from projector.memory import project_memory
from projector.parallelism import resolve
from tests.bench.layouts import Case, distinct, largest

LAYOUTS = 1000
REPLAYED = 60
"""Of them, those that are also projected with the caching allocator replayed."""
REPEATS = 5


def lines() -> Iterator[str]:
    """What `python -m tests.bench` prints of memory."""
    cases = list(distinct(LAYOUTS))
    # What the measurement itself holds is no work for the collector of a program that projects.
    gc.collect()
    gc.freeze()
    described = [memory_seconds(case) for case in cases]
    beyond = [_after(_without_pipeline(case), case) for case in cases]
    yield f"memory of {len(cases)} distinct layouts, milliseconds of processor time:"
    yield line("with the description of new layer shapes", described)
    yield line("beyond it", beyond)
    yield line("resolution of the layout, before", [_resolving(case) for case in cases])
    yield line(f"with the allocator replayed ({REPLAYED} of them)", [_replaying(case) for case in cases[:REPLAYED]])
    for name, case in largest():
        first, *more = [memory_seconds(case) for _ in range(1 + REPEATS)]
        stages = f"{case.layout.pipeline} stages x {case.layout.virtual_pipeline} chunks"
        yield f"  {name}, {stages}: {min(more) * 1e3:.2f}, with new shapes and schedule {first * 1e3:.2f}"
        yield f"    and with the caching allocator replayed: {_replaying(case) * 1e3:.0f}"
    gc.unfreeze()


def line(what: str, seconds: list[float]) -> str:
    """Median and 95th percentile in milliseconds."""
    percentiles = quantiles(seconds, n=100)
    return f"  {what}: p50 {median(seconds) * 1e3:.3f}, p95 {percentiles[94] * 1e3:.3f}"


def memory_seconds(case: Case) -> float:
    """Of one projection of memory without the allocator's replay."""
    start = time.process_time()
    project_memory(case.job, case.layout, case.device, replay=False)
    return time.process_time() - start


def _replaying(case: Case) -> float:
    start = time.process_time()
    project_memory(case.job, case.layout, case.device)
    return time.process_time() - start


def _resolving(case: Case) -> float:
    target = target_of(case)
    start = time.process_time()
    resolve(case.job, target)
    return time.process_time() - start


def _after(described: Case, case: Case) -> float:
    """The time of a case whose layers `described` has."""
    memory_seconds(described)
    return memory_seconds(case)


def _without_pipeline(case: Case) -> Case:
    """The same layers on one stage."""
    parallelism = replace(case.job.parallelism, pipeline=1, virtual_pipeline=1)
    job = replace(case.job, parallelism=parallelism)
    return Case(job=job, layout=resolve(job, target_of(case)), device=case.device)


def target_of(case: Case) -> Target:
    """The cluster that a case is laid out on."""
    return Target(
        device=case.device.name,
        nodes=case.layout.world // case.layout.devices_per_node,
        devices_per_node=case.layout.devices_per_node,
    )
