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
    assert {"cluster_bw", "vector_flops"} <= set(found.without_effect)


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
        assert read_hardware_file(file.read_text(encoding="utf-8")).node_bytes_per_second, file.name
