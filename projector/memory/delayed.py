"""What waits for a weight gradient that a schedule delays behind the gradient of the input.

Megatron-LM's forks, Primus and Transformer Engine put the input and the output gradient of every linear layer aside
(`WeightGradStore`: sail-sg/zero-bubble-pipeline-parallelism megatron/core/weight_grad_store.py, transformer_engine/
pytorch/module/base.py) and let go of the rest, whether or not the layer ran again. PyTorch keeps the graph, with all
that it saved, and the output gradients of whatever has weights (torch/distributed/pipelining/_backward.py
`stage_backward_input`); what checkpointing computed again it drops and computes once more.
"""

from collections.abc import Mapping, Sequence

from projector.operations import Gemm, GroupedGemm, Operation

EMBEDDING = "embedding"
"""Component whose weight gradient no schedule delays: it needs no product."""
SIXTEEN_BIT_BYTES = 2
"""Bytes of an element of a gradient that enters a product in no lower format."""


def waiting_inputs(operations: Sequence[Operation]) -> Mapping[str, int]:
    """Bytes of the inputs of linear layers, by component."""
    sizes: dict[str, int] = {}
    for operation in operations:
        if _trains(operation) and operation.linear is not None:
            own = sum(tensor.size_bytes for tensor in operation.saves if tensor.name == "input")
            size = own or round(_element_bytes(operation) * operation.linear.rows * operation.linear.inputs)
            sizes[operation.component] = sizes.get(operation.component, 0) + size
    return sizes


def waiting_gradients(operations: Sequence[Operation], *, of_norms: bool) -> Mapping[str, int]:
    """Bytes of the output gradients of linear layers, and of everything else with weights if asked, by component."""
    sizes: dict[str, int] = {}
    for operation in operations:
        if not _trains(operation):
            continue
        if operation.linear is not None:
            size = round(_element_bytes(operation) * operation.linear.rows * operation.linear.outputs)
        elif of_norms:
            size = operation.scratch_forward_bytes
        else:
            continue
        sizes[operation.component] = sizes.get(operation.component, 0) + size
    return sizes


def _trains(operation: Operation) -> bool:
    """Whether it has weights whose gradient may wait."""
    return operation.component != EMBEDDING and any(
        weight.trainable and not weight.frozen for weight in operation.weights
    )


def _element_bytes(operation: Operation) -> float:
    """Bytes of an element as the product of the weight gradient reads it."""
    products = [work for work in operation.backward_weight if isinstance(work, Gemm | GroupedGemm)]
    low = products[0].low_precision if products else None
    return SIXTEEN_BIT_BYTES if low is None else low.element_bytes
