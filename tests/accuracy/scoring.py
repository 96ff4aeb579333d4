"""Compares projected with measured quantities and sums up per source and quantity."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, median
from typing import Protocol

from projector.errors import InputError
from projector.job import Target, TrainingJob
from projector.memory import count_parameters
from projector.parallelism import resolve
from projector.performance import with_unstated
from projector.projection import MemoryLevel, MemoryProjection, PerformanceProjection, StageMemory
from tests.accuracy.activations import layer_activation_bytes
from tests.accuracy.architecture import UnscorableError
from tests.accuracy.batches import prints_global_batch
from tests.accuracy.jobs import job
from tests.accuracy.rows import MEMORY_QUANTITIES, TIME_QUANTITIES, Row
from tests.accuracy.unstated import unstated
from tests.accuracy.world import IDENTIFIES, identified, is_unstated

GIB = 2**30
RELATIVE_FLOOR_GIB = 5.0
"""Below this, memory of tiny models is dominated by constants, so the error is taken relative to the floor."""

LAST_STAGE_SOURCES = frozenset({"megatron-ci-golden"})
"""Sources whose log is written by the last global rank, so that the last stage is compared."""

PARAMETER_COMPONENTS = frozenset({"weights", "gradients", "optimizer state"})
"""Components of memory that parameters cause."""
END_COMPONENTS = frozenset({"embedding", "final_norm", "output_layer"})
"""Components of parameters outside layers."""

LEVELS = {
    "mem_persistent_gib": MemoryLevel.PERSISTENT,
    "mem_alloc_gib": MemoryLevel.ALLOCATED,
    "mem_alloc_gb": MemoryLevel.ALLOCATED,
    "mem_gb": MemoryLevel.ALLOCATED,
    "mem_reserved_gib": MemoryLevel.RESERVED,
    "mem_device_gib": MemoryLevel.DEVICE,
    "mem_device_gb": MemoryLevel.DEVICE,
}
"""The level that a column states; the zero-bubble paper's `mem_gb` is torch's peak allocated."""

BEYOND_ALLOCATED = frozenset({MemoryLevel.RESERVED, MemoryLevel.DEVICE})
"""Levels that depend on what the caching allocator holds in reserve."""


class Engine(Protocol):
    """What is scored."""

    def __call__(
        self, job: TrainingJob, target: Target, /, *, replay: bool
    ) -> tuple[MemoryProjection, PerformanceProjection]:
        """Memory and time of a job; `replay` asks for memory beyond what is allocated, too."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredRow:
    """One measured quantity beside its projection."""

    id: str
    """Row."""
    measured: float
    """In the column's unit."""
    projected: float
    """In the column's unit."""
    lower: float
    """Lower end of the projected interval; equals `projected` where the engine gives none."""
    upper: float
    """Upper end of the projected interval."""
    error_percent: float
    """Projected minus measured, in percent of measured."""
    fitted: bool
    """Constants may have been fitted on it, so it does not count."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """How well one quantity of one source is projected."""

    source: str
    """Publication."""
    quantity: str
    """Column."""
    n: int
    """Rows that count: not fitted, not judged by interval."""
    scored: int
    """Of those, rows that the engine answered."""
    mae_percent: float
    """Mean absolute error; a skipped row counts as 100."""
    bias_percent: float
    """Mean error of the answered rows."""
    worst_percent: float
    """Largest absolute error of the answered rows."""
    covered: tuple[int, int]
    """Of the rows judged by interval, how many measured values lie inside, and how many there are."""
    rows: tuple[ScoredRow, ...]
    """Every answered row, fitted ones too."""
    skipped: tuple[tuple[str, str], ...]
    """Rows that were not answered, each with the reason."""
    peers: Mapping[str, float]
    """Mean absolute error of other tools on rows of this source and quantity, where published."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Coverage:
    """How many intervals hold what was measured, and how wide they are."""

    rows: int
    """Rows with an interval."""
    inside: int
    """Of those, rows whose measured value it holds."""
    half_width_percent: float
    """Median of half the widths, in percent of what is projected; 0 of no rows."""


def coverage(rows: Iterable[ScoredRow]) -> Coverage:
    """The intervals of some rows."""
    wide = [row for row in rows if row.upper > row.lower]
    return Coverage(
        rows=len(wide),
        inside=sum(row.lower <= row.measured <= row.upper for row in wide),
        half_width_percent=median(50 * (row.upper - row.lower) / row.projected for row in wide) if wide else 0.0,
    )


def _stage(row: Row, memory: MemoryProjection, level: MemoryLevel) -> StageMemory:
    if row.source in LAST_STAGE_SOURCES:
        return memory.stages[-1]
    return max(memory.stages, key=lambda stage: stage.level_bytes(level))


def _memory_gib(row: Row, quantity: str, memory: MemoryProjection) -> tuple[float, float, float]:
    level = LEVELS[quantity]
    stage = _stage(row, memory, level)
    value = stage.level_bytes(level) / GIB
    lower, upper = (end / GIB for end in stage.interval_bytes(level))
    first = stage.first_iteration_allocated_bytes
    if not row.first_iteration or first is None or level is MemoryLevel.PERSISTENT:
        return value, lower, upper
    missing = (stage.level_bytes(MemoryLevel.ALLOCATED) - first) / GIB
    if level is MemoryLevel.ALLOCATED:
        return value - missing, lower - missing, upper - missing
    held = stage.first_iteration_reserved_bytes
    if held is not None:
        missing = (stage.level_bytes(MemoryLevel.RESERVED) - held) / GIB
        return value - missing, lower - missing, upper - missing
    # What the allocator holds then lies between the first iteration's peak and what a later one needs.
    return value, lower - missing, upper


