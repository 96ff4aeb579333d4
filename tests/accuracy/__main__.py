"""Prints how well the engine projects a file of measured runs."""

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from projector.api import project_job
from projector.job import Target, TrainingJob
from projector.projection import MemoryProjection, PerformanceProjection
from tests.accuracy.calibrated import with_calibration
from tests.accuracy.jobs import assumed
from tests.accuracy.memory_predictors import with_memory_predictors
from tests.accuracy.rows import Row, load
from tests.accuracy.scoring import Figure, coverage, score
from tests.accuracy.trivial import anchored, with_constant_speed

COLUMNS = "{:<34} {:<22} {:>4} {:>4} {:>8} {:>8} {:>8}  {}"


def table(figures: Iterable[Figure]) -> str:
    """Aligned lines, one per source and quantity."""
    lines = [COLUMNS.format("source", "quantity", "n", "ok", "MAE %", "bias %", "worst %", "peers, intervals")]
    for figure in figures:
        remarks = [f"{peer} {error:.2f} %" for peer, error in sorted(figure.peers.items())]
        held = coverage(row for row in figure.rows if not row.fitted)
        if held.rows:
            remarks.append(f"{held.inside} of {held.rows} held inside +-{held.half_width_percent:.1f} %")
        if figure.covered[1]:
            remarks.append(f"interval holds {figure.covered[0]} of {figure.covered[1]}")
        lines.append(
            COLUMNS.format(
                figure.source,
                figure.quantity,
                figure.n,
                figure.scored,
                f"{figure.mae_percent:.2f}",
                f"{figure.bias_percent:+.2f}",
                f"{figure.worst_percent:.2f}",
                "; ".join(remarks),
            ).rstrip()
        )
    return "\n".join(lines)


def as_json(figure: Figure) -> dict[str, Any]:
    """One entry of the `--json` list."""
    entry = asdict(figure)
    entry["skipped"] = [{"id": row, "reason": reason} for row, reason in figure.skipped]
    inside, of = entry.pop("covered")
    held = coverage(row for row in figure.rows if not row.fitted)
    return entry | {"interval_rows": of, "interval_rows_covered": inside, "held_intervals": asdict(held)}


def _coverage(figures: list[Figure], rows: list[Row]) -> str:
    answered = {row.id for figure in figures for row in figure.rows}
    skipped = {row for figure in figures for row, _ in figure.skipped} - answered
    total = len(answered | skipped)
    excluded = sum(row.score == "excluded" for row in rows)
    share = len(answered) / total if total else 1.0
    answers = f"{len(answered)} of {total} rows answered, {share:.1%} ({excluded} more excluded by the file)"
    return f"{answers}; figures are over rows on which no constant may be fitted"


def figures_and_speeds(rows: list[Row]) -> tuple[list[Figure], dict[str, float]]:
    """Score the rows by the project's engine; the second value is its model TFLOP/s per device of each row."""
    speeds: dict[str, float] = {}

    def engine(job: TrainingJob, target: Target, *, replay: bool) -> tuple[MemoryProjection, PerformanceProjection]:
        memory, performance = project_job(job, target, replay=replay)
        speeds[job.model.name] = performance.tflops_per_device
        return memory, performance

    return score(rows, engine), speeds


def main(argv: list[str] | None = None) -> int:
    """Score the file and print; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.accuracy", description=__doc__, allow_abbrev=False)
    parser.add_argument("--rows", type=Path, default=Path(__file__).with_name("ground_truth.yaml"))
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of a table")
    parser.add_argument("--anchor", choices=["smallest"], help="score scaling ladders from their smallest measured run")
    parser.add_argument("--skipped", action="store_true", help="also list the rows without an answer, with reasons")
    parser.add_argument("--assumed", action="store_true", help="also list what rows do not print and where it is from")
    options = parser.parse_args(argv)
    if not options.rows.is_file():
        parser.error(f"--rows: no file {options.rows}")
    rows = load(options.rows)
    figures, speeds = figures_and_speeds(rows)
    if options.anchor:
        figures = anchored(figures, rows)
    else:
        figures = with_memory_predictors(with_constant_speed(figures, rows, speeds), rows)
        figures = with_calibration(figures, rows)
    if options.json:
        json.dump([as_json(figure) for figure in figures], sys.stdout, indent=1)
        print()
        return 0
    print(table(figures))
    print(_coverage(figures, rows))
    if options.skipped:
        for figure in figures:
            for row, reason in figure.skipped:
                print(f"  {row} ({figure.quantity}): {reason}")
    if options.assumed:
        for each in rows:
            if notes := assumed(each):
                print(f"  {each.id}: {', '.join(notes)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
