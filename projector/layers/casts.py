"""Quantisation of the inputs of low-precision matrix products.

Every product of a linear layer sums over another side of its operands, and block scales and 8-bit units want that side
contiguous. So an activation or a gradient is written twice, along rows and along columns, each copy with its scales
(Transformer Engine 2.x `Quantizer`, `rowwise` and `columnwise` usage).
"""

from math import ceil

from projector.job import LowPrecision
from projector.layers.shapes import Shapes
from projector.operations import ElementWise, Work

_SOURCE_BYTES = 2
"""Of an element in 16 bits."""
_COPIES = 2
"""Along rows and along columns."""
_READINGS = {LowPrecision.FP8: 2, LowPrecision.NVFP4: 3, LowPrecision.MXFP4: 3}
"""How often the 16-bit tensor is read; once where no entry is.

Scaling of a whole tensor reads it for its largest value before it is cast. Four bits read it for the largest value,
along rows, and along columns, where the Hadamard transform mixes elements first (Transformer Engine
`NVFP4Quantizer`)."""
_BLOCK_SCALE_BYTES = {LowPrecision.MXFP8: 3, LowPrecision.MXFP6: 3, LowPrecision.NVFP4: 1, LowPrecision.MXFP4: 1}
"""Bytes per element that a cast to scaled blocks costs beyond its traffic: finding the scales of both orders at once,
and their reordering for the product. A prior: published steps in MXFP8 take 0.90-0.93 of those in FP8 on GB200."""

_KERNELS = {
    "delayed": (1, 1),
    LowPrecision.FP8: (3, 3),
    LowPrecision.FP8_BLOCK: (2, 2),
    LowPrecision.MXFP8: (3, 5),
}
"""Launches of a linear layer for its low precision, forward and backward: quantisation, largest values under current
scaling, and scales in the order of the tensor cores under MXFP8, which other block formats share (read in Transformer
Engine 2.x, pytorch/tensor and common/recipe)."""


def cast_bytes(low_precision: LowPrecision, *, delayed_scaling: bool) -> tuple[int, float]:
    """Bytes read and written per element: 4 for FP8 with delayed scaling, 6 with current, 7 for MXFP8, 8 for FP4.

    Delayed scaling takes the scale of earlier iterations, and the largest value for later ones while it casts.
    """
    readings = 1 if delayed_scaling else _READINGS.get(low_precision, 1)
    written = _COPIES * low_precision.element_bytes + _BLOCK_SCALE_BYTES.get(low_precision, 0)
    return readings * _SOURCE_BYTES, written


def cast(
    elements: int, fmt: LowPrecision | None, shapes: Shapes, *, backward: bool = False, lists: int = 0
) -> tuple[Work, ...]:
    """Quantisation of the input of a linear layer, or of its gradient `backward`; nothing for 16 bits.

    With `lists` it is one of so many experts that are quantised one by one, whose scales C++ swizzles.
    """
    if fmt is None:
        return ()
    read, written = cast_bytes(fmt, delayed_scaling=shapes.delayed_scaling)
    kind = "delayed" if shapes.delayed_scaling else fmt
    kernels = _KERNELS.get(kind, _KERNELS[LowPrecision.MXFP8])[backward]
    return (
        ElementWise(
            name="quantize",
            bytes_read=read * elements,
            bytes_written=ceil(written * elements),
            kernels=kernels * max(1, lists),
            functions=lists or kernels,
        ),
    )
