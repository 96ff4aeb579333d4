"""The smallest cluster beside the target, and tables over ever more nodes."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from projector.api import Question, project
from projector.job import Scaling
from projector.projection import LayoutDifference, Projection, ScalingRow, ScalingTable

SAMPLES = Path(__file__).parents[1] / "samples"
DENSE = '{"model": "llama3.1-8b"}'
ROUTED = '{"model": "mixtral-8x7b"}'
BATCH = {"micro_batch_size": "1", "seq_length": "4096"}


def answered(
    text: str = DENSE, *, memory: bool = False, overrides: Mapping[str, str], **question: object
) -> Projection:
    asked = Question(text=text, device="MI300X", memory=memory, overrides={**BATCH, **overrides}, **question)  # type: ignore[arg-type]
    return project(asked)


def tables(projection: Projection) -> dict[Scaling, ScalingTable]:
    assert projection.performance is not None
    return {table.scaling: table for table in projection.performance.scaling}


def test_the_target_stands_beside_the_fewest_nodes_that_hold_its_degrees() -> None:
    found = answered(overrides={"tensor_model_parallel_size": "8", "global_batch_size": "64"}, nodes=4).smallest
    assert found is not None
    assert (found.nodes, found.devices, found.data, found.micro_batches, found.global_batch) == (1, 8, 1, 64, 64)
    assert "TP 8 x PP 1 x CP 1 = 8" in found.why
    changes = {each.what: (each.smallest, each.target) for each in found.differences}
    assert changes == {"nodes": (1, 4), "GPUs": (8, 32), "DP": (1, 4), "micro batches": (64, 16)}
    assert all(isinstance(each, LayoutDifference) and each.why for each in found.differences)


def test_experts_count_for_the_fewest_nodes() -> None:
    degrees = {"tensor_model_parallel_size": "2", "expert_model_parallel_size": "8", "global_batch_size": "64"}
    found = answered(ROUTED, overrides=degrees, nodes=4).smallest
    assert found is not None
    assert (found.nodes, found.devices) == (2, 16)
    assert "ETP 2 x EP 8 x PP 1 = 16" in found.why


def test_weak_scaling_grows_the_batch_beyond_the_smallest_cluster() -> None:
    found = answered(overrides={"global_batch_size": "64"}, nodes=4, scaling=Scaling.WEAK).smallest
    assert found is not None
    changes = {each.what: (each.smallest, each.target) for each in found.differences}
    assert changes["global batch"] == (64, 256)
    assert "micro batches" not in changes


def test_nothing_differs_on_the_smallest_cluster_itself() -> None:
    found = answered(overrides={"global_batch_size": "64"}, nodes=1).smallest
    assert found is not None
    assert found.differences == ()


def test_one_number_of_nodes_stands_for_powers_of_two_up_to_it() -> None:
    overrides = {"global_batch_size": "960", "tensor_model_parallel_size": "8", "pipeline_model_parallel_size": "2"}
    found = tables(answered(overrides=overrides, scaling_nodes=(24,)))
    assert [row.nodes for row in found[Scaling.STRONG].rows] == [2, 4, 8, 16, 24]


def test_listed_nodes_are_the_rows_of_a_table() -> None:
    found = tables(answered(overrides={"global_batch_size": "960"}, scaling_nodes=(5, 1, 3)))
    assert [row.nodes for row in found[Scaling.WEAK].rows] == [1, 3, 5]


@pytest.fixture(scope="module")
def dense() -> dict[Scaling, ScalingTable]:
    return tables(answered(overrides={"global_batch_size": "512"}, scaling_nodes=(64,)))


def test_strong_scaling_keeps_the_global_batch(dense: dict[Scaling, ScalingTable]) -> None:
    rows = [row.time for row in dense[Scaling.STRONG].rows if row.time is not None]
    assert {row.global_batch for row in rows} == {512}
    assert [row.micro_batches * row.data for row in rows] == [512] * len(rows)
    assert [row.iteration_seconds for row in rows] == sorted((row.iteration_seconds for row in rows), reverse=True)


def test_weak_scaling_keeps_the_micro_batches(dense: dict[Scaling, ScalingTable]) -> None:
    rows = [row.time for row in dense[Scaling.WEAK].rows if row.time is not None]
    assert {row.micro_batches for row in rows} == {64}
    assert [row.global_batch for row in rows] == [64 * row.data for row in rows]


@pytest.mark.parametrize("scaling", Scaling)
def test_a_dense_job_is_not_more_efficient_on_more_nodes(dense: dict[Scaling, ScalingTable], scaling: Scaling) -> None:
    efficiencies = [row.time.efficiency for row in dense[scaling].rows if row.time is not None]
    assert efficiencies[0] == 1.0
    # Sharding the optimizer over more ranks shortens its step, by less than a hundredth of the iteration.
    assert max(efficiencies) <= 1.01
    assert min(efficiencies) > 0.5


def test_throughput_of_a_cluster_is_that_of_its_gpus(dense: dict[Scaling, ScalingTable]) -> None:
    for row in dense[Scaling.STRONG].rows:
        if row.time is not None:
            tokens = row.time.global_batch * 4096 / row.time.iteration_seconds
            assert row.tokens_per_second == pytest.approx(tokens)


def test_the_target_is_the_row_of_its_nodes() -> None:
    projection = answered(overrides={"global_batch_size": "512"}, nodes=4, scaling_nodes=(4,))
    assert projection.performance is not None
    (row,) = [each for each in tables(projection)[Scaling.STRONG].rows if each.nodes == 4]
    assert row.time is not None
    assert row.time.iteration_seconds == projection.performance.iteration_seconds


def refused(rows: tuple[ScalingRow, ...]) -> dict[int, str]:
    return {row.nodes: row.refusal for row in rows if row.time is None}


def test_a_batch_that_does_not_divide_is_refused_with_both_numbers() -> None:
    found = tables(answered(overrides={"global_batch_size": "64"}, scaling_nodes=(1, 8, 16)))
    (message,) = refused(found[Scaling.STRONG].rows).values()
    assert "global batch 64" in message
    assert "= 128" in message
    assert refused(found[Scaling.WEAK].rows) == {}


def test_nodes_that_hold_no_whole_copies_are_refused_with_both_numbers() -> None:
    degrees = {"tensor_model_parallel_size": "8", "pipeline_model_parallel_size": "2", "global_batch_size": "64"}
    found = tables(answered(overrides=degrees, scaling_nodes=(1, 2, 3)))
    messages = refused(found[Scaling.STRONG].rows)
    assert messages.keys() == {1, 3}
    assert "24 GPUs" in messages[3]
    assert "16" in messages[3]


def test_a_job_that_states_micro_batches_per_rank_has_no_strong_scaling() -> None:
    text = (SAMPLES / "configurations" / "torchtitan-llama3-8b.toml").read_text(encoding="utf-8")
    found = project(Question(text=text, name="job.toml", device="MI300X", memory=False, scaling_nodes=(4,)))
    assert tables(found).keys() == {Scaling.WEAK}


def test_verdicts_stand_in_the_table_where_memory_is_asked_for() -> None:
    found = tables(answered(memory=True, overrides={"global_batch_size": "64"}, scaling_nodes=(2,)))
    assert all(row.time is not None and row.time.verdict is not None for row in found[Scaling.STRONG].rows)
    alone = tables(answered(overrides={"global_batch_size": "64"}, scaling_nodes=(2,)))
    assert all(row.time is not None and row.time.verdict is None for row in alone[Scaling.STRONG].rows)
