"""The rules by which rows are scored, independent of what the engine says."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from projector.errors import LayoutImpossible
from projector.job import Target, TrainingJob
from projector.projection import (
    Confidence,
    MemoryComponent,
    MemoryLevel,
    MemoryProjection,
    PerformanceProjection,
    PipelinePhase,
    ScheduleResult,
    StageMemory,
    Verdict,
)
from tests.accuracy.rows import Row, load
from tests.accuracy.scoring import GIB, Figure, score

ROWS = load(Path(__file__).with_name("ground_truth.yaml"))


def _memory(gib: float, stages: int) -> MemoryProjection:
    parts = (
        MemoryComponent(name="weights", level=MemoryLevel.PERSISTENT, size_bytes=int(gib * GIB / 2)),
        MemoryComponent(name="activations", level=MemoryLevel.ALLOCATED, size_bytes=int(gib * GIB / 2)),
    )
    return MemoryProjection(
        verdict=Verdict.FITS,
        confidence=Confidence.LOW,
        device_capacity_bytes=80 * GIB,
        stages=tuple(
            StageMemory(
                stage=index,
                layers=(index,),
                parameters=1,
                components=parts if index == 0 else parts[:1],
                device_bytes_lower=int(gib * GIB) - GIB,
                device_bytes_upper=int(gib * GIB) + GIB,
                peak_cause="a test",
            )
            for index in range(stages)
        ),
    )


def _speed(seconds: float) -> PerformanceProjection:
    return PerformanceProjection(
        iteration_seconds=seconds,
        tokens_per_second_per_device=1.0,
        tflops_per_device=1.0,
        mfu=0.5,
        mfu_base_tflops=2.0,
        waterfall=(),
        communication=(),
        schedule=ScheduleResult(
            name="1f1b", stages=(), phase=PipelinePhase(chunks=(), micro_batches=1, transfer_seconds=())
        ),
    )


def _engine(job: TrainingJob, target: Target, **_: object) -> tuple[MemoryProjection, PerformanceProjection]:
    """An engine that answers from the job alone, so that equal rows get equal answers."""
    gib = 1.0 + len(job.model.layers)
    return _memory(gib, job.parallelism.pipeline), _speed((job.batch.global_ or 0) / target.devices)


def _figures(rows: list[Row]) -> dict[tuple[str, str], Figure]:
    return {(figure.source, figure.quantity): figure for figure in score(rows, _engine)}


def _some(source: str) -> list[Row]:
    rows = [row for row in ROWS if row.source == source]
    assert rows
    return rows


def test_renaming_and_shuffling_rows_changes_no_figure() -> None:
    shuffled = [replace(row, id=f"row-{index}") for index, row in enumerate(ROWS)]
    random.Random(7).shuffle(shuffled)
    before, after = _figures(ROWS), _figures(shuffled)
    assert before.keys() == after.keys()
    for key, figure in before.items():
        other = after[key]
        assert (figure.n, figure.scored, figure.covered) == (other.n, other.scored, other.covered)
        assert figure.mae_percent == pytest.approx(other.mae_percent)
        assert figure.worst_percent == pytest.approx(other.worst_percent)


def test_a_row_without_an_answer_counts_as_one_hundred_percent() -> None:
    def refuses(_job: TrainingJob, _target: Target, **_: object) -> tuple[MemoryProjection, PerformanceProjection]:
        raise LayoutImpossible("no")

    (figure,) = score([row for row in _some("korthikanti-2022") if "iter_ms" in row.measured], refuses)
    assert figure.n > 0
    assert figure.scored == 0
    assert figure.mae_percent == pytest.approx(100.0)


def test_rows_that_constants_may_be_fitted_on_do_not_count() -> None:
    rows = [replace(row, score=None) for row in _some("nvidia-dgxc-benchmarking")]
    figures = [figure for figure in score(rows, _engine) if figure.quantity == "iter_ms"]
    open_rows = [row for row in rows if "iter_ms" in row.measured and not row.fitted]
    assert 0 < len(open_rows) < len(rows)
    assert [figure.n for figure in figures] == [len(open_rows)]


def test_interval_rows_are_judged_by_coverage_and_excluded_rows_not_at_all() -> None:
    base = replace(_some("simumax-b200-v1.2")[0], source="a", measured={"mem_alloc_gib": 13.0})
    inside = replace(base, id="in", score="interval")
    outside = replace(base, id="out", score="interval", measured={"mem_alloc_gib": 40.0})
    excluded = replace(base, id="no", score="excluded")
    (figure,) = score([inside, outside, excluded], _engine)
    assert figure.covered == (1, 2)
    assert figure.n == 0


@pytest.mark.parametrize(
    "strange",
    [{"position": "spiral"}, {"heads": None}, {"vocab": None}, {"moe": {"experts": 8, "topk": 2, "dispatcher": "?"}}],
)
def test_a_row_with_a_word_that_is_not_understood_is_skipped_with_a_reason(strange: dict[str, object]) -> None:
    row = _some("simumax-b200-v1.2")[0]
    model = {key: value for key, value in {**row.model, **strange}.items() if value is not None}
    if "moe" in strange:
        model["moe"]["expert_ffn"] = 64
    for figure in score([replace(row, model=model)], _engine):
        assert not figure.rows
        assert figure.skipped[0][1]


def test_the_last_stage_is_compared_where_the_last_rank_writes_the_log() -> None:
    row = next(r for r in _some("megatron-ci-golden") if r.parallel["pp"] > 1 and "mem_alloc_gib" in r.measured)
    as_logged = score([replace(row, score=None)], _engine)
    as_worst = score([replace(row, score=None, source="elsewhere")], _engine)
    pick = {figure.quantity: figure.rows[0].projected for figure in as_logged}["mem_alloc_gib"]
    worst = {figure.quantity: figure.rows[0].projected for figure in as_worst}["mem_alloc_gib"]
    assert pick == pytest.approx(worst / 2)


def test_a_log_of_the_first_iteration_is_compared_with_the_peak_without_moments() -> None:
    row = next(
        row for row in ROWS if row.first_iteration and {"mem_alloc_gib", "mem_device_gib"} <= row.measured.keys()
    )

    def engine(_job: TrainingJob, _target: Target, **_: object) -> tuple[MemoryProjection, PerformanceProjection]:
        memory = _memory(40.0, 1)
        early = replace(memory.stages[0], first_iteration_allocated_bytes=30 * GIB)
        return replace(memory, stages=(early,)), _speed(1.0)

    scored = {figure.quantity: figure.rows[0] for figure in score([row], engine)}
    assert scored["mem_alloc_gib"].projected == pytest.approx(30)
    assert scored["mem_device_gib"].projected == pytest.approx(40)
    assert scored["mem_device_gib"].lower == pytest.approx(29)


def test_nearly_every_row_of_the_file_becomes_a_job() -> None:
    figures = _figures([row for row in ROWS if row.score != "excluded"])
    answered = {row.id for figure in figures.values() for row in figure.rows}
    assert len(answered) >= 0.95 * len([row for row in ROWS if row.score != "excluded"])
