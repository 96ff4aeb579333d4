"""The GEMM backends by name: the project's own, origami, and those of other people (`projector.costs.plugins`)."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import NamedTuple

from projector.catalog import Device, origami_targets
from projector.costs import plugins
from projector.costs.gemm import AnalyticalGemm, GemmBackend
from projector.costs.origami import OrigamiGemm
from projector.errors import ConfigurationError

GEMM_BACKENDS: Mapping[str, plugins.Maker] = {"analytical": AnalyticalGemm, "origami": OrigamiGemm}
"""Makers of the built-in backends, by the names of `--gemm-backend`."""


class BackendEntry(NamedTuple):
    """What is known of a backend without a device."""

    name: str
    """As in `--gemm-backend`."""
    installed: bool
    """What it needs is there."""
    devices: str
    """GPUs that it costs products for, in words."""
    note: str
    """What it is, or what installs it."""


def gemm_backend(name: str, device: Device) -> GemmBackend:
    """The backend called `name`.

    Raises `ConfigurationError` for an unknown name, `NotAvailable` for one that is not installed, does not know the GPU
    or comes from a package that cannot be loaded.
    """
    if name in GEMM_BACKENDS:
        return GEMM_BACKENDS[name](device)
    backend = plugins.made(name, device)
    if backend is None:
        known = ", ".join((*GEMM_BACKENDS, *plugins.offered()))
        raise ConfigurationError(f"{name!r}", place="--gemm-backend", expected=f"one of {known}")
    return backend


def gemm_backends() -> tuple[BackendEntry, ...]:
    """Every backend that `gemm_backend` may answer."""
    origami = find_spec("origami") is not None
    return (
        BackendEntry("analytical", installed=True, devices="every GPU whose rates are known", note="the default"),
        BackendEntry(
            "origami",
            installed=origami,
            devices=", ".join(origami_targets()),
            note="AMD's model rocm-origami, set to the catalog's rates; extra `origami`",
        ),
        *(
            BackendEntry(name, installed=True, devices="what its author says", note=origin)
            for name, origin in plugins.offered().items()
        ),
    )
