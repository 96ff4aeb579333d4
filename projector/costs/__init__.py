"""What work costs: operations of a layer in seconds on one device.

One small function per kind of work, all fed from the device catalog; `CostModel` picks the right one. How pieces of
work overlap is not decided here but in `projector.performance`.

A constant called a *prior*, here and in `projector.performance`, comes from studies of published training runs of the
same publications that `tests/accuracy` scores. It was not refitted on the runs that are set aside for fitting.
"""

from projector.costs.backends import GEMM_BACKENDS, BackendEntry, gemm_backend, gemm_backends
from projector.costs.gemm import GemmBackend
from projector.costs.kernels import gradient_buffer_seconds, optimizer_step_seconds
from projector.costs.model import CostModel
from projector.costs.network import Network
from projector.costs.plugins import load_gemm_modules, register_gemm_backend

__all__ = [
    "GEMM_BACKENDS",
    "BackendEntry",
    "CostModel",
    "GemmBackend",
    "Network",
    "gemm_backend",
    "gemm_backends",
    "gradient_buffer_seconds",
    "load_gemm_modules",
    "optimizer_step_seconds",
    "register_gemm_backend",
]
