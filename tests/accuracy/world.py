"""How many devices a row ran on and in which container, where its source does not say.

Megatron-LM's release tests state neither. Every rank keeps 12 / N bytes of optimizer state a parameter beside what does
not depend on the number N of data-parallel ranks, and from Transformer Engine 2.3 on a placeholder for each shape of a
weight gradient, so that the row's own persistent bytes identify both, N among powers of two. What identified them is no
longer an independent measurement.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from projector.errors import InputError
from projector.job import Target, TrainingJob
from projector.projection import MemoryLevel, MemoryProjection
from tests.accuracy.jobs import is_release, job
from tests.accuracy.rows import Row

IDENTIFIES = "mem_persistent_gib"
"""The column that tells them."""
DEVICES = tuple(8 << doublings for doublings in range(8))
"""Worlds that are tried."""

Memory = Callable[[TrainingJob, Target], MemoryProjection]


def is_unstated(row: Row) -> bool:
    """Whether world and container of a row have to be identified."""
    return is_release(row) and IDENTIFIES in row.measured


def identified(row: Row, memory: Memory) -> Row:
    """The row in the world and container that its persistent bytes tell; unchanged where the source states them."""
    if not is_unstated(row):
        return row
    measured = row.measured[IDENTIFIES] * 2**30
    found = ((abs(size - measured), index, tried) for index, (size, tried) in enumerate(_candidates(row, memory)))
    return min(found, default=(0.0, 0, row))[2]


def _candidates(row: Row, memory: Memory) -> Iterator[tuple[int, Row]]:
    """Persistent bytes of the last stage in every world and container that suits the layout."""
    for devices in DEVICES:
        for placeholders in (True, False):
            train = {**row.train, "identified": {"devices": devices, "placeholders": placeholders}}
            tried = replace(row, train=train)
            try:
                stages = memory(*job(tried)).stages
            except InputError:  # too few devices for the layout, or for the batch too many
                continue
            yield stages[-1].level_bytes(MemoryLevel.PERSISTENT), tried
