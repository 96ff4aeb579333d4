"""GEMMs by origami, AMD's analytical model of GEMM kernels (PyPI package `rocm-origami`), set to published rates.

Origami ranks kernels; its header says that absolute values are no predictions, and they are 30-40 % fast. So only the
proportions between shapes are its own: its time is multiplied with what brings the FLOP-weighted mean over published
shapes (`catalog/origami.yaml`) to the rate that the device sustains in the format. Version 0.0.3 has neither an effect
of transposes nor a gain from eight-bit operands (1.03 on gfx950): every format has the proportions of bf16.
"""

from functools import cache
from importlib import import_module
from typing import Any

from projector.catalog import Device, OrigamiTarget, origami_targets
from projector.costs.figures import figure, gemm_rate, kernel_gap
from projector.costs.gemm import operand_bytes
from projector.errors import NotAvailable
from projector.job import LowPrecision
from projector.operations import Gemm

_TILES = tuple(
    (rows, columns, depth)
    for rows, columns in ((64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128), (256, 256))
    for depth in (32, 64)
)
"""Macro-tiles from which origami selects: those that Primus offers it (AMD-AGI/Primus fd1eeabb, origami_backend.py)."""
_OCCUPANCIES = (1, 2, 4)
"""Workgroups of a compute unit, from the same file."""
_KILOHERTZ = 1e3
_TYPES = ("a_dtype", "b_dtype", "c_dtype", "d_dtype", "mi_dtype")


def origami_package() -> Any | None:  # noqa: ANN401 - it has no types
    """The module of `rocm-origami`, None where it is not installed or another package has its name."""
    try:
        module = import_module("origami")
    except ImportError:
        return None
    return module if hasattr(module, "get_hardware_for_arch") else None


class OrigamiGemm:
    """Proportions between shapes from origami, the rate from the catalog."""

    def __init__(self, device: Device) -> None:
        """Prepare the device's hardware.

        Raises `NotAvailable` for a GPU that origami does not know, and where the package is not installed.
        """
        target = origami_targets().get(device.architecture)
        if target is None:
            raise NotAvailable(
                f"origami does not know {device.name} ({device.architecture})",
                place="--gemm-backend",
                expected=f"analytical; origami knows {', '.join(origami_targets())}",
            )
        package = origami_package()
        if package is None:
            raise NotAvailable(
                "the GEMM backend origami needs the package rocm-origami, which is not installed",
                place="--gemm-backend",
                expected="pip install 'projection-operator[origami]', or analytical",
            )
        self._device, self._package, self._shapes = device, package, target.shapes
        self._hardware = _hardware(package, target, device)
        self._configurations = _configurations(package, self._hardware)
        self._scales: dict[LowPrecision | None, float] = {}

    def __call__(self, work: Gemm) -> float:
        """Seconds of one product, launch included; never less than its operands take in memory."""
        scale = self._scales.get(work.low_precision)
        if scale is None:
            scale = self._scales[work.low_precision] = self._scale(work.low_precision)
        memory = operand_bytes(work) / figure(self._device, "memory_bandwidth_bytes_per_second")
        return max(scale * self.raw_seconds(work), memory) + kernel_gap(self._device)

    def raw_seconds(self, work: Gemm) -> float:
        """What origami itself says of a product in bf16, at the device's highest clock."""
        package = self._package
        problem = package.problem_t()
        problem.size = package.dim3_t(work.m, work.n, work.k)
        problem.batch = work.batch
        problem.a_transpose, problem.b_transpose = (getattr(package.transpose_t, letter) for letter in work.layout)
        for name in _TYPES:
            setattr(problem, name, package.string_to_datatype("bf16"))
        problem.a_mx_block_size = problem.b_mx_block_size = 0
        cycles = package.select_config(problem, self._hardware, self._configurations).latency
        return float(cycles) / figure(self._device, "clock_hz")

    def _scale(self, low_precision: LowPrecision | None) -> float:
        """What brings the mean rate over the reference's shapes to the device's."""
        products = [Gemm(m=m, n=n, k=k) for m, n, k in self._shapes]
        seconds = sum(map(self.raw_seconds, products))
        return sum(product.flops for product in products) / gemm_rate(self._device, low_precision) / seconds


@cache
def _hardware_of(architecture: str, units: int, lds_bytes: int, l2_bytes: int, kilohertz: int) -> Any:  # noqa: ANN401
    package = import_module("origami")
    return package.get_hardware_for_arch(
        getattr(package.architecture_t, architecture), units, lds_bytes, l2_bytes, kilohertz
    )


def _hardware(package: Any, target: OrigamiTarget, device: Device) -> Any:  # noqa: ANN401 - untyped
    if not hasattr(package.architecture_t, device.architecture):
        raise NotAvailable(
            f"the installed origami does not know {device.architecture}",
            place="--gemm-backend",
            expected="a later rocm-origami, or analytical",
        )
    units, clock = int(figure(device, "compute_units")), figure(device, "clock_hz")
    return _hardware_of(device.architecture, units, target.lds_bytes, target.l2_bytes, round(clock / _KILOHERTZ))


def _configurations(package: Any, hardware: Any) -> list[Any]:  # noqa: ANN401 - untyped
    instruction = hardware.get_recommended_matrix_instruction(package.string_to_datatype("bf16"))
    found = []
    for tile in _TILES:
        for occupancy in _OCCUPANCIES:
            configuration = package.config_t()
            configuration.mt = package.dim3_t(*tile)
            configuration.mi, configuration.occupancy = instruction, occupancy
            found.append(configuration)
    return found
