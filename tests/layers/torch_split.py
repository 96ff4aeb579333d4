"""A small decoder layer whose backward pass torch runs in two halves: what really waits between them."""

import gc
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from tests.layers.torch_block import HIDDEN, SCALARS_BYTES, TOKENS, Block, Tensor, inputs

RESIDUAL_BYTES = 2 * TOKENS * HIDDEN
"""Input of a layer, its output, and their gradients."""


class Live(TorchDispatchMode):  # type: ignore[misc]
    """Storages that operations inside made and that are still there; those of `known` tensors do not count."""

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__()
        self._known = {each.untyped_storage()._cdata for each in known}  # noqa: SLF001 - its identity
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - torch's own
        result = operation(*args, **(kwargs or {}))
        for each in tree_leaves(result):
            if isinstance(each, torch.Tensor):
                storage = each.untyped_storage()
                place = storage._cdata  # noqa: SLF001 - its identity
                if place not in self._known and place not in self._sizes:
                    self._sizes[place] = storage.nbytes()
                    weakref.finalize(storage, self._sizes.pop, place, None)
        return result

    @property
    def size_bytes(self) -> int:
        gc.collect()
        return sum(self._sizes.values())


def kept_by_graph(*, checkpoints: bool) -> tuple[int, int]:
    """Bytes that a layer keeps behind its forward pass, and between the halves of PyTorch's split backward pass."""
    block = Block(norms=False, repeats=False).bfloat16()
    weights = list(block.parameters())
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    x, table = inputs()
    with Live([x, table, *weights, *(weight.grad for weight in weights)]) as live:
        result = checkpoint(block, x, table, use_reentrant=False) if checkpoints else block(x, table)
        # The next layer holds the output, and its input is this layer's.
        forward = live.size_bytes - RESIDUAL_BYTES
        gradient = torch.ones_like(result)
        sent, groups = stage_backward_input([result], [gradient], [x], iter(weights))
        del result, gradient
        between = live.size_bytes - sent[0].untyped_storage().nbytes()
        stage_backward_weight(iter(weights), groups)
        del sent, groups
        x.grad = None
        assert live.size_bytes <= SCALARS_BYTES, "something else than the split keeps tensors"
    return forward, between


class Delayed(torch.autograd.Function):  # type: ignore[misc]
    """A linear layer that puts aside what its weight gradient needs, as Megatron-LM's weight-gradient stores do."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, store: list[Tensor]) -> Tensor:  # noqa: ANN401 - torch's own
        ctx.save_for_backward(x, weight)
        ctx.store = store
        return x @ weight.t()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 - torch's own
        x, weight = ctx.saved_tensors
        ctx.store += [x, gradients[0]]
        return gradients[0] @ weight, None, None


def _linears(module: torch.nn.Module, store: list[Tensor]) -> Iterator[None]:
    for each in module.modules():
        if isinstance(each, torch.nn.Linear):
            each.forward = lambda x, each=each: Delayed.apply(x, each.weight, store)
            yield


def put_aside(*, checkpoints: bool) -> int:
    """Bytes that a layer's linear layers have put aside when the input gradient is there."""
    store: list[Tensor] = []
    block = Block(norms=False, repeats=False).bfloat16()
    assert len(list(_linears(block, store))) == 7
    x, table = inputs()
    result = checkpoint(block, x, table, use_reentrant=True) if checkpoints else block(x, table)
    result.backward(torch.randn_like(result))
    storages = {each.untyped_storage()._cdata: each.untyped_storage().nbytes() for each in store}  # noqa: SLF001 - identity
    return sum(storages.values())
