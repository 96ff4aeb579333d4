"""Measured times of collectives win over the model, and the model's own times change nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projector.catalog import CollectiveTimes, MeasuredCollective, device
from projector.costs import Network
from projector.costs.curves import MeasuredCollectives, placed
from projector.operations import CollectiveKind
from projector.parallelism import Placement

KINDS = list(CollectiveKind)
H100 = device("H100-SXM-80GB")
NODE, HALF = (Placement(size=size, ranks_per_node=size, nodes=1) for size in (8, 4))
TWO, FOUR = (Placement(size=8 * nodes, ranks_per_node=8, nodes=nodes) for nodes in (2, 4))
BYTES = tuple(2**power for power in range(16, 33, 4))
BETWEEN = st.integers(2**14, 2**34)


def network(*curves: CollectiveTimes) -> Network:
    return Network(H100, 8, curves=MeasuredCollectives(curves))


def curve(kind: CollectiveKind, placement: Placement, *, times: float = 1.0) -> CollectiveTimes:
    """The model's own answers, `times` as long."""
    plain = network()
    points = tuple((size, times * plain.seconds(kind, size, placement)) for size in BYTES)
    return CollectiveTimes(kind.value, placement.size, placement.nodes, points)


def groups(kind: CollectiveKind) -> list[Placement]:
    pair = kind is CollectiveKind.SEND_RECV
    return (
        [Placement(size=2, ranks_per_node=2, nodes=1), Placement(size=2, ranks_per_node=1, nodes=2)]
        if pair
        else [HALF, NODE, TWO, FOUR]
    )


@pytest.mark.parametrize("kind", KINDS)
@given(size=BETWEEN)
def test_a_file_of_the_models_own_answers_changes_nothing(kind: CollectiveKind, size: int) -> None:
    same = network(*(curve(kind, group) for group in groups(kind)))
    for group in (*groups(kind), Placement(size=64, ranks_per_node=8, nodes=8)):
        assert same.seconds(kind, size, group) == pytest.approx(network().seconds(kind, size, group))


@pytest.mark.parametrize("kind", KINDS)
def test_measured_sizes_take_their_own_time(kind: CollectiveKind) -> None:
    for group in groups(kind):
        odd = curve(kind, group)
        odd = odd._replace(seconds=tuple((size, 1e-3 * (index + 1)) for index, size in enumerate(BYTES)))
        for size, seconds in odd.seconds:
            assert network(odd).seconds(kind, size, group) == pytest.approx(seconds)


@given(first=BETWEEN, second=BETWEEN)
def test_a_longer_message_never_takes_less_between_measured_sizes(first: int, second: int) -> None:
    points = tuple(zip(BYTES, (1e-5, 1e-4, 1.1e-4, 5e-3, 6e-3), strict=True))
    measured = network(CollectiveTimes("all_gather", 8, 1, points))
    low, high = sorted((first, second))
    found = [measured.seconds(CollectiveKind.ALL_GATHER, size, NODE) for size in (low, high)]
    assert found[0] <= found[1] * (1 + 1e-12)


def test_the_same_kind_over_other_ranks_corrects_a_group_that_was_not_measured() -> None:
    kind = CollectiveKind.ALL_GATHER
    inside, across = network(curve(kind, NODE, times=3.0)), network(curve(kind, TWO, times=2.0))
    for slow, group, times in ((inside, HALF, 3.0), (inside, NODE, 3.0), (across, TWO, 2.0), (across, FOUR, 2.0)):
        assert slow.seconds(kind, 2**26, group) == pytest.approx(times * network().seconds(kind, 2**26, group))
    for other in set(KINDS) - {kind}:
        assert inside.seconds(other, 2**26, NODE) == network().seconds(other, 2**26, NODE)


@pytest.mark.parametrize("kind", [CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL])
def test_what_was_measured_inside_a_node_slows_that_leg_of_a_group_across_nodes(kind: CollectiveKind) -> None:
    message = 2**30
    slow = network(curve(kind, NODE, times=20.0)).seconds(kind, message, TWO)
    inside = network().seconds(kind, message, NODE)
    assert network().seconds(kind, message, TWO) < slow < 20 * 1.5 * inside


def test_a_rate_of_one_node_decides_the_leg_inside_it_too() -> None:
    slow = {"all_gather": MeasuredCollective(10e9, 20e-6, {}, 0.0)}
    kind, message = CollectiveKind.ALL_GATHER, 2**30
    assert Network(H100, 8, None, slow).seconds(kind, message, TWO) > 0.9 * message * 15 / 16 / 10e9


def test_calls_are_counted_by_where_their_time_came_from() -> None:
    curves = MeasuredCollectives([curve(CollectiveKind.ALL_REDUCE, NODE)])
    measured = Network(H100, 8, curves=curves)
    for kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER):
        for group in (HALF, NODE, TWO):
            measured.seconds(kind, 2**20, group)
    found = {kind: dict(counts) for kind, counts in curves.uses().items()}
    assert found == {
        "all-reduce": {"corrected": 1, "measured": 1, "analytical": 1},
        "all-gather": {"analytical": 3},
    }


def test_ranks_are_even_over_the_nodes_they_were_measured_on() -> None:
    assert [placed(curve(CollectiveKind.ALL_REDUCE, group)) for group in (HALF, NODE, TWO, FOUR)] == [
        HALF,
        NODE,
        TWO,
        FOUR,
    ]