def _layers_gib(row: Row, memory: MemoryProjection, job: TrainingJob, target: Target) -> float:
    """Weights, gradients and optimizer state of layers alone, which is what `mem_params_opt_gib` counts.

    Korthikanti et al. (arXiv 2205.05198) leave out token and position tables: the values are 18 bytes of each of the
    12 h^2 parameters of a layer (calculon-ai/calculon calculon/llm/validation.py).
    """
    counts = count_parameters(job, resolve(job, target))
    ends = [each.parameters_per_device_max for each in counts.components if each.name in END_COMPONENTS]
    # With several stages the fullest one has the tables of one end.
    outside = sum(ends) if len(memory.stages) == 1 else max(ends)
    stage = _stage(row, memory, MemoryLevel.PERSISTENT)
    held = sum(part.size_bytes for part in stage.components if part.name in PARAMETER_COMPONENTS)
    return held * (1 - outside / counts.per_device_max) / GIB


def _time(row: Row, quantity: str, performance: PerformanceProjection) -> tuple[float, float, float]:
    if quantity.startswith("iter_ms"):
        ends = performance.iteration_seconds_lower, performance.iteration_seconds_upper
        return performance.iteration_seconds * 1e3, ends[0] * 1e3, ends[1] * 1e3
    rate = performance.tflops_per_device
    if quantity == "tokens_per_s_per_gpu":
        rate = performance.tokens_per_second_per_device
    if quantity == "hw_tflops_per_gpu" and "full" in str(row.train.get("recompute")):
        rate *= 4 / 3
    return rate, performance.at_least(rate), performance.at_most(rate)


def row_error(quantity: str, projected: float, measured: float) -> float:
    base = max(measured, RELATIVE_FLOOR_GIB) if quantity in MEMORY_QUANTITIES else measured
    return 100.0 * (projected - measured) / base


def _score(row: Row, engine: Engine) -> Iterable[tuple[str, ScoredRow | str]]:
    """Each measured quantity with its comparison, or with the reason why there is none."""
    used = IDENTIFIES if is_unstated(row) else None
    row = identified(row, lambda built, target: engine(built, target, replay=False)[0])
    built, target = job(row)
    beyond = any(LEVELS.get(quantity) in BEYOND_ALLOCATED for quantity in row.measured)
    memory, performance = engine(built, target, replay=beyond)
    performance = with_unstated(performance, unstated(row))
    for quantity, measured in row.measured.items():
        if quantity.startswith("iter_ms") and not prints_global_batch(row):
            yield quantity, "the source does not print the global batch"
            continue
        if quantity in TIME_QUANTITIES:
            projected, lower, upper = _time(row, quantity, performance)
        elif quantity == "mem_params_opt_gib":
            projected = lower = upper = _layers_gib(row, memory, built, target)
        elif quantity == "mem_activation_gib":
            projected = lower = upper = layer_activation_bytes(built, target) / GIB
        else:
            projected, lower, upper = _memory_gib(row, quantity, memory)
        yield (
            quantity,
            ScoredRow(
                id=row.id,
                measured=measured,
                projected=projected,
                lower=lower,
                upper=upper,
                error_percent=row_error(quantity, projected, measured),
                fitted=row.fitted or quantity == used,
            ),
        )


def _peers(rows: Iterable[Row], quantity: str) -> dict[str, float]:
    errors: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        for peer, values in row.peers.items():
            if quantity in values and quantity in row.measured:
                errors[peer].append(abs(row_error(quantity, float(values[quantity]), row.measured[quantity])))
    return {peer: fmean(values) for peer, values in errors.items()}


def _figure(
    source: str,
    quantity: str,
    rows: list[Row],
    scored: list[ScoredRow],
    skipped: list[tuple[str, str]],
) -> Figure:
    judged_by_interval = {row.id for row in rows if row.score == "interval" and quantity in MEMORY_QUANTITIES}
    fitted = {row.id for row in rows if row.fitted}
    counted = [s for s in scored if not s.fitted and s.id not in judged_by_interval]
    missed = [entry for entry in skipped if entry[0] not in fitted | judged_by_interval]
    errors = [s.error_percent for s in counted]
    n = len(counted) + len(missed)
    inside = [s for s in scored if s.id in judged_by_interval]
    return Figure(
        source=source,
        quantity=quantity,
        n=n,
        scored=len(counted),
        mae_percent=(sum(map(abs, errors)) + 100.0 * len(missed)) / n if n else 0.0,
        bias_percent=fmean(errors) if errors else 0.0,
        worst_percent=max(map(abs, errors), default=0.0),
        covered=(sum(s.lower <= s.measured <= s.upper for s in inside), len(inside)),
        rows=tuple(sorted(scored, key=lambda s: s.id)),
        skipped=tuple(sorted(skipped)),
        peers=_peers(rows, quantity),
    )


def score(rows: Iterable[Row], engine: Engine) -> list[Figure]:
    """Score every row that is not excluded; the order and names of rows do not matter."""
    by_source: dict[str, list[Row]] = defaultdict(list)
    answered: dict[tuple[str, str], list[ScoredRow]] = defaultdict(list)
    skipped: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for row in rows:
        if row.score == "excluded":
            continue
        by_source[row.source].append(row)
        try:
            for quantity, scored in _score(row, engine):
                if isinstance(scored, str):
                    skipped[row.source, quantity].append((row.id, scored))
                else:
                    answered[row.source, quantity].append(scored)
        except (UnscorableError, InputError) as error:
            for quantity in row.measured:
                skipped[row.source, quantity].append((row.id, str(error)))
    return [
        _figure(*key, by_source[key[0]], answered[key], skipped[key])
        for key in sorted(answered.keys() | skipped.keys())
    ]
