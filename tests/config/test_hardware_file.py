"""Primus's hardware files are read in full, and a mistake in one names its place."""

import pytest

from projector.config import read_hardware_file
from projector.errors import ConfigurationError
from tests.config.primus_tree import needs_tree, recipes

FIGURES_OF_MI300X = """
hardware_config:
  node_bw: 448.0
  node_lat: 0.45
  pod_bw: 50.0
  pod_lat: 2.0
  cluster_bw: 25.0
  cluster_lat: 10.0
  node_size: 8
  pod_size: 64
  nics_per_node: 8
  switch_topology: false
  node_topology: mesh
  vector_flops: 163.0e12
"""

TEN_TO_THE_NINTH = "\n".join(
    [
        "a0: &a0 [x, x, x, x, x, x, x, x, x, x]",
        *(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 9)),
        "hardware_config: {node_bw: *a8}",
    ]
)


def test_figures_become_si_units_and_the_rest_is_listed() -> None:
    found = read_hardware_file(FIGURES_OF_MI300X)
    assert (found.node_bytes_per_second, found.network_bytes_per_second) == (448e9, 50e9)
    assert found.node_latency_seconds == pytest.approx(0.45e-6)
    assert (found.interfaces_per_node, found.mesh) == (8, True)
    assert found.cluster_bytes_per_second == 25e9
    assert found.cluster_latency_seconds == pytest.approx(10e-6)
    assert (found.domain_devices, found.pod_devices) == (8, 64)
    assert [reason.partition(" (")[0] for reason in found.without_effect] == ["switch_topology", "vector_flops"]
    assert all("say" in reason for reason in found.without_effect)


def test_tuning_of_primus_formulas_becomes_seconds_bytes_and_shares() -> None:
    found = read_hardware_file(
        """hardware_config: {kernel_launch_latency: 2.8, rccl_overhead_us: 200, a2a_rccl_overhead_us: 150,
        a2a_intra_sync_overhead: 50, a2a_intra_node_peer_lat: 2.5, a2a_peer_lat: 0.45, a2a_mesh_contention: 0.12,
        a2a_remote_contention: 0.04, ar_overlap_factor: 0.9, ar_warmup_chunk_bytes: 33554432, nic_rdma_setup_us: 260,
        nic_warmup_bytes: 33554432}"""
    )
    seconds = (found.launch_seconds, found.collective_seconds, found.all_to_all_seconds, found.setup_seconds)
    assert seconds == pytest.approx((2.8e-6, 200e-6, 150e-6, 260e-6))
    peers = (found.all_to_all_local_seconds, found.all_to_all_local_peer_seconds, found.all_to_all_remote_peer_seconds)
    assert peers == pytest.approx((50e-6, 2.5e-6, 0.45e-6))
    assert (found.mesh_contention, found.remote_contention, found.overlap) == (0.12, 0.04, 0.9)
    assert (found.overlap_bytes, found.warmup_bytes, found.without_effect) == (2**25, 2**25, ())


@pytest.mark.parametrize(
    ("text", "idle"),
    [
        ("{cluster_bw: 25}", "cluster_bw (holds between pods; say pod_size beside it)"),
        ("{cluster_lat: 25}", "cluster_lat (holds between pods; say pod_size beside it)"),
        ("{pod_size: 64}", "pod_size (pods differ in what lies between them; say cluster_bw beside it)"),
        ("{nic_warmup_bytes: 64}", "nic_warmup_bytes (is where the setup ends; say nic_rdma_setup_us beside it)"),
        ("{write_resp: 0.1}", "write_resp (lies inside the latency of measured collectives; rccl_overhead_us and"),
        ("{hbm_latency: 0.1}", "hbm_latency (lies inside the latency of measured collectives; rccl_overhead_us and"),
    ],
)
def test_a_key_without_influence_says_why_and_what_says_the_same(text: str, idle: str) -> None:
    (found,) = read_hardware_file(f"hardware_config: {text}").without_effect
    assert found.startswith(idle)


def test_numbers_may_be_written_as_text() -> None:
    assert read_hardware_file("hardware_config: {pod_bw: '25.5'}").network_bytes_per_second == 25.5e9


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("hardware_config: {node_bandwidth: 448}", r"hardware_config\.node_bandwidth: is not a known key; did you"),
        ("hardware_config: {pod_bw: fast}", r"hardware_config\.pod_bw: 'fast'; expected a number above 0"),
        ("hardware_config: {pod_bw: -1}", r"pod_bw: -1; expected a number above 0"),
        ("hardware_config: {pod_bw: true}", r"pod_bw: True; expected a number"),
        ("hardware_config: {node_bw: .inf}", r"node_bw: inf; expected a number"),
        ("hardware_config: {node_bw: 1.0e-320}", r"node_bw: 1e-320; expected a number from 1e-06 to 1e\+09"),
        ("hardware_config: {rccl_overhead_us: -1}", r"rccl_overhead_us: -1; expected a number from 0$"),
        ("hardware_config: {a2a_mesh_contention: 1}", r"a2a_mesh_contention: 1; expected a number from 0 to 0\.99"),
        ("hardware_config: {pod_size: 6.5}", r"pod_size: 6\.5; expected a whole number"),
        ("hardware_config: {bw_eff: 5}", r"bw_eff: 5; expected a number from 1e-06 to 1$"),
        ("hardware_config: {node_topology: ring}", r"node_topology: 'ring'; expected mesh or switch"),
        ("node_bw: 448", "has no map hardware_config"),
        ("hardware_config: {nics_per_node: 0.5}", r"nics_per_node: 0.5; expected a whole number"),
        ("hardware_config: [1]", "has no map hardware_config"),
        ("{", r"hardware file:\d+:\d+: did not find expected node content"),
        ("#" * 70_000, "70000 characters"),
        (TEN_TO_THE_NINTH, "more than 200000 values once aliases are expanded"),
    ],
)
def test_a_mistake_names_key_value_and_what_would_be_right(text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        read_hardware_file(text)


@needs_tree
def test_every_file_that_primus_ships_is_read() -> None:
    files = recipes("examples/hardware_configs")
    assert files
    for file in files:
        found = read_hardware_file(file.read_text(encoding="utf-8"))
        assert found.node_bytes_per_second, file.name
        assert [key.partition(" ")[0] for key in found.without_effect] == ["switch_topology", "vector_flops"], file.name
