"""The experts that one device holds: two grouped linear layers with an activation between them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from projector.job import Dialect, ExpertBackend, MixtureOfExperts
from projector.layers.blocks import ACCUMULATE_BYTES_READ, ACCUMULATE_BYTES_WRITTEN, kept_input
from projector.layers.casts import cast
from projector.layers.dispatch import computed_rows
from projector.layers.launches import counts_of_rows, merges_casts
from projector.layers.mlp import activation
from projector.layers.shapes import Shapes
from projector.operations import (
    ElementWise,
    Group,
    GroupedGemm,
    LinearShape,
    Operation,
    SavedTensor,
    Split,
    Weight,
    Work,
)


def expert_operations(moe: MixtureOfExperts, rows: int, shapes: Shapes) -> tuple[Operation, ...]:
    """Both linear layers and the activation of a device's experts, which hold memory for so many `rows`."""
    held, computed = _experts(moe, rows, shapes), computed_rows(moe, shapes)
    return held if rows == computed else tuple(_held(_experts(moe, computed, shapes), held))


def _held(computed: Sequence[Operation], held: Sequence[Operation]) -> Iterator[Operation]:
    """The work of the rows that are computed with the memory of those that are held."""
    for work, memory in zip(computed, held, strict=True):
        yield replace(
            memory,
            forward=work.forward,
            backward_input=work.backward_input,
            backward_weight=work.backward_weight,
            linear=work.linear,
        )


def _experts(moe: MixtureOfExperts, rows: int, shapes: Shapes) -> tuple[Operation, ...]:
    width = moe.expert_ffn // shapes.expert_tensor
    columns = (2 if moe.gated else 1) * width
    full_columns = (2 if moe.gated else 1) * moe.expert_ffn
    between = activation(
        "mlp.experts.activation", "experts", shapes, rows=rows, columns=columns, width=width, module="moe"
    )
    inside = shapes.software.dialect is not Dialect.TORCHTITAN and not shapes.software.probabilities_after_experts
    if inside and not moe.gated:
        unweighted = SavedTensor(name="unweighted", size_bytes=shapes.element * rows * width)
        between = replace(between, saves=(*between.saves, unweighted))
    first = _Matrix(
        name="linear_fc1",
        outputs=columns,
        inputs=shapes.hidden,
        full_outputs=full_columns,
        full_inputs=shapes.hidden,
        module="moe",
        split=Split.COLUMN,
    )
    second = _Matrix(
        name="linear_fc2",
        outputs=shapes.hidden,
        inputs=width,
        full_outputs=shapes.hidden,
        full_inputs=moe.expert_ffn,
        module="moe_act",
        split=Split.ROW,
    )
    return _grouped(first, moe, rows, shapes), between, _grouped(second, moe, rows, shapes)


class _Matrix(NamedTuple):
    """One of an expert's two linear layers."""

    name: str
    outputs: int
    inputs: int
    full_outputs: int
    full_inputs: int
    module: str
    split: Split


def _grouped(matrix: _Matrix, moe: MixtureOfExperts, rows: int, shapes: Shapes) -> Operation:
    """A grouped linear layer of the local experts; keeps its input."""
    local, outputs, inputs = moe.experts // shapes.expert, matrix.outputs, matrix.inputs
    fused = shapes.software.expert_backend is ExpertBackend.GROUPED_FUSED
    fmt, lists = shapes.low_precision, 0 if fused or merges_casts(shapes.software) else local

    def gemm(n: int, k: int) -> GroupedGemm:
        return GroupedGemm(groups=local, m=rows, n=n, k=k, fused=fused, low_precision=fmt)

    counts = counts_of_rows(local, shapes.software) if matrix.split is Split.COLUMN else ()
    fusion = shapes.software.gradient_accumulation_fusion
    weight_scratch = 0 if fusion else shapes.element * local * outputs * inputs
    return Operation(
        name=f"mlp.experts.{matrix.name}",
        component="experts",
        forward=(*counts, *cast(rows * inputs, fmt, shapes, lists=lists), gemm(outputs, inputs)),
        backward_input=(*cast(rows * outputs, fmt, shapes, backward=True, lists=lists), gemm(inputs, outputs)),
        backward_weight=_weight_gradient(matrix, local, rows, shapes, fused=fused),
        weights=_expert_weights(matrix, moe, local),
        saves=(kept_input(shapes, rows * inputs),),
        scratch_forward_bytes=shapes.element * rows * outputs,
        scratch_backward_bytes=shapes.residual_bytes + shapes.element * rows * (outputs + inputs) + weight_scratch,
        weight_scratch_bytes=weight_scratch,
        recompute_module=matrix.module,
        linear=LinearShape(
            rows=rows,
            inputs=inputs,
            outputs=outputs,
            split=matrix.split,
            degree=shapes.expert_tensor,
            group=Group.EXPERT_TENSOR,
            expert_ranks=shapes.expert,
        ),
    )


def _weight_gradient(matrix: _Matrix, groups: int, rows: int, shapes: Shapes, *, fused: bool) -> tuple[Work, ...]:
    accumulates = shapes.software.gradient_accumulation_fusion
    product = GroupedGemm(
        groups=groups,
        m=rows,
        n=matrix.outputs,
        k=matrix.inputs,
        weight_gradient=True,
        output_bytes=4 if accumulates else 2,
        fused=fused,
        low_precision=shapes.low_precision,
    )
    if accumulates:
        return (product,)
    elements = groups * matrix.outputs * matrix.inputs
    added = ElementWise(
        name="accumulate_gradient",
        bytes_read=ACCUMULATE_BYTES_READ * elements,
        bytes_written=ACCUMULATE_BYTES_WRITTEN * elements,
        kernels=groups,
    )
    return product, added


def _expert_weights(matrix: _Matrix, moe: MixtureOfExperts, local: int) -> tuple[Weight, ...]:
    def weight(suffix: str, shape: tuple[int, ...], elements: int) -> Weight:
        return Weight(
            name=f"experts.{matrix.name}.{suffix}",
            shape=shape,
            full_elements=elements,
            copies=local,
            full_copies=moe.experts,
            active_copies=moe.top_k,
            expert=True,
        )

    product = weight("weight", (matrix.outputs, matrix.inputs), matrix.full_outputs * matrix.full_inputs)
    if not moe.bias:
        return (product,)
    return product, weight("bias", (matrix.outputs,), matrix.full_outputs)
