"""Measured times of collectives over message size, in the place of the model.

A collective that was measured on as many ranks and nodes takes its own time. Between two sizes that moves from one
measured time to the next as the model's does, on a logarithmic scale; beyond the ends it keeps the last ratio to the
model. A collective of which other groups were measured takes the model's time, multiplied by the ratio of measured to
modelled time of the nearest of them, of those inside one domain of fast links or of those across several. One that was
not measured keeps the model's time.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import exp, log
from typing import NamedTuple

from projector.catalog import CollectiveTimes
from projector.costs.measured import Use
from projector.operations import CollectiveKind
from projector.parallelism import Placement


class Analytical(NamedTuple):
    """The model of one kind of collective."""

    kind: CollectiveKind
    """Which collective."""
    seconds: Callable[[float, Placement], float]
    """Seconds of one call by message size and placement."""
    crosses: Callable[[Placement], bool]
    """Whether a group leaves a domain of fast links."""


class MeasuredCollectives:
    """Seconds of collectives from a calibration; remembers which of them it had."""

    def __init__(self, curves: Iterable[CollectiveTimes] = ()) -> None:
        """Keep the curves of all groups."""
        self._curves = tuple(curves)
        self._used: dict[tuple[CollectiveKind, float, Placement], Use] = {}

    def seconds(self, model: Analytical, message_bytes: float, placement: Placement) -> float:
        """Seconds of one call."""
        modelled = model.seconds(message_bytes, placement)
        if not self._curves:
            return modelled
        factor, use = self._factor(model, message_bytes, placement)
        self._used[model.kind, message_bytes, placement] = use
        return modelled * factor

    def ratio(self, model: Analytical, message_bytes: float, placement: Placement) -> float:
        """Measured over modelled seconds, 1 where nothing of the kind was measured on this side of the links."""
        return self._factor(model, message_bytes, placement)[0] if self._curves else 1.0

    def _factor(self, model: Analytical, message_bytes: float, placement: Placement) -> tuple[float, Use]:
        outside = model.crosses(placement)
        same = [
            (where, curve)
            for curve in self._curves
            if curve.collective == model.kind.value and model.crosses(where := placed(curve)) is outside
        ]
        if not same:
            return 1.0, Use.ANALYTICAL
        where, curve = min(same, key=lambda pair: _distance(pair[0], placement))
        own = (where.size, where.nodes) == (placement.size, placement.nodes)
        where = placement if own else where
        found = _at(curve.seconds, message_bytes, lambda size: model.seconds(size, where))
        return found / model.seconds(message_bytes, where), Use.MEASURED if own else Use.CORRECTED

    def uses(self) -> dict[str, Counter[Use]]:
        """Distinct calls by kind of collective and by where their time came from."""
        found: dict[str, Counter[Use]] = {}
        for (kind, _, _), use in self._used.items():
            found.setdefault(kind.value.replace("_", "-"), Counter())[use] += 1
        return found


def placed(curve: CollectiveTimes) -> Placement:
    """How the measured ranks spread over their nodes."""
    return Placement(size=curve.ranks, ranks_per_node=-(-curve.ranks // curve.nodes), nodes=curve.nodes)


def _distance(one: Placement, other: Placement) -> float:
    """How much two groups differ in ranks and in nodes, as factors."""
    return abs(log(one.size / other.size)) + abs(log(one.nodes / other.nodes))


def _at(points: Sequence[tuple[int, float]], message_bytes: float, model: Callable[[float], float]) -> float:
    """The curve at a size, in the form of the model between and beyond its points."""
    index = bisect_left(points, message_bytes, key=lambda point: point[0])
    if index in {0, len(points)}:
        size, seconds = points[min(index, len(points) - 1)]
        return model(message_bytes) * (seconds / model(size))
    (low, first), (high, second) = points[index - 1], points[index]
    start, end = model(low), model(high)
    if end > start:
        return first * exp(log(second / first) * log(model(message_bytes) / start) / log(end / start))
    # Where latency decides, measured curves of the catalog may fall from one size to the next.
    passed = log(message_bytes / low) / log(high / low)
    return model(message_bytes) * first / start * exp(log(second * start / (first * end)) * passed)
