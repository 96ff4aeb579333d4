"""The pieces that layers are made of: linear layers with their collectives, norms, residual additions.

Tensor parallelism follows Megatron-LM (arXiv 1909.08053, 2205.05198): a column-parallel layer gathers its input and
reduces its input gradient, a row-parallel layer reduces its output and gathers its output gradient. With sequence
parallelism these are all-gather and reduce-scatter, without it all-reduce and nothing.
"""

from dataclasses import dataclass, replace

from projector.job import Dialect, LowPrecision, NormKind
from projector.layers.casts import cast
from projector.layers.shapes import Shapes
from projector.operations import (
    Collective,
    CollectiveKind,
    ElementWise,
    Gemm,
    GemmLayout,
    Group,
    LinearShape,
    Operation,
    SavedTensor,
    Split,
    Weight,
    Work,
)

ACCUMULATE_BYTES_READ, ACCUMULATE_BYTES_WRITTEN = 6, 4
"""Bytes per parameter of adding a bf16 weight gradient to the fp32 main gradient where the GEMM does not."""
STATISTIC_BYTES = 4
"""An fp32 statistic per token; layer norm keeps mean and deviation, RMS norm the deviation."""
STEPWISE_BYTES = 4
"""Kept per element of an RMS norm that runs step by step, beside its normalised input: that input in fp32
(`LlamaRMSNorm` of transformers, counted under torch 2.15)."""
STEPWISE_WORK = {"": (20, 16, 8), "_backward": (58, 38, 16)}
"""Bytes read and written per element, and kernels, of the steps of such a norm (counted on the same class)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Linear:
    """A linear layer as one device sees it."""

    name: str
    """Operation name."""
    component: str
    """Row of the component tree."""
    outputs: int
    """Output columns on this device."""
    inputs: int
    """Input columns on this device."""
    full_elements: int
    """Weight elements of the whole model."""
    split: Split
    """How tensor parallelism divides it."""
    bias: int = 0
    """Bias elements on this device; 0 for none."""
    full_bias: int = 0
    """Bias elements of the whole model."""
    module: str | None = None
    """Selective-recompute module."""
    saves: tuple[SavedTensor, ...] = ()
    """What it keeps, its input above all."""
    gradient_above_bytes: int = 0
    """Gradients of other branches that wait while its backward runs: the residual stream's."""
    weight_name: str = "weight"
    """Name of the weight tensor."""
    low_precision: bool = True
    """Takes part in low-precision GEMMs when the job uses them."""
    tokens: int | None = None
    """Rows, where they are not the device's tokens."""
    parts: tuple[tuple[str, int], ...] = ()
    """Names and output columns on this device of the layers that are packed into it."""
    input_kept: bool = False
    """Another operation keeps its 16-bit input in any case."""


def linear(layer: Linear, shapes: Shapes) -> Operation:
    """Describe a linear layer: three GEMMs, its collectives, weight and bias, scratch."""
    rows = shapes.tokens if layer.tokens is None else layer.tokens
    fmt = shapes.low_precision if layer.low_precision else None
    before, after_input, before_weight = _collectives(layer, shapes)
    forward_after, gather_gradient = _row_collectives(layer, shapes)
    forward = (
        *before,
        *cast(rows * layer.inputs, fmt, shapes),
        Gemm(m=rows, n=layer.outputs, k=layer.inputs, low_precision=fmt),
        *forward_after,
    )
    backward_input = (
        *gather_gradient,
        *cast(rows * layer.outputs, fmt, shapes, backward=True),
        Gemm(m=rows, n=layer.inputs, k=layer.outputs, layout=GemmLayout.NN, low_precision=fmt),
        *after_input,
    )
    backward_weight = (*before_weight, *weight_gradient(layer.outputs, layer.inputs, rows, fmt, shapes))
    return Operation(
        name=layer.name,
        component=layer.component,
        forward=forward,
        backward_input=backward_input,
        backward_weight=backward_weight,
        weights=_weights(layer),
        saves=layer.saves,
        scratch_forward_bytes=shapes.element * rows * layer.outputs,
        scratch_backward_bytes=layer.gradient_above_bytes
        + shapes.element * rows * (layer.outputs + layer.inputs)
        + _weight_scratch(layer, rows, shapes),
        weight_scratch_bytes=_weight_scratch(layer, rows, shapes),
        product_bytes=tuple(
            shapes.element * rows * columns for _, columns in layer.parts or ((layer.name, layer.outputs),)
        ),
        costly_bytes=shapes.element * shapes.local * layer.outputs if _scatters(layer, shapes) else 0,
        recompute_module=layer.module,
        linear=LinearShape(
            rows=rows,
            inputs=layer.inputs,
            outputs=layer.outputs,
            split=layer.split,
            degree=1 if layer.split is Split.NONE else shapes.tensor,
            parts=layer.parts,
            input_kept=layer.input_kept,
        ),
    )


