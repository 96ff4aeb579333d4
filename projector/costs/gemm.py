"""Dense and grouped matrix products.

A backend turns shapes into seconds; `analytical` needs nothing but the device's figures. A GEMM takes the longest of
three limits: sustained power (arithmetic at the rate that the chip holds for hours, plus the traffic of operands and
result), tiles (arithmetic at the rate of a short run, with the last wave of tiles partly empty), and memory. Long runs
settle at a lower clock than short benchmarks show, so the first limit governs large shapes (AMD, "Measuring
max-achievable FLOPs": MI300X holds 1,207 of 2,100 MHz in bf16).
"""

from math import ceil
from typing import Protocol

from projector.catalog import Device
from projector.costs.figures import TERA, best_gemm_rate, figure, gemm_rate, kernel_gap, training_factor
from projector.operations import Gemm, GemmLayout, GroupedGemm


class GemmBackend(Protocol):
    """Turns the shape of a matrix product into seconds."""

    def __call__(self, work: Gemm) -> float:
        """Seconds of one product, launch included."""


_TILES = ((256, 256, 1.0), (256, 128, 0.95), (128, 128, 0.85), (64, 64, 0.5))
"""Rows, columns and relative rate of the tiles that a library chooses from. Larger tiles reuse operands more: the
relative rates are priors that follow the operands that a tile loads per multiplication."""
_LEAST_DEPTH = 1024
"""Depth that remains to a tile when a library splits the summed width over compute units (prior)."""
_BF16_BYTES = 2.0
"""Bytes of an operand element without low precision."""


def operand_bytes(work: Gemm) -> float:
    """Bytes of both operands and the result."""
    width = _BF16_BYTES if work.low_precision is None else work.low_precision.element_bytes
    result = work.output_bytes * (2 if work.accumulates else 1)
    return work.batch * (width * (work.m * work.k + work.n * work.k) + result * work.m * work.n)


class AnalyticalGemm:
    """The project's own model of a GEMM library."""

    def __init__(self, device: Device) -> None:
        """Keep the device whose figures are used."""
        self._device = device

    def __call__(self, work: Gemm) -> float:
        """Seconds of one product, launch included.

        Raises `NotAvailable` when the device lacks a figure that is needed.
        """
        device = self._device
        size_bytes = operand_bytes(work)
        sustained = work.flops / gemm_rate(device, work.low_precision)
        if device.gemm_output_bytes_per_second is not None:
            sustained += size_bytes / (device.gemm_output_bytes_per_second * training_factor(device))
        tiled = work.flops / (best_gemm_rate(device, work.low_precision) * self._tile_share(work))
        memory = size_bytes / figure(device, "memory_bandwidth_bytes_per_second")
        return max(sustained, tiled, memory) + kernel_gap(device)

    def _tile_share(self, work: Gemm) -> float:
        """Share of the compute units' work that the best tile puts to use, 0-1."""
        units = figure(self._device, "compute_units")
        best = 0.0
        for rows, columns, relative in _TILES:
            tiles = ceil(work.m / rows) * ceil(work.n / columns) * work.batch
            filled = work.m * work.n * work.batch / (tiles * rows * columns)
            for split in {1, max(1, min(units // tiles, work.k // _LEAST_DEPTH))}:
                parts = tiles * split
                best = max(best, relative * filled * parts / (ceil(parts / units) * units))
        return best


def grouped_gemm_seconds(work: GroupedGemm, device: Device, dense: GemmBackend) -> float:
    """Seconds of one GEMM per expert on the device: one kernel for all, or one call after another."""
    rows = max(1, round(work.m / work.groups))
    one = Gemm(
        m=work.n if work.weight_gradient else rows,
        n=work.k if work.weight_gradient else work.n,
        k=rows if work.weight_gradient else work.k,
        output_bytes=work.output_bytes,
        layout=GemmLayout.NT if work.weight_gradient else GemmLayout.TN,
        accumulates=work.weight_gradient and work.output_bytes > 2,  # noqa: PLR2004 - fp32 main gradients are added to
        low_precision=work.low_precision,
    )
    if not work.fused:
        return work.groups * dense(one)
    together = dense(Gemm(**{name: getattr(one, name) for name in Gemm.__dataclass_fields__} | {"batch": work.groups}))
    key = "backward" if work.weight_gradient else "forward"
    if key not in device.grouped_gemm_tflops:
        return together
    gain = gemm_rate(device, work.low_precision) / gemm_rate(device, None)
    return max(work.flops / (device.grouped_gemm_tflops[key] * TERA * gain), together)
