"""Tables of the accuracy page that show single rows: every comparison, folded by source, and schedules beside 1F1B."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from statistics import fmean, median

from projector import catalog
from tests.accuracy.rows import MEMORY_QUANTITIES, Row
from tests.accuracy.scoring import Figure, ScoredRow, coverage
from tests.accuracy.time_evidence import modes_of_row

ONE_F_ONE_B = "1f1b"


def folded(figures: Iterable[Figure], rows: Iterable[Row]) -> Iterator[str]:
    """Every row of every source behind a line that opens it."""
    by_id = {row.id: row for row in rows}
    by_source: dict[str, list[Figure]] = defaultdict(list)
    for figure in figures:
        by_source[figure.source].append(figure)
    for source, here in sorted(by_source.items()):
        count = sum(len(figure.rows) + len(figure.skipped) for figure in here)
        yield f"<details>\n<summary>{source}: {count} comparisons</summary>\n"
        yield "| row | quantity | measured | projected | interval | error % | |"
        yield "| --- | --- | ---: | ---: | ---: | ---: | --- |"
        for figure in here:
            for scored in figure.rows:
                yield _row(figure.quantity, scored, by_id[scored.id])
            for row, reason in figure.skipped:
                yield f"| {row} | {figure.quantity} | | | | | {_plain(reason)} |"
        yield "\n</details>\n"


def _row(quantity: str, scored: ScoredRow, row: Row) -> str:
    memory = quantity in MEMORY_QUANTITIES
    interval = f"{_number(scored.lower)} to {_number(scored.upper)}" if scored.upper > scored.lower else ""
    judged = "fitted" if scored.fitted else "held"
    if memory and row.score == "interval":
        judged += ", by interval"
    outside = interval and not scored.lower <= scored.measured <= scored.upper
    cells = (
        scored.id,
        quantity,
        _number(scored.measured),
        _number(scored.projected),
        interval,
        f"{scored.error_percent:+.1f}",
        f"{judged}, outside" if outside else judged,
    )
    return f"| {' | '.join(cells)} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.2f}"  # noqa: PLR2004 - four digits are enough


def _plain(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")


def time_intervals(figures: Iterable[Figure], rows: Iterable[Row]) -> Iterator[str]:
    """By mode of the job what its interval reaches, and how many held rows theirs hold; at the end all rows."""
    by_id = {row.id: row for row in rows}
    held: dict[str, list[ScoredRow]] = defaultdict(list)
    together = [row for figure in figures for row in figure.rows]
    for scored in together:
        for mode in modes_of_row(by_id[scored.id]):
            if not scored.fitted:
                held[mode].append(scored)
    yield "| mode | less % | more % | fitted rows | held rows | inside | median error % |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for mode, listed in sorted(catalog.measured_times().items()):
        found = coverage(held[mode])
        reach = (f"{listed.below_percent:g}", f"{listed.above_percent:g}")
        error = f"{median(abs(row.error_percent) for row in held[mode]):.1f}" if held[mode] else ""
        inside = f"{found.inside / found.rows:.0%}" if found.rows else ""
        yield f"| {' | '.join((mode, *reach, str(listed.fitted_runs), str(found.rows), inside, error))} |"
    every, kept = coverage(together), coverage(row for row in together if not row.fitted)
    yield ""
    yield (
        f"Of all {every.rows} rows {every.inside / every.rows:.0%} lie inside their intervals, whose median half width"
        f" is {every.half_width_percent:.1f} %; of the {kept.rows} held ones {kept.inside / kept.rows:.0%}, at"
        f" {kept.half_width_percent:.1f} %."
    )


def beside_one_f_one_b(figures: Iterable[Figure], rows: Iterable[Row]) -> Iterator[str]:
    """Memory of other schedules over that of 1F1B of the same model and micro batches, measured and projected."""
    by_id = {row.id: row for row in rows}
    plain: dict[tuple[object, ...], ScoredRow] = {}
    others: dict[tuple[str, str], list[tuple[Row, ScoredRow]]] = defaultdict(list)
    for figure in figures:
        if figure.quantity != "mem_gb":
            continue
        for scored in figure.rows:
            row = by_id[scored.id]
            schedule = str(row.parallel.get("schedule"))
            if schedule == ONE_F_ONE_B:
                plain[_same(row)] = scored
            else:
                others[figure.source, schedule].append((row, scored))
    yield "| source | schedule | pairs | measured over 1F1B | projected over 1F1B | mean error % |"
    yield "| --- | --- | ---: | ---: | ---: | ---: |"
    for (source, schedule), found in sorted(others.items()):
        pairs = [(scored, plain[_same(row)]) for row, scored in found if _same(row) in plain]
        if pairs:
            yield f"| {source} | {schedule} | {len(pairs)} | {_ratios(pairs)} |"


def _ratios(pairs: Iterable[tuple[ScoredRow, ScoredRow]]) -> str:
    ratios = [(one.measured / base.measured, one.projected / base.projected) for one, base in pairs]
    error = fmean(abs(projected / measured - 1) for measured, projected in ratios)
    means = (fmean(ratio[side] for ratio in ratios) for side in (0, 1))
    return " | ".join((*(f"{mean:.3f}" for mean in means), f"{100 * error:.1f}"))


def _same(row: Row) -> tuple[object, ...]:
    """What runs share that differ in their schedule alone."""
    facts: Mapping[str, object] = row.model
    return (
        row.source,
        facts.get("layers"),
        facts.get("hidden"),
        row.train.get("mbs"),
        row.train.get("num_microbatches"),
    )
