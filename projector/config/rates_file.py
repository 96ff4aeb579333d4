"""Reading the measured rates of a calibration file (docs/calibration.md)."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any, NamedTuple

from projector.catalog import (
    AttentionShape,
    GemmShape,
    GroupedShape,
    MeasuredCollective,
    MeasuredRates,
    Rates,
    Regime,
)
from projector.config.nearest import nearest
from projector.errors import ConfigurationError, shown

TERA, GIGA, MICRO = 1e12, 1e9, 1e-6
SECTIONS = (
    "gemm",
    "grouped_gemm",
    "attention_forward",
    "attention_backward",
    "memory_bandwidth_gb_per_s",
    "collectives_one_node",
)
"""Keys of the file that hold rates."""
_TABLE_KEYS = ("columns", "rows", "regime", "attention_flops", "default_tflops", "note", "source")
_DTYPE_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
_COLLECTIVES = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all",
    "all2all": "all_to_all",
}
"""Names of collectives in files, by `CollectiveKind`. Rates of a pair (`p2p`) count both directions in some benchmarks
and one in others, so they decide nothing."""
_COLLECTIVE_KEYS = ("bus_gb_per_s", "latency_us", "fixed_latency_us", "fixed_latency_us_by_ranks", "bytes_factor")
_ELEMENTWISE = "elementwise"
"""The bandwidth over bytes that kernels read and write. Others, such as SimuMax's `default`, `permute_fwd` and `ce`,
are rates over bytes as that tool counts them, with a latency per operation, so that they decide nothing."""
_LARGEST = 1e6
"""Above any rate in TFLOP/s or GB/s, and any latency in us."""
_LARGEST_WIDTH = 2**40
"""Above any dimension of a shape."""
_LAYOUTS = ("TN", "NN", "NT")
_STAGES = ("fwd", "bwd_grad_act", "bwd_grad_w")
_BACKWARD_PRODUCTS = 2.5
"""FLOPs of attention's backward kernel over those of the forward one (FlashAttention-2, arXiv 2307.08691)."""


class _Columns(NamedTuple):
    """Columns of a table of shapes."""

    needed: tuple[str, ...]
    """Without a default; all whole numbers but `tflops` and `stage`."""
    optional: tuple[str, ...]
    """With one, or without effect."""


_GEMM = _Columns(("m", "k", "n", "tflops"), ("b", "layout", "accumulate", "out_dtype"))
_GROUPED = _Columns(
    ("ng", "m", "n", "k", "stage", "tflops"),
    ("dtype", "out_dtype", "main_grad_dtype", "grad", "accumulate", "use_split_accumulator", "single_output"),
)
_ATTENTION = _Columns(
    ("batch", "seq_len", "head_num", "kv_head_num", "qk_head_dim", "v_head_dim", "tflops"), ("qkv_contiguous",)
)


def read_rates(entries: Mapping[str, object], place: str) -> tuple[MeasuredRates, tuple[str, ...]]:
    """Measured rates of a file, and keys inside their sections that decide nothing.

    Raises `ConfigurationError` that names the key, its value and what would be right.
    """
    unused: list[str] = []
    attention: dict[AttentionShape, float] = {}
    regimes: list[Regime] = []
    for backward, key in enumerate(("attention_forward", "attention_backward")):
        if key in entries:
            rates = _attention(entries[key], f"{place}: {key}", backward=bool(backward))
            attention.update(rates.seconds)
            regimes.append(rates.regime)
    if len(set(regimes)) > 1:
        raise ConfigurationError(
            f"{regimes[1].value!r}",
            place=f"{place}: attention_backward.regime",
            expected=f"that of attention_forward, {regimes[0].value}",
        )
    return MeasuredRates(
        gemm=_gemm(entries["gemm"], f"{place}: gemm") if "gemm" in entries else None,
        grouped=_grouped(entries["grouped_gemm"], f"{place}: grouped_gemm") if "grouped_gemm" in entries else None,
        attention=Rates(attention, regimes[0]) if regimes else None,
        elementwise_bytes_per_second=_bandwidth(entries, place, unused),
        collectives=_collectives(entries, place, unused),
    ), tuple(unused)