def weight_gradient(outputs: int, inputs: int, rows: int, fmt: LowPrecision | None, shapes: Shapes) -> tuple[Work, ...]:
    """The weight-gradient GEMM, and the addition to the main gradient where it is a kernel of its own."""
    product = Gemm(m=outputs, n=inputs, k=rows, layout=GemmLayout.NT, low_precision=fmt)
    if shapes.software.gradient_accumulation_fusion:
        return (replace(product, output_bytes=4, accumulates=True),)
    elements = outputs * inputs
    return (
        product,
        ElementWise(
            name="accumulate_gradient",
            bytes_read=ACCUMULATE_BYTES_READ * elements,
            bytes_written=ACCUMULATE_BYTES_WRITTEN * elements,
        ),
    )


def _collectives(layer: Linear, shapes: Shapes) -> tuple[tuple[Work, ...], tuple[Work, ...], tuple[Work, ...]]:
    """Column-parallel collectives: before forward, after the input gradient, before the weight gradient."""
    if layer.split is not Split.COLUMN or shapes.tensor == 1:
        return (), (), ()
    message = shapes.element * shapes.tokens * layer.inputs
    if not shapes.sequence_parallel:
        return (), (_tensor(CollectiveKind.ALL_REDUCE, message),), ()
    gather = (_gather(shapes.tokens * layer.inputs, layer, shapes),)
    return gather, (_tensor(CollectiveKind.REDUCE_SCATTER, message),), gather


def _row_collectives(layer: Linear, shapes: Shapes) -> tuple[tuple[Work, ...], tuple[Work, ...]]:
    """Row-parallel collectives: after forward, before the input gradient."""
    if layer.split is not Split.ROW or shapes.tensor == 1:
        return (), ()
    message = shapes.element * shapes.tokens * layer.outputs
    if not shapes.sequence_parallel:
        return (_tensor(CollectiveKind.ALL_REDUCE, message),), ()
    gather = _gather(shapes.tokens * layer.outputs, layer, shapes)
    return (_tensor(CollectiveKind.REDUCE_SCATTER, message),), (gather,)


def _gather(elements: int, layer: Linear, shapes: Shapes) -> Collective:
    """All-gather of a sequence-parallel input or gradient.

    Transformer Engine quantises a rank's share before it gathers (`gather_along_first_dim` with a quantizer, called by
    module/linear.py and module/layernorm_linear.py, 2.x).
    """
    quantised = layer.low_precision and shapes.low_precision is not None and shapes.transformer_engine
    width = shapes.linear_input_bytes if quantised else shapes.element
    return _tensor(CollectiveKind.ALL_GATHER, round(width * elements))


def _scatters(layer: Linear, shapes: Shapes) -> bool:
    """Whether a reduce-scatter ends its forward pass."""
    return layer.split is Split.ROW and shapes.tensor > 1 and shapes.sequence_parallel


def _tensor(kind: CollectiveKind, message: int) -> Collective:
    return Collective(kind=kind, group=Group.TENSOR, message_bytes=message)


def _weights(layer: Linear) -> tuple[Weight, ...]:
    prefix = layer.name.rsplit(".", 1)[-1]
    weight = Weight(
        name=f"{prefix}.{layer.weight_name}", shape=(layer.outputs, layer.inputs), full_elements=layer.full_elements
    )
    if not layer.bias:
        return (weight,)
    return weight, Weight(name=f"{prefix}.bias", shape=(layer.bias,), full_elements=layer.full_bias)


def _weight_scratch(layer: Linear, rows: int, shapes: Shapes) -> int:
    """The input gathered again for the weight gradient, and that gradient where it is not added in place."""
    gathers = shapes.sequence_parallel and layer.split is Split.COLUMN
    gathered = shapes.element * rows * layer.inputs if gathers else 0
    if shapes.software.gradient_accumulation_fusion:
        return gathered
    return gathered + shapes.element * layer.outputs * layer.inputs


