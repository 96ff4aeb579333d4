"""Host costs are there for every host that a device names."""

import pytest

from projector import catalog
from projector.errors import ConfigurationError


def test_every_device_has_a_host_with_costs() -> None:
    for name in {device.host_platform for device in catalog.devices()}:
        costs = catalog.host_costs(name)
        assert costs.hipblaslt_call_seconds > costs.gemm_call_seconds > 0


def test_an_unknown_host_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ConfigurationError, match="'arm' is not in the catalog; known are x86, x86-rocm, grace"):
        catalog.host_costs("arm")
