"""Fixtures for tests against a real cluster: one control plane a session, one namespace a test."""

from collections.abc import Iterator

import pytest

from tests.cluster.controlplane import ControlPlane, cluster_for_tests
from tests.cluster.controlplane.session import cluster_or_skip
from tests.cluster.operator_process import install


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """Give the cluster of PROJECTION_TEST_KUBECONFIG, or a control plane for this session."""
    yield from cluster_or_skip(request, cluster_for_tests)


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane) -> ControlPlane:
    """Give the control plane once it serves ProjectionRequests and has the operator's namespace."""
    install(control_plane)
    return control_plane


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """Give the name of a new namespace, deleted afterwards without waiting for it."""
    with control_plane.temporary_namespace() as name:
        yield name
