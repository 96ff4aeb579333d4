"""GEMM backends that other people write: entry points of installed packages, and modules that a command names.

A module calls `register_gemm_backend` while it is imported; a package names an object in the entry-point group
`projector.gemm_backends`. Either way the object takes a `projector.catalog.Device` and returns a `GemmBackend`. Only
the command loads modules: they run as code of whoever names them. Backends written for Primus (`primus.gemm_backends`)
subclass a class of Primus and register themselves there, so that they cannot be taken over as they are.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from math import isfinite
from pathlib import Path
from types import ModuleType

from projector.catalog import Device
from projector.costs.gemm import GemmBackend
from projector.errors import ConfigurationError, NotAvailable, ProjectorError
from projector.operations import Gemm

GROUP = "projector.gemm_backends"
"""Entry-point group of other packages' backends."""
BUILT_IN = ("analytical", "origami")
"""Names that nothing may take."""
Maker = Callable[[Device], GemmBackend]
"""Makes a backend for a device."""

_registered: dict[str, Maker] = {}
_PLACE = "--gemm-plugins"


def register_gemm_backend(name: str, maker: Maker) -> None:
    """Offer a backend under a name, which `--gemm-backend` then chooses; the later of two of one name holds.

    Raises `ConfigurationError` for a name that is built in, and for a maker that cannot be called.
    """
    if not name or name in BUILT_IN:
        expected = f"a name other than {', '.join(BUILT_IN)}"
        raise ConfigurationError(f"{name!r} as a GEMM backend", place=_PLACE, expected=expected)
    if not hasattr(maker, "__call__"):  # noqa: B004 - other people's code is not type-checked
        expected = "a callable that takes a projector.catalog.Device"
        raise ConfigurationError(f"the GEMM backend {name} cannot be called", place=_PLACE, expected=expected)
    _registered[name] = maker


def load_gemm_modules(names: tuple[str, ...]) -> None:
    """Import modules, by dotted name or as files that end in `.py`, which register their backends.

    Raises `ConfigurationError` for a module that cannot be imported, and for one that registers nothing.
    """
    for name in names:
        before = dict(_registered)
        try:
            _imported(name)
        except ProjectorError:
            raise
        except Exception as error:
            message = f"the module {name} cannot be imported: {type(error).__name__}: {error}"
            expected = "a module on the Python path, or a file that ends in .py"
            raise ConfigurationError(message, place=_PLACE, expected=expected) from error
        if _registered == before:
            message = f"the module {name} registers no GEMM backend"
            expected = "a call of projector.costs.register_gemm_backend(NAME, MAKER) in it"
            raise ConfigurationError(message, place=_PLACE, expected=expected)


def _imported(name: str) -> ModuleType:
    if not name.endswith(".py"):
        return import_module(name)
    path = Path(name)
    spec = spec_from_file_location(f"projector_gemm_plugin_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"no module in {name}")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def offered() -> dict[str, str]:
    """Where each backend that somebody else wrote comes from, by name."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import, and rarely needed

    found = {each.name: f"entry point {each.value}" for each in entry_points(group=GROUP) if each.name not in BUILT_IN}
    modules = {name: f"module {getattr(maker, '__module__', '')}" for name, maker in _registered.items()}
    return found | modules


def made(name: str, device: Device) -> GemmBackend | None:
    """The backend called `name` for a device, None where nobody offers one.

    Raises `NotAvailable` for a package that cannot be loaded and a backend that fails.
    """
    maker = _registered.get(name) or _of_package(name)
    if maker is None:
        return None
    try:
        backend = maker(device)
    except ProjectorError:
        raise
    except Exception as error:
        raise _failed(name, f"{type(error).__name__}: {error}") from error
    if not callable(backend):
        raise _failed(name, f"{backend!r} is no callable from a Gemm to seconds")
    return _Checked(name, backend)


def _of_package(name: str) -> Maker | None:
    from importlib.metadata import entry_points  # noqa: PLC0415 - as above

    for entry in entry_points(group=GROUP, name=name):
        try:
            loaded: Maker = entry.load()
        except ProjectorError:
            raise
        except Exception as error:
            message = f"the package of {name} cannot be loaded: {type(error).__name__}: {error}"
            raise NotAvailable(message, place="--gemm-backend", expected="mend the package, or analytical") from error
        return loaded
    return None


def _failed(name: str, why: str) -> NotAvailable:
    return NotAvailable(f"the GEMM backend {name} failed: {why}", place="--gemm-backend", expected="another backend")


class _Checked:
    """A backend whose mistakes are named as its own."""

    def __init__(self, name: str, backend: GemmBackend) -> None:
        self._name, self._backend = name, backend

    def __call__(self, work: Gemm) -> float:
        try:
            seconds = self._backend(work)
        except ProjectorError:
            raise
        except Exception as error:
            raise _failed(self._name, f"{type(error).__name__}: {error}") from error
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not isfinite(seconds) or seconds <= 0:
            raise _failed(self._name, f"{seconds!r} seconds for {work}")
        return float(seconds)
