"""A forward beside the backward of another micro batch hides the exchange of tokens with experts."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projector.job import Software
from projector.performance.combined import LayerParts, hidden_seconds
from projector.performance.passes import OVERLAP_SLOWDOWN
from projector.projection import PerformanceProjection
from tests.performance.jobs import MIXTRAL, a_job, part, project

SECONDS = st.floats(0.0, 10.0)
PARTS = st.builds(LayerParts, *[SECONDS] * 8)
EXCHANGES = "exposed expert-parallel communication"


def projected(*, overlap: bool, batch: int = 256, pipeline: int = 1, chunks: int = 1) -> PerformanceProjection:
    software = Software(overlap_gradient_reduce=True, overlap_expert_parallel=overlap)
    job = a_job(MIXTRAL, batch=batch, software=software, expert=8, pipeline=pipeline, virtual_pipeline=chunks)
    return project(job, nodes=4)


LAYER = LayerParts(
    attention=3.0,
    dispatch=1.0,
    experts=4.0,
    combine=1.0,
    combine_back=1.0,
    experts_back=8.0,
    dispatch_back=1.0,
    attention_back=6.0,
)
HIDDEN = {
    "all four exchanges of a layer": ((LAYER,), (LAYER,), 4.0),
    "of a second layer too": ((LAYER, LAYER), (LAYER, LAYER), 8.0),
    "nothing where a layer of the forward has no partner": ((LAYER,), (), 0.0),
    "nothing without exchanges": ((LayerParts(3.0, 0.0, 4.0, 0.0, 0.0, 8.0, 0.0, 6.0),) * 2, (LAYER,) * 0, 0.0),
    "what compute is too short for stays": (
        (LayerParts(1.0, 5.0, 1.0, 5.0, 5.0, 1.0, 5.0, 1.0),),
        (LayerParts(1.0, 5.0, 1.0, 5.0, 5.0, 1.0, 5.0, 1.0),),
        # Attention beside one combine, experts beside a dispatch, experts beside the other, attention beside a combine.
        4.0,
    ),
}


@pytest.mark.parametrize(("forward", "backward", "seconds"), HIDDEN.values(), ids=HIDDEN.keys())
def test_two_passes_hide(forward: tuple[LayerParts, ...], backward: tuple[LayerParts, ...], seconds: float) -> None:
    assert hidden_seconds(forward, backward) == pytest.approx(seconds * (1 - OVERLAP_SLOWDOWN))


@given(st.lists(PARTS, max_size=4), st.lists(PARTS, max_size=4))
def test_no_more_is_hidden_than_is_sent_or_computed(forward: list[LayerParts], backward: list[LayerParts]) -> None:
    sent = sum(one.dispatch + one.combine for one in forward)
    sent += sum(one.combine_back + one.dispatch_back for one in backward)
    worked = sum(one.forward for one in forward) + sum(one.backward for one in backward) - sent
    assert -1e-9 <= hidden_seconds(tuple(forward), tuple(backward)) <= min(sent, worked) + 1e-9


@pytest.mark.parametrize(("pipeline", "chunks"), [(1, 1), (4, 4)])
def test_the_exchange_is_shorter_and_all_parts_add_up_to_the_iteration(pipeline: int, chunks: int) -> None:
    plain, overlapped = (projected(overlap=each, pipeline=pipeline, chunks=chunks) for each in (False, True))
    hidden = part(plain, EXCHANGES) - part(overlapped, EXCHANGES)
    assert 0 < hidden < part(plain, EXCHANGES)
    assert overlapped.iteration_seconds < plain.iteration_seconds
    assert sum(step.seconds for step in overlapped.waterfall) == pytest.approx(overlapped.iteration_seconds)
    exposed = {call.group: call.exposed_seconds for call in overlapped.communication}
    total = {call.group: call.seconds for call in overlapped.communication}
    assert exposed["expert"] == pytest.approx(part(overlapped, EXCHANGES))
    assert total == {call.group: pytest.approx(call.seconds) for call in plain.communication}


def test_a_single_micro_batch_has_no_other_to_hide_behind() -> None:
    plain, overlapped = projected(overlap=False, batch=32), projected(overlap=True, batch=32)
    assert overlapped.iteration_seconds == plain.iteration_seconds


def test_without_expert_parallelism_nothing_is_gained() -> None:
    asked = a_job(MIXTRAL, batch=256)
    job = replace(asked, software=replace(asked.software, overlap_expert_parallel=True))
    assert project(job, nodes=4).iteration_seconds == pytest.approx(project(asked, nodes=4).iteration_seconds)
