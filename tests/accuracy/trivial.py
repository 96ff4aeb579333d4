"""Predictors without a model inside; an engine that does not beat them has no skill."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import fmean, median

from tests.accuracy.rows import TIME_QUANTITIES, Row
from tests.accuracy.scoring import Figure, ScoredRow

CONSTANT_SPEED = "one constant speed per GPU and precision"
"""Every run reaches the median model FLOP/s of the runs on the same GPU in the same precision."""

FLAT = "unchanged step time"
"""Growing data parallelism at the same work per device changes nothing."""


def _slowness(scored: ScoredRow, quantity: str) -> float:
    """Measured time over projected time: how much slower the run was than the engine says."""
    ratio = scored.measured / scored.projected
    return ratio if quantity.startswith("iter_ms") else 1.0 / ratio


def with_constant_speed(figures: Iterable[Figure], rows: Iterable[Row], speeds: Mapping[str, float]) -> list[Figure]:
    """Add the predictor's error to the peers of every time figure.

    `speeds` is the engine's model TFLOP/s per device of each row; the measured one follows from the measured time. The
    constant of a kind is the median over the rows that constants may be fitted on.
    """
    figures = list(figures)
    kinds = {row.id: (row.hardware, str(row.train.get("precision"))) for row in rows}
    measured: dict[tuple[str, str], list[float]] = defaultdict(list)
    for figure in figures:
        if figure.quantity in TIME_QUANTITIES:
            for scored in figure.rows:
                if scored.fitted:
                    measured[kinds[scored.id]].append(speeds[scored.id] / _slowness(scored, figure.quantity))
    constants = {kind: median(values) for kind, values in measured.items()}
    return [_with_constant(figure, kinds, constants, speeds) for figure in figures]


def _with_constant(
    figure: Figure,
    kinds: Mapping[str, tuple[str, str]],
    constants: Mapping[tuple[str, str], float],
    speeds: Mapping[str, float],
) -> Figure:
    if figure.quantity not in TIME_QUANTITIES:
        return figure
    errors = [
        100.0 * abs(speeds[scored.id] / _slowness(scored, figure.quantity) / constants[kinds[scored.id]] - 1.0)
        for scored in figure.rows
        if not scored.fitted and kinds[scored.id] in constants
    ]
    return replace(figure, peers={**figure.peers, CONSTANT_SPEED: fmean(errors)}) if errors else figure


def _rung(row: Row) -> tuple[object, ...]:
    """What runs of one ladder share: everything but the number of devices, at the same work per device."""
    layout = tuple(sorted((key, str(value)) for key, value in row.parallel.items() if key not in {"dp", "fsdp_shard"}))
    batch = row.train.get("gbs")
    share = None if batch is None or not row.devices else batch / row.devices
    return (row.source, row.group, str(row.model.get("layers")), layout, share, row.train.get("mbs"), row.framework)


def anchored(figures: Iterable[Figure], rows: Iterable[Row]) -> list[Figure]:
    """Score ladders of data parallelism: each run is projected from the measured smallest one and the engine's ratio.

    The flat predictor stands beside. Runs that belong to no ladder are left out.
    """
    by_id = {row.id: row for row in rows}
    result = []
    for figure in figures:
        if not figure.quantity.startswith("iter_ms"):
            continue
        ladders: dict[tuple[object, ...], list[ScoredRow]] = defaultdict(list)
        for scored in figure.rows:
            if by_id[scored.id].devices:
                ladders[_rung(by_id[scored.id])].append(scored)
        steps = [step for ladder in ladders.values() for step in _steps(ladder, by_id)]
        if steps:
            result.append(_ladder_figure(figure, steps))
    return result


def _steps(ladder: list[ScoredRow], by_id: Mapping[str, Row]) -> Iterable[tuple[ScoredRow, float]]:
    """Every run above the smallest, projected from it, with the flat predictor's error."""
    anchor, *others = sorted(ladder, key=lambda scored: by_id[scored.id].devices or 0)
    for scored in others:
        projected = scored.projected / anchor.projected * anchor.measured
        error = 100.0 * (projected / scored.measured - 1.0)
        flat = 100.0 * abs(anchor.measured / scored.measured - 1.0)
        yield replace(scored, projected=projected, lower=projected, upper=projected, error_percent=error), flat


def _ladder_figure(figure: Figure, steps: list[tuple[ScoredRow, float]]) -> Figure:
    counted = [(scored, flat) for scored, flat in steps if not scored.fitted]
    errors = [scored.error_percent for scored, _ in counted]
    return replace(
        figure,
        quantity=f"{figure.quantity} from the smallest run",
        n=len(counted),
        scored=len(counted),
        mae_percent=fmean(map(abs, errors)) if errors else 0.0,
        bias_percent=fmean(errors) if errors else 0.0,
        worst_percent=max(map(abs, errors), default=0.0),
        covered=(0, 0),
        rows=tuple(scored for scored, _ in steps),
        skipped=(),
        peers={FLAT: fmean(flat for _, flat in counted)} if counted else {},
    )
