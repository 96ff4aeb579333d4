"""What of a layer lies in CUDA graphs."""

from typing import Any

import pytest

from projector.job import MixtureOfExperts
from projector.layers.capture import Captured, captured
from tests.costs.test_host import DENSE, GQA, operations

EXPERTS = MixtureOfExperts(experts=64, top_k=8, expert_ffn=2048, shared_ffn=2048)
SCOPES = {
    "nothing": (EXPERTS, (), set()),
    "attention": (EXPERTS, ("attn",), {"self_attention.linear_qkv", "self_attention.residual"}),
    "dense block": (DENSE, ("mlp",), {"mlp.linear_fc1", "mlp.residual", "pre_mlp_layernorm"}),
    "dense block named where experts are": (EXPERTS, ("mlp",), set()),
    "router": (EXPERTS, ("moe_router",), {"pre_mlp_layernorm", "mlp.router", "mlp.shared_expert.linear_fc1"}),
    "experts": (EXPERTS, ("moe",), {"mlp.router", "mlp.dispatch", "mlp.experts.linear_fc1", "mlp.residual"}),
}
TELLING = {
    "input_layernorm", "self_attention.linear_qkv", "self_attention.residual", "pre_mlp_layernorm", "mlp.linear_fc1",
    "mlp.router", "mlp.shared_expert.linear_fc1", "mlp.dispatch", "mlp.experts.linear_fc1", "mlp.residual",
}  # fmt: skip


@pytest.mark.parametrize(("block", "modules", "inside"), SCOPES.values(), ids=SCOPES)
def test_a_scope_holds(block: Any, modules: tuple[str, ...], inside: set[str]) -> None:  # noqa: ANN401 - a block
    """Megatron-LM transformer_layer.py `_te_cuda_graph_capture` (core 0.18)."""
    layer = operations(GQA, block)
    held = zip(layer, captured(layer, modules), strict=True)
    names = {operation.name for operation, how in held if how is Captured.ALL}
    assert inside <= names
    outside = TELLING & {operation.name for operation in layer} - names
    expected = {"attn": {"pre_mlp_layernorm", "mlp.residual"}, "moe_router": {"mlp.dispatch", "mlp.residual"}}
    for module in modules:
        assert expected.get(module, set()) <= outside


def test_the_dispatchers_preparation_is_captured_without_its_exchange() -> None:
    layer = operations(GQA, EXPERTS)
    held = dict(zip((each.name for each in layer), captured(layer, ("moe_router", "moe_preprocess")), strict=True))
    assert held["mlp.dispatch"] is Captured.PREPARATION
    assert held["mlp.combine"] is Captured.NOTHING
