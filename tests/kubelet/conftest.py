"""Fixtures for tests on a real kubelet: one node a session, one namespace a test."""

from collections.abc import Iterator

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.session import cluster_or_skip
from tests.kubelet.sandbox import running_node


@pytest.fixture(scope="session")
def node_cluster(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """Give a control plane with one real node of eight GPUs."""
    yield from cluster_or_skip(request, running_node)


@pytest.fixture
def namespace(node_cluster: ControlPlane) -> Iterator[str]:
    """Give the name of a new namespace, deleted afterwards without waiting for it."""
    with node_cluster.temporary_namespace() as name:
        yield name
