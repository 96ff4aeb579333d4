"""A small decoder layer with frozen weights and adapters, run by torch: what autograd really keeps of it."""

from typing import Any

import torch

from projector.job import LowRankAdapters
from tests.layers.saved import Saved, Tensor

HIDDEN, HEADS, GROUPS, WIDTH, FFN, TOKENS = 64, 4, 2, 16, 96, 32


class SwiGLU(torch.autograd.Function):  # type: ignore[misc]
    """Keeps its input alone, as fused kernels do."""

    @staticmethod
    def forward(ctx: Any, packed: Tensor) -> Tensor:  # noqa: ANN401 - torch's own
        ctx.save_for_backward(packed)
        gate, up = packed.chunk(2, dim=-1)
        return torch.nn.functional.silu(gate) * up


class FlashAttention(torch.autograd.Function):  # type: ignore[misc]
    """Keeps queries, keys, values, its output and the log-sum-exp (arXiv 2307.08691)."""

    @staticmethod
    def forward(ctx: Any, packed: Tensor) -> Tensor:  # noqa: ANN401 - torch's own
        output = packed[:, : HEADS * WIDTH].clone()
        ctx.save_for_backward(packed, output, torch.zeros(TOKENS, HEADS))
        return output


class FrozenLinear:
    """A frozen linear layer with an adapter beside it, if it is a target."""

    def __init__(self, inputs: int, outputs: int, options: LowRankAdapters, *, target: bool) -> None:
        self.base = self._new(inputs, outputs).requires_grad_(False)
        self.adapter = (self._new(inputs, options.rank), self._new(options.rank, outputs)) if target else ()
        self.options = options

    @staticmethod
    def _new(inputs: int, outputs: int) -> Tensor:
        return torch.nn.Linear(inputs, outputs, bias=False, dtype=torch.bfloat16)

    @property
    def weights(self) -> list[Tensor]:
        return [linear.weight for linear in (self.base, *self.adapter)]

    def __call__(self, x: Tensor) -> Tensor:
        base = self.base(x)
        if not self.adapter:
            return base
        first, second = self.adapter
        if self.options.dropout_on_input:
            return base + 2.0 * second(first(self._dropout(x)))
        return base + 2.0 * self._dropout(second(first(x)))

    def _dropout(self, x: Tensor) -> Tensor:
        """The one that GPUs run: its mask is boolean, which that of a CPU's `nn.Dropout` is not."""
        return torch.native_dropout(x, self.options.dropout, True)[0] if self.options.dropout else x


def kept_by_torch(options: LowRankAdapters) -> int:
    """Bytes that autograd keeps of attention and feed-forward block, from what the norms in front hand over."""
    widths = {
        "linear_qkv": (HIDDEN, (HEADS + 2 * GROUPS) * WIDTH),
        "linear_proj": (HEADS * WIDTH, HIDDEN),
        "linear_fc1": (HIDDEN, 2 * FFN),
        "linear_fc2": (FFN, HIDDEN),
    }
    linears = {name: FrozenLinear(*sizes, options, target=name in options.targets) for name, sizes in widths.items()}
    attention, feed_forward = (
        torch.randn(TOKENS, HIDDEN, dtype=torch.bfloat16, requires_grad=True).clone() for _ in range(2)
    )
    with Saved(weight for linear in linears.values() for weight in linear.weights) as keeps:
        attended = linears["linear_proj"](FlashAttention.apply(linears["linear_qkv"](attention)))
        passed = linears["linear_fc2"](SwiGLU.apply(linears["linear_fc1"](feed_forward)))
    assert attended.requires_grad
    assert passed.requires_grad
    return keeps.size_bytes
