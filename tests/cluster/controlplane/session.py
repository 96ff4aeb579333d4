"""What the pytest fixtures of several folders share."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from tests.cluster.controlplane.cache import Say
from tests.cluster.controlplane.errors import UnavailableError
from tests.cluster.controlplane.plane import ControlPlane


def cluster_or_skip(
    request: pytest.FixtureRequest, cluster: Callable[[Say], AbstractContextManager[ControlPlane]]
) -> Iterator[ControlPlane]:
    """Yield what `cluster` gives; skip, with the reason, where the machine lacks something for it.

    Progress is shown past pytest's capture: a first build takes minutes, and whoever waits should see why.
    """
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            print(f"\n{line}", end="", flush=True)

    with contextlib.ExitStack() as stack:
        try:
            plane = stack.enter_context(cluster(say))
        except UnavailableError as error:
            pytest.skip(str(error))
        yield plane
