"""The dense feed-forward block, and the shared expert, which is one too."""

from typing import NamedTuple

from projector.job import DenseMLP
from projector.layers.blocks import Linear, kept_input, linear
from projector.layers.shapes import Shapes
from projector.operations import ElementWise, Operation, SavedTensor, Split


class Branch(NamedTuple):
    """Where a dense block sits in its layer."""

    prefix: str = "mlp"
    """Start of its operations' names."""
    component: str = "mlp"
    """Row of the component tree."""
    module: str = "mlp"
    """Selective-recompute module."""
    lists_input: bool = True
    """Its first projection, not the norm before it, lists the norm's output among its saved tensors."""


MAIN = Branch()
"""The feed-forward block of a dense layer."""


def mlp_operations(mlp: DenseMLP, shapes: Shapes, branch: Branch = MAIN) -> tuple[Operation, ...]:
    """First projection, activation, second projection."""
    width = mlp.ffn // shapes.tensor
    columns = (2 if mlp.gated else 1) * width
    full = (2 if mlp.gated else 1) * mlp.ffn
    inputs = (kept_input(shapes, shapes.column_input_tokens * shapes.hidden),) if branch.lists_input else ()
    first = Linear(
        name=f"{branch.prefix}.linear_fc1",
        component=branch.component,
        outputs=columns,
        inputs=shapes.hidden,
        full_elements=full * shapes.hidden,
        split=Split.COLUMN,
        bias=columns if mlp.bias else 0,
        full_bias=full if mlp.bias else 0,
        module=branch.module,
        saves=inputs,
        gradient_above_bytes=shapes.residual_bytes,
        parts=(("linear_fc1_gate", width), ("linear_fc1_up", width)) if mlp.gated else (("linear_fc1_up", width),),
        input_kept=not branch.lists_input and not shapes.sequence_parallel,
    )
    second = Linear(
        name=f"{branch.prefix}.linear_fc2",
        component=branch.component,
        outputs=shapes.hidden,
        inputs=width,
        full_elements=mlp.ffn * shapes.hidden,
        split=Split.ROW,
        bias=shapes.hidden if mlp.bias else 0,
        full_bias=shapes.hidden if mlp.bias else 0,
        module=branch.module,
        saves=(kept_input(shapes, shapes.tokens * width),),
        gradient_above_bytes=0,
    )
    return linear(first, shapes), _activation(columns, width, shapes, branch), linear(second, shapes)


def _activation(columns: int, width: int, shapes: Shapes, branch: Branch) -> Operation:
    """The activation of a dense block."""
    return activation(
        f"{branch.prefix}.activation",
        branch.component,
        shapes,
        rows=shapes.tokens,
        columns=columns,
        width=width,
        module=branch.module,
    )


def activation(  # noqa: PLR0913 - an operation by its sizes
    name: str, component: str, shapes: Shapes, *, rows: int, columns: int, width: int, module: str
) -> Operation:
    """SwiGLU, GeLU or their like: keeps its input; backward holds the gradients of both sides.

    Eager PyTorch runs the nonlinearity of a gated block and the product with its other half apart, and keeps what lies
    between them (autograd's derivatives.yaml: `mul` keeps both factors).
    """
    row = shapes.element * rows
    split = shapes.eager and columns > width
    between = row * width if split else 0
    forward = ElementWise(
        name="activation",
        bytes_read=row * columns + between,
        bytes_written=row * width + between,
        kernels=2 if split else 1,
    )
    backward = ElementWise(
        name="activation_backward",
        bytes_read=row * (columns + width) + 3 * between,
        bytes_written=row * columns + between,
        kernels=3 if split else 1,
    )
    kept = [SavedTensor(name="input", size_bytes=row * columns)]
    if split:
        kept.append(SavedTensor(name="activated", size_bytes=between))
    return Operation(
        name=name,
        component=component,
        forward=(forward,),
        backward_input=(backward,),
        saves=tuple(kept),
        scratch_forward_bytes=row * width,
        scratch_backward_bytes=shapes.residual_bytes + row * (width + columns) + between,
        recompute_module=module,
    )
