"""Model chunks and communication are told so that a reader can add them up."""

from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projector.job import (
    LowPrecision,
    Precision,
    Recompute,
    RecomputeGranularity,
    RecomputeMethod,
    Schedule,
    Sharding,
    Software,
    TrainingJob,
)
from projector.operations import Group
from projector.performance.passes import exposed_part
from projector.projection import PerformanceProjection
from tests.performance.jobs import LLAMA_8B, MIXTRAL, a_job, part, project

FULL = Recompute(granularity=RecomputeGranularity.FULL, method=RecomputeMethod.UNIFORM, layers=1)


@st.composite
def jobs(draw: st.DrawFn) -> TrainingJob:
    """Any layout and overlap, with and without recomputation, for 16 nodes."""
    model = draw(st.sampled_from([LLAMA_8B, MIXTRAL]))
    pipeline = draw(st.sampled_from([1, 2, 4]))
    return a_job(
        model,
        batch=256,
        tensor=draw(st.sampled_from([1, 2])),
        pipeline=pipeline,
        context=draw(st.sampled_from([1, 2])),
        virtual_pipeline=draw(st.sampled_from([1, 2])) if pipeline > 1 else 1,
        expert=draw(st.sampled_from([1, 4])) if model is MIXTRAL else 1,
        sharding=draw(st.sampled_from(list(Sharding))),
        software=Software(overlap_gradient_reduce=draw(st.booleans()), overlap_tensor_parallel=draw(st.booleans())),
        job={
            "recompute": draw(st.sampled_from([Recompute(), FULL])),
            "precision": Precision(low_precision=draw(st.sampled_from([None, LowPrecision.FP8]))),
        },
    )


@given(jobs())
@settings(deadline=None, max_examples=40)
def test_what_is_exposed_of_a_group_is_its_part_of_the_waterfall(job: TrainingJob) -> None:
    found = project(job, nodes=16)
    exposed: dict[str, float] = defaultdict(float)
    for line in found.communication:
        exposed[exposed_part(Group(line.group))] += line.exposed_seconds - line.repeated_seconds
    for name in set(map(exposed_part, Group)):
        assert exposed[name] == pytest.approx(part(found, name), abs=1e-9)


@given(jobs())
@settings(deadline=None, max_examples=40)
def test_communication_is_hidden_or_exposed_and_says_what_for(job: TrainingJob) -> None:
    for line in project(job, nodes=16).communication:
        assert line.hidden_seconds >= 0
        assert line.hidden_seconds + line.exposed_seconds == pytest.approx(line.seconds)
        assert line.repeated_seconds <= line.exposed_seconds + 1e-12
        assert line.purpose


@given(jobs())
@settings(deadline=None, max_examples=40)
def test_parts_of_a_chunk_add_up_to_what_the_schedule_runs(job: TrainingJob) -> None:
    found = project(job, nodes=16)
    for chunk in found.chunks:
        runs = found.schedule.phase.chunks[chunk.stage][chunk.chunk]
        assert chunk.forward_seconds == pytest.approx(runs.forward)
        assert chunk.backward_input_seconds == pytest.approx(runs.backward_input)
        assert chunk.backward_weight_seconds == pytest.approx(runs.backward_weight)
    assert sorted(index for chunk in found.chunks for index in chunk.layer_ids) == list(range(len(job.model.layers)))


def names(found: PerformanceProjection, stage: int, chunk: int) -> set[str]:
    (one,) = [each for each in found.chunks if (each.stage, each.chunk) == (stage, chunk)]
    return {each.name for each in one.parts}


def test_ends_of_the_model_are_parts_of_the_chunks_that_hold_them() -> None:
    model = replace(LLAMA_8B, multi_token_prediction_layers=1)
    found = project(a_job(model, pipeline=4, virtual_pipeline=2), nodes=1)
    ends = {"embedding", "multi-token prediction", "output and loss"}
    assert names(found, 0, 0) & ends == {"embedding"}
    assert names(found, 3, 1) & ends == {"multi-token prediction", "output and loss"}
    assert names(found, 1, 0) & ends == set()


def sends(job: TrainingJob) -> tuple[int, float, float]:
    """Bytes, time and exposed time of sends between stages."""
    (line,) = [each for each in project(job).communication if each.group == Group.PIPELINE.value]
    return line.message_bytes, line.seconds, line.exposed_seconds


def test_a_middle_stage_sends_an_activation_and_its_gradient_for_every_micro_batch() -> None:
    size, seconds, exposed = sends(a_job(LLAMA_8B, batch=16, sequence=4096, pipeline=8))
    ends = 16 * 4096 * 4096 * 2
    assert size in {ends, 2 * ends}
    assert exposed == pytest.approx(seconds)


def test_interleaving_hides_a_part_of_the_sends() -> None:
    _, seconds, exposed = sends(a_job(LLAMA_8B, batch=16, sequence=4096, pipeline=8, virtual_pipeline=2))
    assert 0 < exposed < seconds


def test_chunks_of_one_rank_that_follow_each_other_send_nothing() -> None:
    folded = a_job(LLAMA_8B, batch=16, sequence=4096, pipeline=2, virtual_pipeline=2)
    size, _, _ = sends(replace(folded, schedule=Schedule.ZBV_FORMATTED))
    # Two chunks a rank in a V: each rank has one neighbour above or below each chunk on the other rank.
    assert size == 16 // 4 * 2 * 4096 * 4096 * 2


def test_weights_of_fully_sharded_layers_are_told_from_those_after_a_step() -> None:
    def told(sharding: Sharding) -> set[str]:
        return {each.purpose for each in project(a_job(LLAMA_8B, sharding=sharding)).communication}

    assert told(Sharding.PARAMETERS) == {"weights of sharded layers", "gradients"}
    assert told(Sharding.OPTIMIZER) == {"updated weights", "gradients"}
