"""Hyper-connections: several residual streams, which are mixed into and out of every block.

DeepSeek-V4's, whose mixing matrix is doubly stochastic (mHC, arXiv 2512.24880), as Primus runs them (AMD-AGI/Primus
primus/backends/megatron/core/transformer/hyper_connection.py, `HyperMixer` and `HyperHead`): the streams of a token
side by side are normalised in fp32 and projected to a weight per stream in, one per stream out, and a matrix between
streams.
"""

from dataclasses import replace

from projector.layers.blocks import residual
from projector.layers.shapes import Shapes
from projector.operations import ElementWise, Gemm, GemmLayout, Operation, SavedTensor, Weight, Work

NAME = "hyper_connection"
"""Last part of the name of the operation that begins a half of a layer, or ends the decoder."""
FP32_BYTES = 4
SINKHORN_KERNELS = 4
"""Kernels beside the norm and the projection: splitting, scales and offsets, normalising the matrix, the mix."""
KERNELS_PER_SUM = 2
"""Kernels of a step of the normalisation that is not compiled: the sums of rows or columns, and the division by them.
`n` iterations have 2 n - 1 such steps (`sinkhorn_normalize` begins with columns alone)."""

STEPWISE_PASSES, STEPWISE_KERNELS = 4, 6
"""Passes over the streams in fp32, and kernels, of a norm without weights that runs step by step: widening, square,
mean, offset, root and product (prior: an RMS norm written out in torch)."""


def mixed_input(component: str, shapes: Shapes) -> Operation:
    """What begins a half of a layer: weights of streams, and the block's input as their weighted sum."""
    streams = shapes.streams
    mixed = _mix(f"{component}.{NAME}", component, shapes, outputs=(2 + streams) * streams, scales=3)
    iterations = shapes.software.sinkhorn_iterations
    if not iterations:
        return mixed
    return replace(
        mixed,
        forward=(*mixed.forward, _sinkhorn("sinkhorn", iterations, shapes)),
        # Backward computes the iterations again (`SinkhornKnopp.backward`).
        backward_input=(_sinkhorn("sinkhorn_backward", iterations, shapes), *mixed.backward_input),
    )


def _sinkhorn(name: str, iterations: int, shapes: Shapes) -> ElementWise:
    """The normalisation of a token's matrix between streams, kernel by kernel."""
    kernels = KERNELS_PER_SUM * (2 * iterations - 1)
    moved = kernels * FP32_BYTES * shapes.local * shapes.streams**2
    return ElementWise(name=name, bytes_read=moved, bytes_written=moved, kernels=kernels)


def head(component: str, shapes: Shapes) -> Operation:
    """What ends the decoder: one stream as the weighted sum of all."""
    return _mix(f"{component}.{NAME}", component, shapes, outputs=shapes.streams, scales=1)


def mixed_output(name: str, component: str, shapes: Shapes) -> Operation:
    """What ends a half of a layer: every stream anew, from all streams and the block's output, which it keeps."""
    plain = residual(name, component, shapes)
    if shapes.streams == 1:
        return plain
    block, carried = shapes.residual_bytes, shapes.carried_bytes
    return Operation(
        name=name,
        component=component,
        forward=(ElementWise(name="mix_streams", bytes_read=carried + block, bytes_written=carried),),
        backward_input=(
            ElementWise(name="mix_streams_backward", bytes_read=2 * carried + block, bytes_written=carried + block),
        ),
        saves=(SavedTensor(name="input", size_bytes=block),),
        scratch_forward_bytes=2 * carried,
        scratch_backward_bytes=2 * carried + block,
    )


def _mix(name: str, component: str, shapes: Shapes, *, outputs: int, scales: int) -> Operation:
    """A norm without weights over all streams of a token, a projection in fp32, and a weighted sum of streams.

    The projection keeps the normalised streams in fp32; a norm that runs step by step keeps the streams in fp32 too,
    and what is multiplied before it is summed takes a tensor of its own.
    """
    width = shapes.streams * shapes.hidden
    stepwise = not shapes.software.fused_unweighted_norms
    carried, wide = shapes.carried_bytes, FP32_BYTES * shapes.local * width
    saves = [
        SavedTensor(name="input", size_bytes=carried, checkpoint=True),
        *([SavedTensor(name="fp32_input", size_bytes=wide)] if stepwise else ()),
        SavedTensor(name="normalised", size_bytes=wide),
        SavedTensor(name="statistics", size_bytes=FP32_BYTES * shapes.local),
        SavedTensor(name="stream_weights", size_bytes=FP32_BYTES * shapes.local * outputs),
    ]
    passing_forward = (max(wide, carried),) if stepwise else ()
    passing_backward = (wide, wide, wide) if stepwise else (wide,)
    forward, backward = _works(shapes, outputs=outputs, stepwise=stepwise)
    return Operation(
        name=name,
        component=component,
        forward=forward,
        backward_input=backward,
        backward_weight=(Gemm(m=outputs, n=width, k=shapes.local, output_bytes=FP32_BYTES, layout=GemmLayout.NT),),
        weights=(
            Weight(name=f"{NAME}.fn.weight", shape=(outputs, width), full_elements=outputs * width),
            Weight(name=f"{NAME}.base", shape=(outputs,), full_elements=outputs),
            Weight(name=f"{NAME}.scale", shape=(scales,), full_elements=scales),
        ),
        saves=tuple(saves),
        passing_forward=passing_forward,
        passing_backward=passing_backward,
        scratch_forward_bytes=sum(passing_forward) + shapes.residual_bytes,
        scratch_backward_bytes=sum(passing_backward) + 2 * carried + shapes.residual_bytes,
    )


def _works(shapes: Shapes, *, outputs: int, stepwise: bool) -> tuple[tuple[Work, ...], tuple[Work, ...]]:
    """Norm, projection and weighted sum, forward and backward."""
    width = shapes.streams * shapes.hidden
    carried, wide, block = shapes.carried_bytes, FP32_BYTES * shapes.local * width, shapes.residual_bytes
    passes, kernels = (STEPWISE_PASSES, STEPWISE_KERNELS) if stepwise else (1, 1)
    spread = (passes - 1) * wide
    norm = ElementWise(
        name="normalise_streams", bytes_read=carried + spread, bytes_written=wide + spread, kernels=kernels
    )
    total = ElementWise(name="sum_streams", bytes_read=carried, bytes_written=block, kernels=SINKHORN_KERNELS)
    total_backward = ElementWise(
        name="sum_streams_backward", bytes_read=carried + block, bytes_written=carried, kernels=SINKHORN_KERNELS
    )
    norm_backward = ElementWise(
        name="normalise_streams_backward",
        bytes_read=2 * wide + spread,
        bytes_written=carried + spread,
        kernels=2 * kernels,
    )
    project = Gemm(m=shapes.local, n=outputs, k=width, output_bytes=FP32_BYTES)
    project_backward = Gemm(m=shapes.local, n=width, k=outputs, output_bytes=FP32_BYTES, layout=GemmLayout.NN)
    return (norm, project, total), (total_backward, project_backward, norm_backward)
