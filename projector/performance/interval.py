"""The interval around projected time: how far measured runs of the same modes lie, and what nobody stated.

What measured runs say is one share of the iteration: that of the mode of the job whose runs lie farthest. What was left
open comes on top, from the parts of the waterfall that it decides.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import StrEnum

from projector.catalog import MeasuredTime, measured_times
from projector.operations import Group
from projector.performance.passes import BUBBLE, HOST, exposed_part
from projector.projection import Confidence, PerformanceProjection, TimeUncertainty

MEASURED = "how far measured runs lie from the projection"
"""Name of the part that published runs decide."""
LEAST_RUNS = 10
"""Measured runs from which the tails of a mode's errors can be told; others do not widen what nobody measured."""
NARROW_PERCENT, WIDE_PERCENT = 10, 25
"""Half widths of the interval up to which confidence is high, and medium."""
HIGH_PERCENT = 5
"""Largest median error of a mode's measured runs of which a job has high confidence."""
LEAST_HELD = 3
"""Held-back runs of which a median says something, as for memory."""
_DISPATCHED = 0.5
"""Share of the exchange of tokens that another dispatcher may save: over 16 ranks DeepEP took 13.3 instead of 25.3 % of
a step (AMD-AGI/Primus examples/moe_package, MoE-2T on 1,024 MI300X)."""
_ATTENTION_SLOWER = 1.0
"""Growth of attention with kernels that are not the GPU's best: without assembly kernels in backward a Llama model ran
at 535 instead of 614 TFLOP/s on MI325X (AMD-AGI/Primus tools/installation/env.sh), 15 % of a step of which attention is
about a seventh."""


class Unstated(StrEnum):
    """What decides the time of a job and nobody stated."""

    VIRTUAL_STAGES = "model chunks of a pipeline stage"
    DISPATCHER = "how tokens reach their experts"
    ATTENTION = "attention kernels"
    HOST = "software versions and the binding of processes"


def with_evidence(performance: PerformanceProjection, modes: Iterable[str]) -> PerformanceProjection:
    """The projection with the interval and the confidence that measured runs of its modes allow."""
    modes = tuple(modes)
    listed = measured_times()
    found = [listed[mode] if mode in listed else _widest(mode) for mode in modes]
    measured = TimeUncertainty(
        name=MEASURED,
        below_seconds=max(each.below_percent for each in found) / 100 * performance.iteration_seconds,
        above_seconds=max(each.above_percent for each in found) / 100 * performance.iteration_seconds,
    )
    widened = replace(performance, uncertainties=(measured,), modes=modes)
    return _judged(widened, ())


def with_unstated(performance: PerformanceProjection, inputs: Iterable[Unstated]) -> PerformanceProjection:
    """The projection with its interval widened by what was left open.

    The share by which measured runs took less holds for what then remains of the iteration, so that something does.
    """
    left = tuple(sorted(set(inputs)))
    parts = {step.name: step.seconds for step in performance.waterfall}
    widened = [each for one in left for each in _effects(one, parts, performance)]
    remaining = 1 - sum(each.below_seconds for each in widened) / performance.iteration_seconds
    known = [each._replace(below_seconds=each.below_seconds * remaining) for each in performance.uncertainties]
    return _judged(replace(performance, uncertainties=(*known, *widened)), left)


def _effects(
    unstated: Unstated, parts: dict[str, float], performance: PerformanceProjection
) -> Iterator[TimeUncertainty]:
    below = above = 0.0
    match unstated:
        case Unstated.VIRTUAL_STAGES:
            # With one layer a chunk the bubble shrinks by as much, and gradients of finished chunks hide behind others.
            layers = max((len(chunk.layer_ids) for chunk in performance.chunks), default=1)
            if bubble := parts.get(BUBBLE, 0.0):
                below = (bubble + parts.get(exposed_part(Group.DATA), 0.0)) * (1 - 1 / max(1, layers))
        case Unstated.DISPATCHER:
            below = parts.get(exposed_part(Group.EXPERT), 0.0) * _DISPATCHED
        case Unstated.ATTENTION:
            above = parts.get("attention", 0.0) * _ATTENTION_SLOWER
        case Unstated.HOST:
            # Bound processes may do without the waiting; slower hosts were measured among the runs of the mode.
            below = parts.get(HOST, 0.0)
    if below or above:
        yield TimeUncertainty(name=f"{unstated}, unstated", below_seconds=below, above_seconds=above)


def _widest(mode: str) -> MeasuredTime:
    """What stands in for a mode that nobody measured: the widest on either side of the same kind of layers."""
    kind = mode.partition(" ")[0]
    known = [each for name, each in measured_times().items() if name.startswith(kind) and each.runs >= LEAST_RUNS]
    return MeasuredTime(
        below_percent=max(each.below_percent for each in known),
        above_percent=max(each.above_percent for each in known),
        fitted_runs=0,
        within_percent=None,
        held_runs=0,
        sources=(),
    )


def _judged(performance: PerformanceProjection, unstated: tuple[Unstated, ...]) -> PerformanceProjection:
    confidence, reasons = confidence_of(performance, unstated)
    return replace(performance, confidence=confidence, confidence_reasons=reasons)


def confidence_of(
    performance: PerformanceProjection, unstated: Iterable[Unstated] = ()
) -> tuple[Confidence, tuple[str, ...]]:
    """How far the time can be trusted, and why.

    High where runs with each of the job's modes were measured, half of those that took no part in fitting are projected
    within `HIGH_PERCENT`, at least `LEAST_HELD` of them, and the interval reaches at most `NARROW_PERCENT` to either
    side; low where nobody measured a mode or the interval reaches more than `WIDE_PERCENT`.
    """
    # Widths are whole percents of seconds: what rounding leaves must not decide.
    width = round(performance.half_width_percent, 3)
    below, above = performance.reach_percent
    wide = f"the interval of time reaches {below:.0f} % below and {above:.0f} % above what is expected"
    listed = measured_times()
    missing = [f"no measured run with {mode} is published" for mode in performance.modes if mode not in listed]
    missing += [wide] if width > WIDE_PERCENT else []
    left = [f"{each} not stated" for each in unstated]
    if missing:
        return Confidence.LOW, (*missing, *left)
    doubts = [doubt for mode in performance.modes for doubt in _doubts(mode, listed[mode])]
    doubts += [wide] if width > NARROW_PERCENT else []
    if doubts or left:
        return Confidence.MEDIUM, (*doubts, *left)
    good = f"runs with each of the job's modes were measured, and half of them are projected within {HIGH_PERCENT} %"
    return Confidence.HIGH, (good, wide)


def _doubts(mode: str, measured: MeasuredTime) -> Iterator[str]:
    if measured.within_percent is not None and measured.within_percent > HIGH_PERCENT:
        within = f"{measured.within_percent:g} %"
        yield f"half of the measured runs with {mode} are projected within {within}, the others less closely"
    if measured.held_runs < LEAST_HELD:
        yield f"{measured.held_runs} measured run(s) with {mode} took no part in fitting, fewer than {LEAST_HELD}"
