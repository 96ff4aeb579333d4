"""Measured rates in the place of the analytical model, at the clock that training holds.

A shape that was measured takes its own time. One of the same kind takes the model's time, multiplied by the median
ratio of measured to modelled seconds of shapes of about its size, interpolated over the logarithm of FLOPs. A kind that
was not measured keeps the model's time.

A benchmark of short runs ends before the power limit acts. Its longest kernels, which meet the limit, tell what the
chip sustains: F / R + B / E for FLOPs F and bytes B, fitted over dense products, and the median rate of other kinds. A
shorter kernel cannot be faster than that in training, however fast it was in its burst; one that was slower than that
was not limited by power, and keeps its time.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from math import inf, log
from typing import Any, NamedTuple

from projector.catalog import AttentionShape, Device, GemmShape, GroupedShape, MeasuredRates, Rates, Regime
from projector.costs.figures import GIGA, TERA, training_factor
from projector.costs.gemm import operand_bytes
from projector.errors import ConfigurationError
from projector.operations import AttentionKernel, Gemm, GemmLayout, GroupedGemm

LONG_SECONDS = 1.5e-3
"""Kernels at least this long meet the power limit even in a short benchmark: on B200 those below 0.25 ms reach
1,400-1,475 TFLOP/s and those above 0.8 ms mostly 1,020-1,150 (SimuMax's table of 514 products)."""
_LEAST_LONG = 8
"""Long products that a fit of two constants needs to be trusted."""
_COLLINEAR = 1e-6
"""Share of the largest determinant below which FLOPs and bytes of the products do not tell two constants apart."""
_WINDOW = 12
"""Measured shapes of one median: enough that a badly chosen kernel does not move it."""

_PLACE = "calibration file."
Measurable = Gemm | GroupedGemm | AttentionKernel
"""Work of which shapes are measured."""


class Use(StrEnum):
    """Where the time of a shape came from."""

    MEASURED = "measured"
    CORRECTED = "corrected"
    ANALYTICAL = "analytical"


class Limit(NamedTuple):
    """Sustained limit of matrix products."""

    seconds_per_flop: float
    """Of arithmetic."""
    seconds_per_byte: float
    """Of operands and result."""

    def seconds(self, work: Measurable) -> float:
        """Seconds of a kernel at the benchmark's sustained clock."""
        moved = operand_bytes(work) * self.seconds_per_byte if isinstance(work, Gemm) else 0.0
        return work.flops * self.seconds_per_flop + moved


class MeasuredCosts:
    """Seconds of work from a calibration; remembers which shapes it had."""

    def __init__(self, rates: MeasuredRates, device: Device, model: Callable[[Measurable], float]) -> None:
        """`model` is the analytical model of `device` at its nominal training clock.

        Raises `ConfigurationError` for rates above what the chip can do at all.
        """
        _check(rates, device)
        self._rates = rates
        self._nominal = training_factor(device)
        self._model = model
        self._products = _fitted(rates.gemm)
        self._limits: dict[tuple[type, bool, bool], Limit | None] = {}
        self._curves: dict[tuple[type, bool, bool], tuple[tuple[float, float], ...]] = {}
        self._used: dict[Measurable, Use] = {}

    def seconds(self, work: Measurable, modelled: float, device: Device) -> float:
        """Seconds of one piece of work on the device at its clock; `modelled` is what the model says."""
        found = self._measured(work)
        if found is not None:
            self._used[work] = Use.MEASURED
            return self._settled(work, found, training_factor(device))
        curve = self._curve(work)
        self._used[work] = Use.CORRECTED if curve else Use.ANALYTICAL
        return modelled * _between(curve, log(work.flops)) if curve else modelled

    def uses(self) -> dict[str, Counter[Use]]:
        """Distinct shapes by kind of work and by where their time came from."""
        found: dict[str, Counter[Use]] = {}
        for work, use in self._used.items():
            found.setdefault(_NAMES[type(work)], Counter())[use] += 1
        return found

    def _table(self, work: Measurable) -> Rates[GemmShape] | Rates[GroupedShape] | Rates[AttentionShape] | None:
        match work:
            case Gemm():
                return self._rates.gemm
            case GroupedGemm():
                return self._rates.grouped
            case AttentionKernel():
                return self._rates.attention

    def _measured(self, work: Measurable) -> float | None:
        table, shape = self._table(work), shape_of(work)
        if table is None or shape is None:
            return None
        seconds: Mapping[tuple[object, ...], float] = table.seconds  # type: ignore[assignment]
        found = seconds.get(shape)
        if found is None and isinstance(shape, GemmShape):
            return seconds.get(shape._replace(layout=None))
        return found

    def _settled(self, work: Measurable, seconds: float, factor: float) -> float:
        """Seconds in training of what took `seconds` in the benchmark."""
        table = self._table(work)
        if table is None or table.regime is Regime.SUSTAINED or seconds >= LONG_SECONDS:
            return seconds / factor
        limit = self._limit(work, table.seconds)
        return seconds / factor if limit is None else max(seconds, limit.seconds(work) / factor)

    def _limit(self, work: Measurable, table: Mapping[Any, float]) -> Limit | None:
        """What the chip sustains in work of this kind; None where too few long kernels tell."""
        if isinstance(work, Gemm):
            return self._products
        kind = _kind(work)
        if kind not in self._limits:
            long = [(work_of(shape), seconds) for shape, seconds in table.items() if seconds >= LONG_SECONDS]
            found = [seconds / same.flops for same, seconds in long if _kind(same) == kind]
            self._limits[kind] = Limit(_median(found), 0.0) if found else None
        return self._limits[kind]

    def _curve(self, work: Measurable) -> tuple[tuple[float, float], ...]:
        """Ratio of measured to modelled seconds over the logarithm of FLOPs, for work of one kind."""
        table = self._table(work)
        if table is None or shape_of(work) is None:
            return ()
        kind = _kind(work)
        if kind not in self._curves:
            ratios = []
            for shape, seconds in table.seconds.items():
                same = work_of(shape)
                if _kind(same) == kind:
                    ratios.append((log(same.flops), self._settled(same, seconds, self._nominal) / self._model(same)))
            self._curves[kind] = tuple(_medians(sorted(ratios)))
        return self._curves[kind]


_NAMES: Mapping[type, str] = {Gemm: "matrix products", GroupedGemm: "grouped products", AttentionKernel: "attention"}
"""What people call the kinds."""


def _kind(work: Measurable) -> tuple[type, bool, bool]:
    """Shapes of one kind share what is wrong with a model of them."""
    match work:
        case Gemm():
            return Gemm, work.accumulates, False
        case GroupedGemm():
            return GroupedGemm, work.weight_gradient, False
        case AttentionKernel():
            return AttentionKernel, work.backward, work.query_key_dim != work.value_dim


def shape_of(work: Measurable) -> GemmShape | GroupedShape | AttentionShape | None:
    """The measured table's name of a piece of work; None for work that the tables do not hold."""
    match work:
        case Gemm():
            if work.low_precision is not None:
                return None
            return GemmShape(work.batch, work.m, work.k, work.n, work.accumulates, work.output_bytes, work.layout.value)
        case GroupedGemm():
            if work.low_precision is not None or not work.fused:
                return None
            rows = max(1, round(work.m / work.groups))
            return GroupedShape(work.groups, rows, work.n, work.k, work.weight_gradient, work.output_bytes)
        case AttentionKernel():
            whole = work.query_length == work.key_length and not (work.window or work.chunk or work.packed)
            if not (work.flash and work.causal and whole):
                return None
            widths = (work.query_key_dim, work.value_dim)
            return AttentionShape(
                work.batch, work.query_length, work.heads, work.key_value_heads, *widths, work.backward
            )


def work_of(shape: GemmShape | GroupedShape | AttentionShape) -> Measurable:
    """The piece of work that a measured shape is."""
    match shape:
        case GemmShape():
            fields = shape._asdict()
            layout = GemmLayout(fields.pop("layout") or GemmLayout.TN)
            return Gemm(**fields, layout=layout)
        case GroupedShape():
            return GroupedGemm(
                groups=shape.groups,
                m=shape.groups * shape.rows,
                n=shape.n,
                k=shape.k,
                weight_gradient=shape.weight_gradient,
                output_bytes=shape.output_bytes,
                fused=True,
            )
        case AttentionShape():
            fields = shape._asdict()
            length = fields.pop("length")
            return AttentionKernel(query_length=length, key_length=length, **fields)


def _fitted(table: Rates[GemmShape] | None) -> Limit | None:
    """Sustained limit that the long products of a table tell, least squares of relative errors; None with too few."""
    if table is None:
        return None
    found = [(work_of(shape), seconds) for shape, seconds in table.seconds.items() if seconds >= LONG_SECONDS]
    points = [
        (work.flops / seconds, operand_bytes(work) / seconds) for work, seconds in found if isinstance(work, Gemm)
    ]
    if len(points) < _LEAST_LONG:
        return None
    ff, fb, bb = (sum(p[i] * p[j] for p in points) for i, j in ((0, 0), (0, 1), (1, 1)))
    f, b = (sum(p[i] for p in points) for i in (0, 1))
    determinant, of_flops, of_bytes = ff * bb - fb * fb, f * bb - b * fb, b * ff - f * fb
    if determinant <= _COLLINEAR * ff * bb or of_flops <= 0 or of_bytes < 0:
        return Limit(seconds_per_flop=f / ff, seconds_per_byte=0.0)
    return Limit(seconds_per_flop=of_flops / determinant, seconds_per_byte=of_bytes / determinant)


def _medians(points: Sequence[tuple[float, float]]) -> Iterable[tuple[float, float]]:
    """Medians of groups of neighbours."""
    groups = max(1, len(points) // _WINDOW)
    bounds = [len(points) * index // groups for index in range(groups + 1)]
    for start, end in pairwise(bounds):
        if part := points[start:end]:
            yield _median(size for size, _ in part), _median(ratio for _, ratio in part)


def _between(curve: Sequence[tuple[float, float]], size: float) -> float:
    """The curve at a size, straight between its points and flat beyond them."""
    index = bisect_left(curve, (size,))
    if index == 0 or index == len(curve):
        return curve[min(index, len(curve) - 1)][1]
    (low, first), (high, second) = curve[index - 1], curve[index]
    return first + (second - first) * (size - low) / (high - low)


def _median(values: Iterable[float]) -> float:
    from statistics import median  # noqa: PLC0415 - slow to import, and for those with measured rates alone

    return median(values)


def _check(rates: MeasuredRates, device: Device) -> None:
    """Refuse a product above the arithmetic peak, and a bandwidth above the memory's."""
    peak = device.peak_tflops.get("bf16", inf)
    for kind, table in (("gemm", rates.gemm), ("grouped_gemm", rates.grouped), ("attention", rates.attention)):
        for shape, seconds in () if table is None else table.seconds.items():
            found = work_of(shape).flops / seconds / TERA
            if found > peak:
                what = f"{found:,.0f} TFLOP/s of {tuple(shape)}"
                expected = f"at most the 16-bit peak of {device.name}, {peak:,.0f}"
                raise ConfigurationError(what, place=_PLACE + kind, expected=expected)
    top, moved = device.memory_bandwidth_bytes_per_second or inf, rates.elementwise_bytes_per_second or 0.0
    if moved > top:
        expected = f"at most the memory of {device.name}, {top / GIGA:,.0f} GB/s"
        raise ConfigurationError(
            f"{moved / GIGA:,.0f} GB/s", place=_PLACE + "memory_bandwidth_gb_per_s", expected=expected
        )
