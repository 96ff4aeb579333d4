"""Which saved tensors of a layer wait in host memory, and when they come back.

Megatron-LM core/pipeline_parallel/fine_grained_activation_offload.py: the tensors of a module leave when its forward
pass has ended. Those of the layer that runs backward first stay, and every module fetches the next that left when it
starts: a layer's tensors come back module by module while the layer behind it runs.
"""

from collections.abc import Mapping
from dataclasses import replace

from projector.job import ActivationOffload
from projector.layers.recompute import is_recomputed
from projector.operations import Operation

PREFIX = "offloaded "
"""Start of the module name under which the tensors of an offloaded module leave and come back together."""

_NORMS = {"input_layernorm": "attn_norm", "pre_mlp_layernorm": "mlp_norm"}
_MODULES: Mapping[str, tuple[str, ...]] = {
    "qkv_linear": (
        "self_attention.linear_qkv",
        "self_attention.linear_q_down_proj",
        "self_attention.q_layernorm",
        "self_attention.linear_q_up_proj",
        "self_attention.linear_q_proj",
        "self_attention.linear_kv_down_proj",
        "self_attention.kv_layernorm",
        "self_attention.linear_kv_up_proj",
    ),
    "core_attn": ("self_attention.rotary", "self_attention.split", "self_attention.core_attention"),
    "attn_proj": ("self_attention.linear_proj",),
    "expert_fc1": ("mlp.experts.linear_fc1",),
    "moe_act": ("mlp.experts.activation",),
}
"""Operations that list the tensors which a module of Megatron's saves."""
_MODULE_OF = {operation: module for module, operations in _MODULES.items() for operation in operations}

OFFLOAD_MODULES = (*_MODULES, *_NORMS.values())
"""Names that can be offloaded."""


def offloaded_names(offload: ActivationOffload) -> frozenset[str]:
    """Names under which `with_offload` marks what leaves: they count as recomputed modules, which come back."""
    return frozenset(PREFIX + module for module in offload.modules)


def with_offload(
    operations: tuple[Operation, ...], offload: ActivationOffload, recomputed: frozenset[str]
) -> tuple[Operation, ...]:
    """The operations with what leaves under names of `offloaded_names`; what is recomputed anyway is no part of it."""
    if not offload.modules:
        return operations
    leaving = [
        0
        if _module(operation) not in offload.modules or is_recomputed(operation, recomputed)
        else _leaving_bytes(operation, offload)
        for operation in operations
    ]
    return tuple(
        _marked(operation, size, ahead=sum(leaving[index:])) if size else operation
        for index, (operation, size) in enumerate(zip(operations, leaving, strict=True))
    )


def _module(operation: Operation) -> str:
    """Megatron's module; a norm that is fused into the linear layer behind it belongs to that one."""
    norm = _NORMS.get(operation.name)
    if norm is None:
        return _MODULE_OF.get(operation.name, "")
    if operation.recompute_module == "layernorm":
        return norm
    return "qkv_linear" if norm == "attn_norm" else ""


def _leaving_bytes(operation: Operation, offload: ActivationOffload) -> int:
    least = 2 * offload.least_elements
    return int(offload.share * sum(tensor.size_bytes for tensor in operation.saves if tensor.size_bytes >= least))


def _marked(operation: Operation, leaving: int, *, ahead: int) -> Operation:
    """The operation with its saved tensors in two: what leaves, and what stays; `ahead` is what came back too early."""
    total = sum(tensor.size_bytes for tensor in operation.saves)
    first = operation.saves[0]
    return replace(
        operation,
        saves=(
            replace(first, name="offloaded", size_bytes=leaving, checkpoint=False),
            replace(first, name="resident", size_bytes=total - leaving, checkpoint=True),
        ),
        scratch_backward_bytes=operation.scratch_backward_bytes + ahead,
        recompute_module=PREFIX + _module(operation),
    )