def _gemm(table: object, place: str) -> Rates[GemmShape]:
    def shape(row: Mapping[str, Any], here: str) -> tuple[GemmShape, float]:
        batch, m, k, n = (_width(row, name, here) for name in ("b", "m", "k", "n"))
        accumulates = row.get("accumulate", False) is True
        layout = None if row.get("layout") is None else _choice(row, "layout", here, _LAYOUTS)
        found = GemmShape(batch, m, k, n, accumulates, _dtype(row, "out_dtype", here), layout)
        return found, 2.0 * batch * m * k * n

    return _rates(table, place, _GEMM, shape)


def _grouped(table: object, place: str) -> Rates[GroupedShape]:
    def shape(row: Mapping[str, Any], here: str) -> tuple[GroupedShape, float]:
        groups, rows, n, k = (_width(row, name, here) for name in ("ng", "m", "n", "k"))
        stage = _choice(row, "stage", here, _STAGES)
        weight = stage == "bwd_grad_w"
        size = _dtype(row, "main_grad_dtype" if weight else "out_dtype", here)
        sides = (k, n) if stage == "bwd_grad_act" else (n, k)
        return GroupedShape(groups, rows, *sides, weight, size), 2.0 * groups * rows * n * k

    return _rates(table, place, _GROUPED, shape)


def _attention(table: object, place: str, *, backward: bool) -> Rates[AttentionShape]:
    whole = _table(table, place)
    counted = _choice(whole, "attention_flops", place, ("full", "causal")) if "attention_flops" in whole else "full"

    def shape(row: Mapping[str, Any], here: str) -> tuple[AttentionShape, float]:
        batch, length, heads, key_value, query_key, value = (_width(row, name, here) for name in _ATTENTION.needed[:6])
        flops = 2.0 * batch * heads * length**2 * (query_key + value) * (_BACKWARD_PRODUCTS if backward else 1.0)
        found = AttentionShape(batch, length, heads, key_value, query_key, value, backward)
        return found, flops if counted == "full" else flops / 2

    return _rates(table, place, _ATTENTION, shape)


def _rates(
    table: object, place: str, columns: _Columns, shape: Callable[[Mapping[str, Any], str], tuple[Any, float]]
) -> Rates[Any]:
    """Seconds by shape; rows that differ in nothing the engine tells apart are averaged."""
    whole = _table(table, place)
    names = whole.get("columns")
    known = (*columns.needed, *columns.optional)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigurationError(
            shown(names), place=f"{place}.columns", expected=f"expected a list of {', '.join(known)}"
        )
    for name in names:
        if name not in known:
            raise ConfigurationError(
                "is not a known column", place=f"{place}.columns.{name}", expected=nearest(name, known)
            )
    for name in columns.needed:
        if name not in names:
            raise ConfigurationError("is missing", place=f"{place}.columns", expected=f"a column {name}")
    rows = whole.get("rows")
    if not isinstance(rows, list) or not rows:
        raise ConfigurationError(shown(rows), place=f"{place}.rows", expected="expected a list of rows")
    found: dict[Any, list[float]] = defaultdict(list)
    for index, row in enumerate(rows):
        here = f"{place}.rows[{index}]"
        if not isinstance(row, list) or len(row) != len(names):
            raise ConfigurationError(shown(row), place=here, expected=f"expected {len(names)} values, one per column")
        values = dict(zip(names, row, strict=True))
        key, flops = shape(values, here)
        found[key].append(flops / (_number(values, "tflops", here) * TERA))
    regime = Regime(_choice(whole, "regime", place, tuple(Regime))) if "regime" in whole else Regime.BURST
    return Rates({key: fmean(seconds) for key, seconds in found.items()}, regime)


