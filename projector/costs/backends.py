"""The GEMM backends by name: the project's own, origami, and those of installed packages.

A package offers one through the entry-point group `projector.gemm_backends`: the entry point's name is the backend's,
its object a callable that takes a `projector.catalog.Device` and returns a `GemmBackend`. `module:object` names such a
callable without a package. Backends written for Primus
(`primus.gemm_backends`) subclass a class of Primus and register themselves there, so that they cannot be taken over
as they are.
"""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import NamedTuple

from projector.catalog import Device, origami_targets
from projector.costs.gemm import AnalyticalGemm, GemmBackend
from projector.costs.origami import OrigamiGemm
from projector.errors import ConfigurationError, NotAvailable, ProjectorError

PLUGINS = "projector.gemm_backends"
"""Entry-point group of other packages' backends."""
Maker = Callable[[Device], GemmBackend]
GEMM_BACKENDS: Mapping[str, Maker] = {"analytical": AnalyticalGemm, "origami": OrigamiGemm}
"""Makers of backends, by the names of `--gemm-backend`."""


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
    maker = GEMM_BACKENDS.get(name) or _plugin(name)
    if maker is None:
        known = ", ".join((*GEMM_BACKENDS, *_plugins()))
        raise ConfigurationError(f"{name!r}", place="--gemm-backend", expected=f"one of {known}")
    return maker(device)


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
            BackendEntry(name, installed=True, devices="what its package says", note=f"entry point {value}")
            for name, value in _plugins().items()
        ),
    )


def _plugins() -> dict[str, str]:
    """Objects of the entry points by name; those of built-in names are ours."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import, and rarely needed

    return {entry.name: entry.value for entry in entry_points(group=PLUGINS) if entry.name not in GEMM_BACKENDS}


def _plugin(name: str) -> Maker | None:
    from importlib.metadata import EntryPoint, entry_points  # noqa: PLC0415 - as above

    stated = (EntryPoint(name=name, value=name, group=PLUGINS),) if ":" in name else ()
    for entry in (*stated, *entry_points(group=PLUGINS, name=name)):
        try:
            loaded: Maker = entry.load()
        except ProjectorError:
            raise
        except Exception as error:
            message = f"the package of {name} cannot be loaded: {type(error).__name__}: {error}"
            raise NotAvailable(message, place="--gemm-backend", expected="mend the package, or analytical") from error
        return loaded
    return None
