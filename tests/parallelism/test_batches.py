"""The global batch divides over micro batches and data parallelism, or the answer says what would."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projector.errors import BatchIndivisible
from projector.job import MixtureOfExperts, Parallelism, Scaling
from projector.parallelism import minimum_nodes, resolve
from projector.parallelism.batch import micro_batches
from tests.layers.builders import MOE, job, mixtral, model, target

SIX = MixtureOfExperts(experts=6, top_k=2, expert_ffn=512)


def test_expert_parallelism_does_not_enter_data_parallelism() -> None:
    layout = Parallelism(pipeline=4, expert=8)
    resolved = resolve(job(mixtral(), micro=2, global_=128, layout=layout), target(nodes=4))
    assert (resolved.data, resolved.micro_batches, resolved.expert_data) == (8, 8, 1)
    assert (resolved.shard, resolved.expert_shard) == (8, 1)


@pytest.mark.parametrize(("devices", "tensor"), [(8, 1), (8, 2), (1, 1), (2, 1), (4, 2)])
def test_a_job_smaller_than_a_node_takes_one_node(devices: int, tensor: int) -> None:
    asked = job(layout=Parallelism(tensor=tensor))
    nodes = minimum_nodes(asked, devices)
    assert nodes == 1
    assert resolve(asked, target(nodes=nodes, devices_per_node=devices)).data == devices // tensor


@given(st.integers(1, 5000), st.integers(1, 12), st.integers(1, 64))
def test_the_nearest_batches_that_are_named_do_divide(batch: int, micro: int, data: int) -> None:
    if batch % (micro * data) == 0:
        assert micro_batches(batch, micro, data) * micro * data == batch
        return
    with pytest.raises(BatchIndivisible) as caught:
        micro_batches(batch, micro, data)
    named = [int(number) for number in re.findall(r"\d+", caught.value.expected)]
    assert all(number % (micro * data) == 0 and number > 0 for number in named)
    assert any(abs(number - batch) < micro * data for number in named)
    for number in (batch, micro, data):
        assert str(number) in caught.value.message


def test_weak_scaling_grows_the_batch_from_the_smallest_cluster() -> None:
    asked = job(global_=16, layout=Parallelism(tensor=4))
    assert resolve(asked, target(nodes=1, scaling=Scaling.WEAK)).global_batch == 16
    grown = resolve(asked, target(nodes=8, scaling=Scaling.WEAK))
    assert (grown.global_batch, grown.micro_batches) == (128, 8)


def test_strong_scaling_keeps_the_batch() -> None:
    assert resolve(job(global_=128), target(nodes=8)).micro_batches == 2


def test_the_fewest_nodes_suit_dense_and_expert_groups_both() -> None:
    layout = Parallelism(tensor=2, expert=3, expert_tensor=1)
    asked = job(model((replace(MOE, feed_forward=SIX),)), global_=66, layout=layout)
    assert minimum_nodes(asked, 3) == 2
    assert resolve(asked, target(nodes=2, devices_per_node=3)).expert_data == 2
