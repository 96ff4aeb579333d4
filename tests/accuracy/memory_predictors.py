"""Memory from formulas without a model of the framework, beside which the engine has to show skill."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from statistics import fmean, median

from projector import catalog
from projector.errors import InputError
from projector.job import Attention, DenseMLP, Recompute, RecomputeGranularity, Sharding, Target, TrainingJob
from projector.layers.shapes import padded_vocabulary
from tests.accuracy.architecture import UnscorableError
from tests.accuracy.jobs import job
from tests.accuracy.rows import Row
from tests.accuracy.scoring import GIB, LAST_STAGE_SOURCES, Figure, row_error

ALLOCATED, RESERVED = "mem_alloc_gib", "mem_reserved_gib"
CLOSED_FORMULA = "NVIDIA's closed formula"
"""Megatron-LM megatron/training/theoretical_memory_usage.py, for the first stage of a dense model without context
parallelism."""
CONSTANT_RATIO = "measured allocated x one constant per vendor"
"""Reserved is what was allocated, which this predictor is told, times the median ratio of the rows to fit on."""


def closed_formula_gib(asked: TrainingJob, target: Target) -> float | None:
    """Weights, optimizer state and activations by NVIDIA's formula; None for models it was not made for.

    Source: `compute_weight_and_optimizer_memory` and `compute_activation_memory` of Megatron-LM.
    """
    layer, hidden, degrees = asked.model.layers[0], asked.model.hidden, asked.parallelism
    if not isinstance(layer.mixer, Attention) or not isinstance(layer.feed_forward, DenseMLP):
        return None
    if asked.model.expert_blocks or degrees.sharding is Sharding.PARAMETERS or degrees.context > 1:
        return None
    mixer, ffn, layers = layer.mixer, layer.feed_forward, len(asked.model.layers)
    query = mixer.heads * mixer.head_dim / hidden
    shared = mixer.key_value_heads / mixer.heads
    width = ffn.ffn / hidden * (1.5 if ffn.gated else 1.0)
    per_layer = 2 * hidden**2 * ((1 + shared) * query + width + 2 / hidden)
    vocabulary = padded_vocabulary(asked)
    table = hidden * vocabulary
    ends = table if asked.model.tied_embeddings else 2 * table
    pipeline = degrees.pipeline
    parameters = layers * per_layer / pipeline + (ends if pipeline == 1 else table)
    data = target.devices // (degrees.tensor * pipeline * degrees.context)
    each = 18.0 if degrees.sharding is Sharding.NONE else 6 + 12 / data
    weights = parameters * each / degrees.tensor
    return (weights + _activations(asked, vocabulary, target)) / GIB


def _activations(asked: TrainingJob, vocabulary: int, target: Target) -> float:
    hidden, degrees, batch = asked.model.hidden, asked.parallelism, asked.batch
    ffn = asked.model.layers[0].feed_forward
    assert isinstance(ffn, DenseMLP)
    tokens = batch.sequence_length * batch.micro
    size = tokens * hidden * (18 + 4 * ffn.ffn / hidden) * len(asked.model.layers)
    size += tokens * degrees.pipeline * (8 + hidden)
    if degrees.virtual_pipeline > 1:
        size *= 1 + (degrees.pipeline - 1) / (degrees.pipeline * degrees.virtual_pipeline)
    elif degrees.pipeline > 1:
        data = target.devices // (degrees.tensor * degrees.pipeline * degrees.context)
        count = batch.micro_batches if batch.global_ is None else batch.global_ // (batch.micro * data)
        size *= min(1.0, count / degrees.pipeline)
    if degrees.pipeline == 1:
        size += 4 * tokens * hidden * (1 + vocabulary / hidden)
    return size / degrees.tensor


def with_memory_predictors(figures: Iterable[Figure], rows: Iterable[Row]) -> list[Figure]:
    """Add the predictors' errors to the peers of the figures they speak of."""
    by_id = {row.id: row for row in rows}
    ratios = _ratios(by_id.values())

    def scaled(row: Row) -> float | None:
        ratio = ratios.get(catalog.device(row.hardware).vendor)
        allocated = row.measured.get(ALLOCATED)
        return None if ratio is None or allocated is None else allocated * ratio

    predictors: Mapping[str, tuple[str, Callable[[Row], float | None]]] = {
        ALLOCATED: (CLOSED_FORMULA, _closed_formula),
        RESERVED: (CONSTANT_RATIO, scaled),
    }
    return [
        _with(figure, by_id, *predictors[figure.quantity]) if figure.quantity in predictors else figure
        for figure in figures
    ]


def _closed_formula(row: Row) -> float | None:
    try:
        asked, target = job(row)
    except (UnscorableError, InputError):
        return None
    # The formula is for the first stage; these logs are of the last one.
    if row.source in LAST_STAGE_SOURCES and asked.parallelism.pipeline > 1:
        return None
    none = asked.recompute == Recompute() or asked.recompute.granularity is RecomputeGranularity.NONE
    return closed_formula_gib(asked, target) if none else None


def _ratios(rows: Iterable[Row]) -> dict[str, float]:
    """Reserved over allocated memory by vendor, of rows that constants may be fitted on."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row.fitted and row.score != "excluded" and {ALLOCATED, RESERVED} <= row.measured.keys():
            vendor = catalog.device(row.hardware).vendor
            found.setdefault(vendor, []).append(row.measured[RESERVED] / row.measured[ALLOCATED])
    return {vendor: median(ratios) for vendor, ratios in found.items()}


def _with(figure: Figure, by_id: Mapping[str, Row], name: str, predict: Callable[[Row], float | None]) -> Figure:
    errors = [
        abs(row_error(figure.quantity, predicted, scored.measured))
        for scored in figure.rows
        if not scored.fitted and by_id[scored.id].score != "interval"
        if (predicted := predict(by_id[scored.id])) is not None
    ]
    return replace(figure, peers={**figure.peers, name: fmean(errors)}) if errors else figure