def _table(table: object, place: str) -> Mapping[str, Any]:
    if not isinstance(table, Mapping):
        raise ConfigurationError(f"{shown(table)} is not a map", place=place, expected="keys columns, rows")
    for key in table:
        if key not in _TABLE_KEYS:
            raise ConfigurationError("is not a known key", place=f"{place}.{key}", expected=nearest(key, _TABLE_KEYS))
    return table


def _bandwidth(entries: Mapping[str, object], place: str, unused: list[str]) -> float | None:
    key = "memory_bandwidth_gb_per_s"
    if key not in entries:
        return None
    kinds = _map(entries[key], f"{place}: {key}")
    unused += [f"{key}.{kind}" for kind in kinds if kind != _ELEMENTWISE]
    if _ELEMENTWISE not in kinds:
        return None
    here = f"{place}: {key}.{_ELEMENTWISE}"
    return _number(_map(kinds[_ELEMENTWISE], here), "achieved", here) * GIGA


def _collectives(entries: Mapping[str, object], place: str, unused: list[str]) -> dict[str, MeasuredCollective]:
    key = "collectives_one_node"
    found = {}
    for name, values in _map(entries.get(key, {}), f"{place}: {key}").items():
        here = f"{place}: {key}.{name}"
        if name not in _COLLECTIVES:
            unused.append(f"{key}.{name}")
            continue
        figures = _map(values, here)
        for figure in figures:
            if figure not in _COLLECTIVE_KEYS:
                expected = nearest(figure, _COLLECTIVE_KEYS)
                raise ConfigurationError("is not a known key", place=f"{here}.{figure}", expected=expected)
        by_ranks = _map(figures.get("fixed_latency_us_by_ranks") or {}, f"{here}.fixed_latency_us_by_ranks")
        for ranks in by_ranks:
            if not str(ranks).isdecimal():
                place_of = f"{here}.fixed_latency_us_by_ranks"
                raise ConfigurationError(shown(ranks), place=place_of, expected="expected a number of ranks")
        found[_COLLECTIVES[name]] = MeasuredCollective(
            bytes_per_second=_number(figures, "bus_gb_per_s", here) * GIGA,
            fixed_seconds=_latency(figures, "fixed_latency_us", here),
            fixed_seconds_by_ranks={
                int(ranks): _latency(by_ranks, ranks, f"{here}.fixed_latency_us_by_ranks") for ranks in by_ranks
            },
            step_seconds=_latency(figures, "latency_us", here),
        )
    return found


def _map(value: object, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{shown(value)} is not a map", place=place, expected="a map of names")
    return value


def _latency(values: Mapping[str, Any], key: str, place: str) -> float:
    return 0.0 if values.get(key) is None else _number(values, key, place, zero=True) * MICRO


def _number(values: Mapping[str, Any], key: str, place: str, *, zero: bool = False) -> float:
    value = values.get(key)
    number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else -1.0
    if 0 < number <= _LARGEST or (zero and number == 0):
        return number
    least = "from" if zero else "above"
    raise ConfigurationError(
        shown(value), place=f"{place}.{key}", expected=f"expected a number {least} 0 up to {_LARGEST:,.0f}"
    )


def _width(row: Mapping[str, Any], name: str, place: str) -> int:
    value = row.get(name, 1)
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _LARGEST_WIDTH:
        return value
    raise ConfigurationError(shown(value), place=f"{place}.{name}", expected="expected a whole number from 1")


def _choice(values: Mapping[str, Any], key: str, place: str, known: tuple[str, ...]) -> str:
    value = values.get(key)
    if isinstance(value, str) and value in known:
        return value
    raise ConfigurationError(shown(value), place=f"{place}.{key}", expected=f"expected one of {', '.join(known)}")


def _dtype(row: Mapping[str, Any], name: str, place: str) -> int:
    return _DTYPE_BYTES[_choice(row, name, place, tuple(_DTYPE_BYTES))] if name in row else _DTYPE_BYTES["bf16"]
