"""Reading the measured rates of a calibration file (docs/calibration.md)."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from projector.catalog import (
    AttentionShape,
    DispatchRates,
    GemmShape,
    GroupedShape,
    HostCosts,
    MeasuredCollective,
    MeasuredRates,
    Rates,
    Regime,
)
from projector.config.curves_file import COLLECTIVES, SECTION, read_curves
from projector.config.figures import GIGA, TERA, choice, mapping, microseconds, number, width
from projector.config.nearest import nearest
from projector.errors import ConfigurationError, shown

SECTIONS = (
    "gemm",
    "grouped_gemm",
    "attention_forward",
    "attention_backward",
    "memory_bandwidth_gb_per_s",
    "collectives_one_node",
    SECTION,
    "expert_dispatch",
    "launch",
)
"""Keys of the file that hold rates."""
_TABLE_KEYS = ("columns", "rows", "regime", "attention_flops", "default_tflops", "note", "source")
_DTYPE_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
_IN_ONE_NODE = tuple(name for name in COLLECTIVES if name != "send_recv")
"""Rates of a pair (`p2p`) count both directions in some benchmarks and one in others, so they decide nothing; times of
`send_recv` do."""
_COLLECTIVE_KEYS = ("bus_gb_per_s", "latency_us", "fixed_latency_us", "fixed_latency_us_by_ranks", "bytes_factor")
_ELEMENTWISE = "elementwise"
_BANDWIDTHS = (_ELEMENTWISE, "permutation", "cross_entropy")
"""Bandwidths over bytes that kernels read and write. Others, such as SimuMax's `default`, `permute_fwd` and `ce`, are
rates over bytes as that tool counts them, with a latency per operation, so that they decide nothing."""
_DISPATCH = ("gb_per_s", "network_gb_per_s", "latency_us", "source")
_GAP = "kernel_gap_us"
_HOST = tuple(item.name.removesuffix("_seconds") for item in fields(HostCosts) if item.name.endswith("_seconds"))
"""Work of the host by kind, as in projector/catalog/hosts.yaml."""
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
    bandwidths = _bandwidths(entries, place, unused)
    gap, host = _launch(entries, place)
    return MeasuredRates(
        gemm=_gemm(entries["gemm"], f"{place}: gemm") if "gemm" in entries else None,
        grouped=_grouped(entries["grouped_gemm"], f"{place}: grouped_gemm") if "grouped_gemm" in entries else None,
        attention=Rates(attention, regimes[0]) if regimes else None,
        elementwise_bytes_per_second=bandwidths.pop(_ELEMENTWISE, None),
        bandwidths=bandwidths,
        collectives=_collectives(entries, place, unused),
        curves=read_curves(entries, place),
        dispatch=_dispatch(entries, place),
        kernel_gap_seconds=gap,
        host=host,
    ), tuple(unused)


def _gemm(table: object, place: str) -> Rates[GemmShape]:
    def shape(row: Mapping[str, Any], here: str) -> tuple[GemmShape, float]:
        batch, m, k, n = (width(row, name, here) for name in ("b", "m", "k", "n"))
        accumulates = row.get("accumulate", False) is True
        layout = None if row.get("layout") is None else choice(row, "layout", here, _LAYOUTS)
        found = GemmShape(batch, m, k, n, accumulates, _dtype(row, "out_dtype", here), layout)
        return found, 2.0 * batch * m * k * n

    return _rates(table, place, _GEMM, shape)


def _grouped(table: object, place: str) -> Rates[GroupedShape]:
    def shape(row: Mapping[str, Any], here: str) -> tuple[GroupedShape, float]:
        groups, rows, n, k = (width(row, name, here) for name in ("ng", "m", "n", "k"))
        stage = choice(row, "stage", here, _STAGES)
        weight = stage == "bwd_grad_w"
        size = _dtype(row, "main_grad_dtype" if weight else "out_dtype", here)
        sides = (k, n) if stage == "bwd_grad_act" else (n, k)
        return GroupedShape(groups, rows, *sides, weight, size), 2.0 * groups * rows * n * k

    return _rates(table, place, _GROUPED, shape)


def _attention(table: object, place: str, *, backward: bool) -> Rates[AttentionShape]:
    whole = _table(table, place)
    counted = choice(whole, "attention_flops", place, ("full", "causal")) if "attention_flops" in whole else "full"

    def shape(row: Mapping[str, Any], here: str) -> tuple[AttentionShape, float]:
        batch, length, heads, key_value, query_key, value = (width(row, name, here) for name in _ATTENTION.needed[:6])
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
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ConfigurationError("stands there twice", place=f"{place}.columns.{name}", expected="each column once")
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
        found[key].append(flops / (number(values, "tflops", here) * TERA))
    regime = Regime(choice(whole, "regime", place, tuple(Regime))) if "regime" in whole else Regime.BURST
    return Rates({key: sum(seconds) / len(seconds) for key, seconds in found.items()}, regime)


def _table(table: object, place: str) -> Mapping[str, Any]:
    if not isinstance(table, Mapping):
        raise ConfigurationError(f"{shown(table)} is not a map", place=place, expected="keys columns, rows")
    for key in table:
        if key not in _TABLE_KEYS:
            raise ConfigurationError("is not a known key", place=f"{place}.{key}", expected=nearest(key, _TABLE_KEYS))
    return table


def _bandwidths(entries: Mapping[str, object], place: str, unused: list[str]) -> dict[str, float]:
    key = "memory_bandwidth_gb_per_s"
    kinds = mapping(entries.get(key, {}), f"{place}: {key}")
    unused += [f"{key}.{kind}" for kind in kinds if kind not in _BANDWIDTHS]
    found = {}
    for kind in _BANDWIDTHS:
        if kind in kinds:
            here = f"{place}: {key}.{kind}"
            found[kind] = number(mapping(kinds[kind], here), "achieved", here) * GIGA
    return found


def _dispatch(entries: Mapping[str, object], place: str) -> DispatchRates:
    here = f"{place}: expert_dispatch"
    figures = _known(entries.get("expert_dispatch", {}), here, _DISPATCH)
    inside, between = (
        number(figures, key, here) * GIGA if figures.get(key) is not None else None for key in _DISPATCH[:2]
    )
    fixed = microseconds(figures, "latency_us", here) if "latency_us" in figures else None
    return DispatchRates(inside, between, fixed)


def _launch(entries: Mapping[str, object], place: str) -> tuple[float | None, dict[str, float]]:
    """The gap between kernels, and what work costs the host, in seconds."""
    here = f"{place}: launch"
    names = {f"{name}_us": f"{name}_seconds" for name in _HOST}
    figures = _known(entries.get("launch", {}), here, (_GAP, *names, "source"))
    host = {field: microseconds(figures, key, here) for key, field in names.items() if key in figures}
    return microseconds(figures, _GAP, here) if _GAP in figures else None, host


def _known(value: object, place: str, known: tuple[str, ...]) -> Mapping[str, Any]:
    """A map of none but known names."""
    found = mapping(value, place)
    for key in found:
        if key not in known:
            raise ConfigurationError("is not a known key", place=f"{place}.{key}", expected=nearest(key, known))
    return found


def _collectives(entries: Mapping[str, object], place: str, unused: list[str]) -> dict[str, MeasuredCollective]:
    key = "collectives_one_node"
    found = {}
    for name, values in mapping(entries.get(key, {}), f"{place}: {key}").items():
        here = f"{place}: {key}.{name}"
        if name not in _IN_ONE_NODE:
            unused.append(f"{key}.{name}")
            continue
        figures = _known(values, here, _COLLECTIVE_KEYS)
        by_ranks = mapping(figures.get("fixed_latency_us_by_ranks") or {}, f"{here}.fixed_latency_us_by_ranks")
        for ranks in by_ranks:
            if not str(ranks).isdecimal():
                place_of = f"{here}.fixed_latency_us_by_ranks"
                raise ConfigurationError(shown(ranks), place=place_of, expected="expected a number of ranks")
        found[COLLECTIVES[name]] = MeasuredCollective(
            bytes_per_second=number(figures, "bus_gb_per_s", here) * GIGA,
            fixed_seconds=microseconds(figures, "fixed_latency_us", here),
            fixed_seconds_by_ranks={
                int(ranks): microseconds(by_ranks, ranks, f"{here}.fixed_latency_us_by_ranks") for ranks in by_ranks
            },
            step_seconds=microseconds(figures, "latency_us", here),
        )
    return found


def _dtype(row: Mapping[str, Any], name: str, place: str) -> int:
    return _DTYPE_BYTES[choice(row, name, place, tuple(_DTYPE_BYTES))] if name in row else _DTYPE_BYTES["bf16"]
