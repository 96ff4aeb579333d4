"""What work costs: operations of a layer in seconds on one device.

One small function per kind of work, all fed from the device catalog; `CostModel` picks the right one. How pieces of
work overlap is not decided here but in `projector.performance`.
"""

from projector.costs.gemm import GEMM_BACKENDS, GemmBackend, gemm_backend
from projector.costs.hardware_config import HardwareOverrides, read_hardware_config
from projector.costs.kernels import gradient_buffer_seconds, optimizer_step_seconds
from projector.costs.model import CostModel
from projector.costs.network import Network

__all__ = [
    "GEMM_BACKENDS",
    "CostModel",
    "GemmBackend",
    "HardwareOverrides",
    "Network",
    "gemm_backend",
    "gradient_buffer_seconds",
    "optimizer_step_seconds",
    "read_hardware_config",
]