def norm_weight(name: str, width: int, shapes: Shapes, *, full_width: int | None = None) -> tuple[Weight, ...]:
    """Weight, and bias for layer norm, of a norm over `width` elements."""
    full = width if full_width is None else full_width
    weight = Weight(name=f"{name}.weight", shape=(width,), full_elements=full)
    if shapes.norm is NormKind.RMS:
        return (weight,)
    return weight, Weight(name=f"{name}.bias", shape=(width,), full_elements=full)


def statistic_bytes(shapes: Shapes) -> int:
    """Bytes a norm keeps per row."""
    return STATISTIC_BYTES * (1 if shapes.norm is NormKind.RMS else 2)


def norm(
    name: str, shapes: Shapes, *, component: str = "layer_norm", keeps_output: bool, only_for_weights: bool = False
) -> Operation:
    """A norm of the residual stream.

    It keeps its input and statistics; `keeps_output` where no linear layer behind it lists the output as its input,
    `only_for_weights` where nothing but weight gradients reads that output. torch.compile takes norms of layers, not
    the final one (torchtitan/models/llama3/infra/parallelize.py `apply_compile`).
    """
    size = shapes.residual_bytes
    compiled = shapes.software.compiled_layers and component == "layer_norm"
    stepwise = runs_stepwise(shapes, compiled=compiled)
    saves = [
        SavedTensor(name="input", size_bytes=size, checkpoint=True),
        SavedTensor(name="statistics", size_bytes=statistic_bytes(shapes) * shapes.local),
    ]
    if stepwise:
        saves.append(SavedTensor(name="fp32_input", size_bytes=STEPWISE_BYTES * shapes.local * shapes.hidden))
    if keeps_output:
        saves.append(SavedTensor(name="output", size_bytes=size, only_for_weights=only_for_weights))
    forward, backward = norm_work(size, shapes, stepwise=stepwise)
    return Operation(
        name=name,
        component=component,
        forward=(forward,),
        backward_input=(backward,),
        weights=norm_weight(name, shapes.hidden, shapes),
        saves=tuple(saves),
        scratch_forward_bytes=size,
        scratch_backward_bytes=3 * size,
        recompute_module="layernorm" if keeps_output else None,
    )


def runs_stepwise(shapes: Shapes, *, compiled: bool) -> bool:
    """Whether an RMS norm is a chain of eager operations in fp32.

    Such a norm keeps its normalised input, in the place of its input, beside that input in fp32.
    """
    software = shapes.software
    eager = software.dialect is Dialect.TORCHTITAN and not compiled
    return eager and not software.fused_norms and shapes.norm is NormKind.RMS


def norm_work(size: int, shapes: Shapes, *, stepwise: bool) -> tuple[ElementWise, ElementWise]:
    """Forward and backward of a norm over `size` bytes."""
    kind = f"{shapes.norm.value}_norm"
    if not stepwise:
        return (
            ElementWise(name=kind, bytes_read=size, bytes_written=size),
            ElementWise(name=f"{kind}_backward", bytes_read=2 * size, bytes_written=size, kernels=2),
        )
    elements = size // shapes.element
    passes = {}
    for direction, (read, written, kernels) in STEPWISE_WORK.items():
        passes[direction] = ElementWise(
            name=f"{kind}{direction}", bytes_read=read * elements, bytes_written=written * elements, kernels=kernels
        )
    return passes[""], passes["_backward"]


def residual(name: str, component: str, shapes: Shapes) -> Operation:
    """Bias, dropout and addition to the residual stream; keeps a mask byte per element under dropout."""
    size = shapes.residual_bytes
    mask = shapes.local * shapes.hidden if shapes.software.hidden_dropout > 0 else 0
    masks = (SavedTensor(name="dropout_mask", size_bytes=mask),) if mask else ()
    backward = (ElementWise(name="residual_backward", bytes_read=size + mask, bytes_written=size),) if mask else ()
    return Operation(
        name=name,
        component=component,
        forward=(ElementWise(name="residual", bytes_read=2 * size, bytes_written=size + mask),),
        backward_input=backward,
        saves=masks,
        scratch_forward_bytes=2 * size,
        scratch_backward_bytes=2 * size,
    )


def kept_input(shapes: Shapes, elements: int, *, name: str = "input") -> SavedTensor:
    """The input a linear layer keeps for its weight gradient, in the GEMM's format."""
    return SavedTensor(name=name, size_bytes=int(shapes.linear_input_bytes * elements), only_for_weights=True)
