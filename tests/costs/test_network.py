"""Communication: measured curves come back as they went in, and placement decides the rest."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projector.catalog import HardwareOverrides, device
from projector.costs import Network
from projector.costs.node_links import sent_share
from projector.errors import ConfigurationError
from projector.operations import CollectiveKind, TokenVisits
from projector.parallelism import Placement

KINDS = list(CollectiveKind)
NODE = Placement(size=8, ranks_per_node=8, nodes=1)
PLACEMENTS = st.sampled_from(
    [
        Placement(size=2, ranks_per_node=2, nodes=1),
        NODE,
        Placement(size=16, ranks_per_node=8, nodes=2),
        Placement(size=8, ranks_per_node=1, nodes=8),
        Placement(size=64, ranks_per_node=2, nodes=32),
    ]
)
GIB = 2**30


def bus_bandwidth(network: Network, kind: CollectiveKind, size: int, placement: Placement) -> float:
    """GB/s as nccl-tests prints it."""
    return sent_share(kind, placement.size) * size / network.seconds(kind, size, placement) / 1e9


@pytest.mark.parametrize("name", ["MI300X", "A100-SXM-80GB", "H100-SXM-80GB"])
def test_a_measured_curve_comes_back_at_every_size(name: str) -> None:
    part = device(name)
    curve = part.collective("all_reduce")
    assert curve is not None
    network = Network(part, 8)
    for size, rate in curve.points:
        found = bus_bandwidth(network, CollectiveKind.ALL_REDUCE, size, NODE)
        assert found == pytest.approx(rate / 1e9, rel=0.15), size


def test_two_nodes_of_mi300x_reach_what_an_acceptance_test_expects() -> None:
    """ROCm/cvs expects at least 330 GB/s of all-reduce and 45 of all-to-all over 16 devices at 8 GiB."""
    network = Network(device("MI300X"), 8)
    two = Placement(size=16, ranks_per_node=8, nodes=2)
    assert bus_bandwidth(network, CollectiveKind.ALL_REDUCE, 8 * GIB, two) == pytest.approx(330, rel=0.1)
    assert bus_bandwidth(network, CollectiveKind.ALL_TO_ALL, 8 * GIB, two) == pytest.approx(47, rel=0.1)


@given(st.sampled_from(KINDS), PLACEMENTS, st.integers(1, 2 * GIB), st.sampled_from(["MI300X", "B200", "GB200"]))
def test_a_longer_message_never_takes_less(kind: CollectiveKind, placement: Placement, size: int, name: str) -> None:
    network = Network(device(name), 8)
    assert 0 < network.seconds(kind, size, placement) <= network.seconds(kind, 2 * size, placement)


@pytest.mark.parametrize("kind", KINDS)
def test_one_rank_and_an_empty_message_need_no_time(kind: CollectiveKind) -> None:
    network = Network(device("MI300X"), 8)
    assert network.seconds(kind, GIB, Placement(size=1, ranks_per_node=1, nodes=1)) == 0
    assert network.seconds(kind, 0, NODE) == 0


def test_two_ranks_of_a_mesh_share_one_link_and_of_a_switch_all() -> None:
    pair = Placement(size=2, ranks_per_node=2, nodes=1)
    mesh, switch = Network(device("MI300X"), 8), Network(device("H100-SXM-80GB"), 8)
    kind = CollectiveKind.ALL_REDUCE
    assert mesh.seconds(kind, GIB, pair) > 2 * mesh.seconds(kind, GIB, NODE)
    assert switch.seconds(kind, GIB, pair) < switch.seconds(kind, GIB, NODE)


def test_more_ranks_of_a_group_on_a_node_feed_more_interfaces() -> None:
    network = Network(device("H100-SXM-80GB"), 8)
    spread = Placement(size=8, ranks_per_node=1, nodes=8)
    dense = Placement(size=64, ranks_per_node=8, nodes=8)
    kind = CollectiveKind.REDUCE_SCATTER
    assert network.seconds(kind, GIB, spread) > 4 * network.seconds(kind, GIB, dense)


def test_a_rack_of_one_nvlink_domain_is_no_network() -> None:
    network = Network(device("GB200"), 4)
    rack = Placement(size=32, ranks_per_node=4, nodes=8)
    assert network.seconds(CollectiveKind.ALL_TO_ALL, GIB, rack) < GIB / 200e9


def test_devices_of_one_domain_of_fast_links_are_told_from_those_of_the_next() -> None:
    """An NVLink domain of GB200 holds 72 GPUs in 18 hosts; a node of H100 is a domain of its own."""
    rack, nodes = Network(device("GB200"), 4), Network(device("H100"), 8)
    assert [rack.domain_of(each) for each in (0, 71, 72)] == [0, 0, 1]
    assert [nodes.domain_of(each) for each in (0, 7, 8)] == [0, 0, 1]


def test_a_few_numbers_take_one_step_for_each_doubling_of_the_nodes() -> None:
    network = Network(device("H100"), 8)
    times = [network.reduced_numbers_seconds(devices) for devices in (8, 16, 32, 64)]
    steps = [later - before for before, later in pairwise(times)]
    assert steps == pytest.approx([steps[0]] * 3)
    assert times[0] > 0


TWO = Placement(size=16, ranks_per_node=8, nodes=2)
PODS = Placement(size=128, ranks_per_node=8, nodes=16)
POD = HardwareOverrides(pod_devices=64, cluster_bytes_per_second=10e9)
REDUCE, GATHER, EXCHANGE, SEND = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.ALL_TO_ALL,
    CollectiveKind.SEND_RECV,
)


@pytest.mark.parametrize(
    ("kind", "overrides", "placement"),
    [
        (REDUCE, HardwareOverrides(node_bytes_per_second=100e9), NODE),
        (REDUCE, HardwareOverrides(efficiency=0.3), NODE),
        (REDUCE, HardwareOverrides(node_latency_seconds=20e-6), NODE),
        (REDUCE, HardwareOverrides(network_bytes_per_second=10e9), TWO),
        (REDUCE, HardwareOverrides(interfaces_per_node=2), TWO),
        (REDUCE, HardwareOverrides(network_latency_seconds=1e-3), TWO),
        (REDUCE, HardwareOverrides(collective_seconds=1e-3), NODE),
        (GATHER, HardwareOverrides(collective_seconds=1e-3), TWO),
        (SEND, HardwareOverrides(launch_seconds=1e-3), TWO),
        (EXCHANGE, HardwareOverrides(all_to_all_seconds=1e-3), NODE),
        (EXCHANGE, HardwareOverrides(all_to_all_local_seconds=1e-3), TWO),
        (EXCHANGE, HardwareOverrides(all_to_all_local_peer_seconds=1e-4), NODE),
        (EXCHANGE, HardwareOverrides(all_to_all_remote_peer_seconds=1e-4), TWO),
        (EXCHANGE, HardwareOverrides(mesh_contention=0.6), NODE),
        (EXCHANGE, HardwareOverrides(remote_contention=1.0), TWO),
        (REDUCE, HardwareOverrides(overlap=0.2), TWO),
        (GATHER, HardwareOverrides(overlap_bytes=2**30), TWO),
        (REDUCE, HardwareOverrides(setup_seconds=1e-3), TWO),
        (REDUCE, HardwareOverrides(setup_seconds=1e-3, warmup_bytes=2**24), TWO),
        (REDUCE, POD, PODS),
        (EXCHANGE, POD, PODS),
        (GATHER, HardwareOverrides(pod_devices=64, cluster_latency_seconds=1e-2), PODS),
    ],
)
def test_slower_hardware_of_a_file_slows_collectives(
    kind: CollectiveKind, overrides: HardwareOverrides, placement: Placement
) -> None:
    part = device("MI300X")
    usual = Network(part, 8).seconds(kind, 2**26, placement)
    assert Network(part, 8, overrides).seconds(kind, 2**26, placement) > 1.1 * usual


def test_what_lies_between_pods_slows_those_that_leave_one_alone() -> None:
    usual, narrow = Network(device("MI300X"), 8), Network(device("MI300X"), 8, POD)
    spread = Placement(size=8, ranks_per_node=1, nodes=8, extent=7 * 64 + 1)
    within = Placement(size=8, ranks_per_node=1, nodes=8, extent=7 * 8 + 1)
    for kind in (REDUCE, GATHER, EXCHANGE):
        assert narrow.seconds(kind, GIB, within) == usual.seconds(kind, GIB, within)
        assert narrow.seconds(kind, GIB, spread) > 2 * usual.seconds(kind, GIB, spread)
    within_a_pod, across = ([(start + each, start + each + 32) for each in range(32)] for start in (0, 32))
    stages = [network.shift_seconds(GIB, across) for network in (usual, narrow)]
    assert stages[1] > 4 * stages[0]
    assert narrow.shift_seconds(GIB, within_a_pod) == usual.shift_seconds(GIB, within_a_pod)


def test_a_setup_of_interfaces_fades_with_their_bytes() -> None:
    part, stated = device("MI300X"), HardwareOverrides(setup_seconds=260e-6, warmup_bytes=2**25)
    added = [
        Network(part, 8, stated).seconds(REDUCE, size, TWO) - Network(part, 8).seconds(REDUCE, size, TWO)
        for size in (2**23, 8 * 2**23, 8 * 2**25)
    ]
    assert added == pytest.approx([260e-6, 252e-6, 0.0], abs=1e-6)


def test_links_join_hosts_where_more_devices_than_a_usual_node_are_stated() -> None:
    rack = HardwareOverrides(domain_devices=16)
    assert [Network(device("MI300X"), 8, rack).domain_of(each) for each in (0, 15, 16)] == [0, 0, 1]
    half = Network(device("MI300X"), 4, HardwareOverrides(domain_devices=8))
    assert [half.domain_of(each) for each in (0, 3, 4)] == [0, 0, 1]
    with pytest.raises(ConfigurationError, match=r"hardware_config\.node_size: 12; expected 8, the GPUs of a node"):
        Network(device("MI300X"), 8, HardwareOverrides(domain_devices=12))


@given(
    st.sampled_from(KINDS), st.integers(2**20, 2 * GIB), st.sampled_from(["MI300X", "H100", "B200"]), st.integers(1, 8)
)
def test_more_nodes_of_ranks_are_never_faster(kind: CollectiveKind, size: int, name: str, nodes: int) -> None:
    """With the same message, of which each then sends no less, and from 64 MiB with as many bytes that each sends."""
    if kind is CollectiveKind.SEND_RECV:
        return
    network = Network(device(name), 8)
    groups = [Placement(size=8 * count, ranks_per_node=8, nodes=count) for count in (nodes, nodes + 1)]
    few, many = (network.seconds(kind, size, group) for group in groups)
    assert few <= many * (1 + 1e-9)
    if size >= 2**26:
        few, many = (network.seconds(kind, size / sent_share(kind, group.size), group) for group in groups)
        assert few <= many * (1 + 1e-9)


@given(st.sampled_from([REDUCE, GATHER, EXCHANGE]), st.integers(2**16, GIB), st.integers(1, 7))
def test_more_interfaces_never_slow_a_node(kind: CollectiveKind, size: int, interfaces: int) -> None:
    times = [
        Network(device("MI300X"), 8, HardwareOverrides(interfaces_per_node=count)).seconds(kind, size, TWO)
        for count in (interfaces, interfaces + 1)
    ]
    assert times[1] <= times[0]


VISITS = TokenVisits(token_bytes=4096 * 7168 * 2, top_k=8, experts=256)
LIMITED = TokenVisits(token_bytes=VISITS.token_bytes, top_k=8, experts=256, groups=8, chosen_groups=4)


@pytest.mark.parametrize(
    ("groups", "chosen", "top_k", "places"), [(8, 4, 8, 2), (8, 4, 8, 8), (8, 3, 6, 64), (4, 2, 8, 8)]
)
def test_places_that_tokens_visit_are_those_of_drawn_experts(groups: int, chosen: int, top_k: int, places: int) -> None:
    """Distinct experts of a token drawn out of its groups, 20,000 times."""
    draw, total, experts = Random(0), 0, max(groups, places) * 4
    for _ in range(20_000):
        within = draw.sample(range(groups), chosen)
        pool = [group * experts // groups + place for group in within for place in range(experts // groups)]
        total += len({expert * places // experts for expert in draw.sample(pool, top_k)})
    visits = TokenVisits(token_bytes=1, top_k=top_k, experts=experts, groups=groups, chosen_groups=chosen)
    assert visits.places(places) == pytest.approx(total / 20_000, rel=0.02)


@pytest.mark.parametrize(
    ("gpu", "nodes", "visits", "gigabytes", "tolerance"),
    [
        ("H800", 4, LIMITED, 58, 0.25),
        ("H800", 8, LIMITED, 51, 0.15),
        ("B200", 2, VISITS, 90, 0.05),
        ("MI300X", 4, VISITS, 57, 0.2),
    ],
    ids=str,
)
def test_dispatch_between_nodes_has_the_published_bandwidth(
    gpu: str, nodes: int, visits: TokenVisits, gigabytes: float, tolerance: float
) -> None:
    """DeepEP docs/legacy.md and README.md, MORI README.md: a token counts once for each node, its own included."""
    where = Placement(size=8 * nodes, ranks_per_node=8, nodes=nodes)
    seconds = Network(device(gpu), 8).dispatch_seconds(visits, where)
    assert seconds is not None
    assert visits.token_bytes * visits.places(nodes) / seconds / 1e9 == pytest.approx(gigabytes, rel=tolerance)


def test_a_token_crosses_to_a_node_once_however_many_of_its_ranks_it_visits() -> None:
    network = Network(device("H100-SXM-80GB"), 8)
    all_experts = TokenVisits(token_bytes=2**28, top_k=64, experts=64)
    two = Placement(size=16, ranks_per_node=8, nodes=2)
    link = 46e9
    assert network.dispatch_seconds(all_experts, two) == pytest.approx(max(2**28 / link, 2**28 * 16 / 220e9), rel=0.03)


def test_a_slower_interface_of_a_file_slows_dispatch_between_nodes() -> None:
    part, two = device("H100-SXM-80GB"), Placement(size=16, ranks_per_node=8, nodes=2)
    usual, slow = (
        Network(part, 8, overrides).dispatch_seconds(VISITS, two)
        for overrides in (None, HardwareOverrides(network_bytes_per_second=1e9))
    )
    assert usual is not None
    assert slow is not None
    assert slow > 10 * usual


def test_routing_that_is_limited_to_groups_reaches_fewer_nodes() -> None:
    network, eight = Network(device("H100-SXM-80GB"), 8), Placement(size=64, ranks_per_node=8, nodes=8)
    free, limited = (network.dispatch_seconds(visits, eight) for visits in (VISITS, LIMITED))
    assert free is not None
    assert limited is not None
    assert limited < 0.8 * free


def test_an_all_reduce_across_nodes_passes_the_ring_twice() -> None:
    network, many = Network(device("H100-SXM-80GB"), 8), Placement(size=64, ranks_per_node=8, nodes=8)
    once, twice = (network.seconds(kind, 8, many) for kind in (CollectiveKind.ALL_GATHER, CollectiveKind.ALL_REDUCE))
    assert twice == pytest.approx(2 * once, rel=0.01)
