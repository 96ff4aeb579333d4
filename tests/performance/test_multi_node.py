"""What only shows on many nodes, or under frameworks that divide their weights."""

from dataclasses import replace

import pytest

from projector.job import (
    AttentionBackend,
    Dialect,
    LowPrecision,
    Precision,
    Sharding,
    Software,
    TrainingJob,
)
from projector.projection import PerformanceProjection
from tests.performance.jobs import LLAMA_8B, LLAMA_70B, a_job, project

FP8 = Precision(low_precision=LowPrecision.FP8)
PIPELINE = a_job(LLAMA_70B, batch=64, tensor=4, pipeline=4, virtual_pipeline=5, software=Software())
SHARDED = a_job(LLAMA_8B, batch=64, sharding=Sharding.PARAMETERS, software=Software(dialect=Dialect.TORCHTITAN))


def _part(result: PerformanceProjection, name: str) -> float:
    return sum(step.seconds for step in result.waterfall if name in step.name)


def _bytes(job: TrainingJob, collective: str) -> int:
    found = project(job, "H100", nodes=2).communication
    return sum(each.message_bytes for each in found if (each.group, each.collective) == ("tensor", collective))


def test_an_input_in_eight_bits_is_gathered_in_eight_bits_and_outputs_are_summed_in_sixteen() -> None:
    """Transformer Engine quantises before it gathers; the output layer, which stays in 16 bits, gathers as before."""
    narrow = replace(PIPELINE, precision=FP8)
    gathered, before = _bytes(narrow, "all_gather"), _bytes(PIPELINE, "all_gather")
    assert 0.5 < gathered / before < 0.52
    assert _bytes(narrow, "reduce_scatter") == _bytes(PIPELINE, "reduce_scatter")


def test_delayed_scaling_exchanges_its_maxima_behind_each_pass_of_a_chunk() -> None:
    delayed = replace(PIPELINE, precision=replace(FP8, delayed_scaling=True))
    own = project(replace(PIPELINE, precision=FP8), "H100", nodes=8)
    few, many = (project(delayed, "H100", nodes=nodes) for nodes in (8, 32))
    assert _part(own, "scaling factors") == 0
    # Two passes of each of five chunks for every micro batch; a stage has two nodes, or eight.
    each = [_part(result, "scaling factors") / (10 * count) for result, count in ((few, 16), (many, 4))]
    assert each == pytest.approx([80e-6, 200e-6])


def test_stages_of_one_nvlink_domain_send_over_it() -> None:
    """Four stages of 16 GPUs lie in one rack of GB200; twice as large ones do not, and send over the network."""
    inside, across = (
        _part(project(PIPELINE, "GB200", nodes=nodes, per_node=4), "pipeline-parallel") * nodes for nodes in (16, 32)
    )
    assert across > 3 * inside


def test_weights_that_are_not_gathered_ahead_hold_their_layers_up() -> None:
    ahead = project(SHARDED, "H100", nodes=4)
    waiting = replace(SHARDED, parallelism=replace(SHARDED.parallelism, prefetches_layers=False))
    behind = project(waiting, "H100", nodes=4)
    exposed = _part(behind, "data-parallel") - _part(ahead, "data-parallel")
    total = sum(each.seconds for each in behind.communication if each.group == "data")
    assert _part(behind, "data-parallel") == pytest.approx(total, rel=1e-6)
    assert exposed > 0


def test_attention_of_another_kernel_family_runs_at_its_own_rate() -> None:
    """llm-foundry's Triton attention reaches 213 of 540 TFLOP/s forward and 169 of 450 backward on an H100."""
    triton = replace(SHARDED, software=replace(SHARDED.software, attention_backend=AttentionBackend.TRITON))
    slow, fast = (_part(project(job, "H100", nodes=1), "attention") for job in (triton, SHARDED))
    assert slow / fast == pytest.approx(2.64, rel=0.05)
    assert _part(project(triton, "MI300X", nodes=1), "attention") == _part(
        project(SHARDED, "MI300X", nodes=1), "attention"
    )
