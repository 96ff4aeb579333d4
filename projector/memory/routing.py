"""How many rows the experts of the busiest device receive where nothing but the router decides it.

A router that has collapsed sends every token of a pass to the same `top_k` experts. How many of them a device holds is
then drawn without replacement, so that the rows it receives, over the balanced share, have the variance
(n - 1) / top_k x (E - top_k) / (E - 1) with n expert-parallel ranks and E experts (hypergeometric distribution). Passes
whose rows are in memory together differ in their layer or their tokens, and their mean has that variance over their
number: many layers and many micro batches in flight even out what one pass alone does not.

The constants say how many such deviations a device is above balance at the highest step of a run, which is among the
first for a router that starts from nothing. A router with a balancing loss then evens out.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import sqrt
from typing import NamedTuple

from projector.job import MixtureOfExperts, TrainingJob
from projector.layers.decoder import shaped_layer
from projector.layers.routing import routing_decides, routing_limit, stated_imbalance
from projector.layers.shapes import Shapes
from projector.parallelism import Layout
from projector.projection import MemoryComponent, MemoryLevel, MemoryProjection, StageMemory
from projector.provenance import Assumption

EXPECTED_DEVIATIONS, UPPER_DEVIATIONS = 0.6, 1.25
"""Between median and mean (0.5, 0.8), and what eleven of fourteen runs stay below: Megatron-LM's functional and release
tests (d98e8a64; those on which constants may be fitted), each at the highest of its fifty to thousands of steps, from
the memory that the rows of its experts took."""
EXPERTS = "saved activations: experts"
"""The component that tells how many passes are in memory together."""

Stages = Sequence[StageMemory]
Parts = Sequence[MemoryComponent]
Factors = tuple[float, float, float]
"""Rows over the balanced share: least, expected and most."""


class RoutedStages(NamedTuple):
    """Memory of every stage at the ends of what routing may do, and in between."""

    lowest: Stages
    """Balanced routing, or what was stated."""
    expected: Stages
    """The highest step of a usual run."""
    highest_bytes: Sequence[int]
    """Allocated at the highest step of an unlucky one."""


def routed_stages(job: TrainingJob, layout: Layout, shapes: Shapes, at: Callable[[float], Stages]) -> RoutedStages:
    """Memory as routing may make it; `at` gives it for rows of the busiest device over the balanced share."""
    if not routing_decides(job, layout):
        return _certain(at(1.0))
    stated = stated_imbalance(job, layout)
    if stated is not None:
        return _certain(_marked(at(stated), [(stated, stated, stated)] * layout.pipeline))
    lowest = at(1.0)
    points: dict[float, Stages] = {1.0: lowest}

    def known(factor: float) -> Stages:
        if factor not in points:
            points[factor] = at(factor)
        return points[factor]

    factors = [_factors(_deviation(stage, job, layout, shapes), routing_limit(job, layout)) for stage in lowest]
    expected = [_between(rank, usual, known) for rank, (_, usual, _) in enumerate(factors)]
    highest = [_between(rank, most, known) for rank, (_, _, most) in enumerate(factors)]
    return RoutedStages(
        lowest=lowest, expected=_marked(expected, factors), highest_bytes=[_allocated(stage) for stage in highest]
    )


def _certain(stages: Stages) -> RoutedStages:
    return RoutedStages(lowest=stages, expected=stages, highest_bytes=[_allocated(stage) for stage in stages])


def _allocated(stage: StageMemory) -> int:
    return stage.level_bytes(MemoryLevel.ALLOCATED)


def _factors(deviation: float, limit: float) -> Factors:
    usual, most = (min(1 + times * deviation, limit) for times in (EXPECTED_DEVIATIONS, UPPER_DEVIATIONS))
    return 1.0, usual, most


def _marked(stages: Stages, factors: Sequence[Factors]) -> Stages:
    """The stages with the factors that they were made for."""
    return [replace(stage, routing_imbalance=each) for stage, each in zip(stages, factors, strict=True)]


def _block(job: TrainingJob) -> MixtureOfExperts:
    return job.model.expert_blocks[0]


def _deviation(stage: StageMemory, job: TrainingJob, layout: Layout, shapes: Shapes) -> float:
    """Standard deviation of the rows of a collapsed router, as a mean over the passes that are in memory."""
    block = _block(job)
    variance = (layout.expert - 1) / block.top_k * (block.experts - block.top_k) / max(1, block.experts - 1)
    return sqrt(variance / _passes(stage, job, shapes))


def _passes(stage: StageMemory, job: TrainingJob, shapes: Shapes) -> float:
    """Passes through a layer with experts whose rows are in memory at the peak of balanced routing; at least one."""
    layer = next(layer for layer in job.model.distinct_layers if isinstance(layer.feed_forward, MixtureOfExperts))
    once = sum(
        tensor.size_bytes
        for operation in shaped_layer(layer, shapes)
        if operation.component == "experts"
        for tensor in operation.saves
    )
    kept = sum(part.size_bytes for part in stage.components if part.name == EXPERTS)
    return max(1.0, kept / once)


def _between(rank: int, factor: float, known: Callable[[float], Stages]) -> StageMemory:
    """A stage at a factor, from the powers of two around it.

    The peak is the highest of moments that are linear in the factor, so that the line between two points is never below
    it; the points are few, so that layers of few shapes have to be described.
    """
    low = 1.0
    while 2 * low < factor:
        low *= 2
    if factor <= low:
        return known(low)[rank]
    below, above = known(low)[rank], known(2 * low)[rank]
    return _mixed(below, above, (factor - low) / low)


def _mixed(below: StageMemory, above: StageMemory, share: float) -> StageMemory:
    """The stage on the line from one to the other."""
    first = below.first_iteration_allocated_bytes
    last = above.first_iteration_allocated_bytes
    if first is not None and last is not None:
        first = round(first + share * (last - first))
    return replace(
        below,
        components=tuple(
            part if low == high else MemoryComponent(name=part.name, level=part.level, size_bytes=size)
            for part, low, high in _pairs(below.components, above.components)
            if (size := round(low + share * (high - low)))
        ),
        first_iteration_allocated_bytes=first,
    )


def _pairs(below: Parts, above: Parts) -> Iterable[tuple[MemoryComponent, int, int]]:
    """Each part of the two, in order of level, with its size in both."""
    if len(below) == len(above) and all(one.name == two.name for one, two in zip(below, above, strict=True)):
        return [(one, one.size_bytes, two.size_bytes) for one, two in zip(below, above, strict=True)]
    sizes: dict[tuple[str, MemoryLevel], tuple[MemoryComponent, int, int]] = {}
    for part in below:
        sizes[part.name, part.level] = part, part.size_bytes, 0
    for part in above:
        low = sizes.get((part.name, part.level), (part, 0, 0))[1]
        sizes[part.name, part.level] = part, low, part.size_bytes
    order = list(MemoryLevel)
    return sorted(sizes.values(), key=lambda entry: order.index(entry[0].level))


def routing_assumptions(job: TrainingJob, memory: MemoryProjection) -> tuple[Assumption, ...]:
    """What is assumed of the router where nobody states how uneven it is, on the stage that needs most memory.

    Where a stated imbalance changes nothing, that is said instead.
    """
    factors, stated = memory.worst.routing_imbalance, job.software.routing_imbalance
    if factors is None and stated is not None:
        why = f"no router decides them, so that a routing imbalance of {stated:g} changes nothing"
        return (Assumption(what="equal rows on every GPU", why=why),)
    if factors is None or stated is not None:
        return ()
    least, usual, most = factors
    return (
        Assumption(
            what=f"{usual:.2f} times the balanced rows for the experts of the busiest GPU",
            why=f"nothing states how uneven routing is; the interval spans {least:.2f} to {most:.2f};"
            " say --routing-imbalance or software.routing_imbalance",
        ),
    )
