"""What of a layer lies in CUDA (HIP) graphs, by the modules that Megatron-LM names.

Source: megatron/core/transformer/transformer_layer.py `_te_cuda_graph_capture` and transformer_config.py
`cuda_graph_modules` (core 0.18): `attn` is `_forward_attention`, `mlp` and `moe` are `_forward_mlp` of dense layers and
of those with experts, `moe_router` the latter up to the router and through the shared expert, `moe_preprocess` what the
dispatcher does before tokens travel.
"""

from collections.abc import Sequence
from enum import Enum, auto

from projector.operations import Operation

_ATTENTION = ("input_layernorm", "self_attention.", "post_attention_layernorm")
_ROUTER = ("pre_mlp_layernorm", "mlp.router", "mlp.shared_expert.")
_FEED_FORWARD = (*_ROUTER, "mlp.", "post_mlp_layernorm")
_DISPATCH = "mlp.dispatch"


class Captured(Enum):
    """How much of an operation a graph holds."""

    NOTHING = auto()
    PREPARATION = auto()
    """What is no communication and no readback: the dispatcher's work before tokens travel."""
    ALL = auto()


def captured(operations: Sequence[Operation], modules: Sequence[str]) -> tuple[Captured, ...]:
    """How much of each operation of a layer is captured where these modules are."""
    sparse = any(operation.name == "mlp.router" for operation in operations)
    beginnings: list[str] = []
    if "attn" in modules:
        beginnings += _ATTENTION
    if ("moe" if sparse else "mlp") in modules:
        beginnings += _FEED_FORWARD
    elif sparse and "moe_router" in modules:
        beginnings += _ROUTER
    prepares = "moe_preprocess" in modules
    return tuple(_of(operation, tuple(beginnings), prepares=prepares) for operation in operations)


def _of(operation: Operation, beginnings: tuple[str, ...], *, prepares: bool) -> Captured:
    if operation.name.startswith(beginnings):
        return Captured.ALL
    return Captured.PREPARATION if prepares and operation.name == _DISPATCH else Captured.NOTHING
