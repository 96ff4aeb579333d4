"""A small decoder layer of TorchTitan's form, run by torch eagerly and compiled: what autograd really keeps of it.

The forms are those of torchtitan/models/llama3/model/model.py; the norm is the class that transformers runs.
"""

from typing import Any, TypeAlias

import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from tests.layers.saved import Saved

BATCH, SEQUENCE, HIDDEN, HEADS, GROUPS, WIDTH, FFN, VOCABULARY = 2, 64, 64, 4, 2, 16, 112, 500
TOKENS = BATCH * SEQUENCE
ROTARY_TABLE_BYTES = SEQUENCE * WIDTH // 2 * 8
"""Complex numbers that all layers share."""
SCALARS_BYTES = 64
"""Single numbers that torch keeps beside tensors."""
Tensor: TypeAlias = Any
"""torch is not followed by the type checker."""


class Attention(torch.nn.Module):  # type: ignore[misc]
    """Grouped-query attention with rotary embedding in complex numbers."""

    def __init__(self, *, norms: bool, repeats: bool) -> None:
        super().__init__()
        self.query, self.key, self.value = (
            torch.nn.Linear(HIDDEN, heads * WIDTH, bias=False) for heads in (HEADS, GROUPS, GROUPS)
        )
        self.out = torch.nn.Linear(HEADS * WIDTH, HIDDEN, bias=False)
        self.norms = torch.nn.ModuleList(LlamaRMSNorm(WIDTH) if norms else torch.nn.Identity() for _ in range(2))
        self.repeats = repeats

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        split = (BATCH, SEQUENCE, -1, WIDTH)
        query, key = self.norms[0](self.query(x).view(split)), self.norms[1](self.key(x).view(split))
        query, key, value = _rotated(query, table), _rotated(key, table), self.value(x).view(split)
        if self.repeats:
            key, value = _repeated(key), _repeated(value)
        query, key, value = (each.transpose(1, 2) for each in (query, key, value))
        result = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=not self.repeats)
        return self.out(result.transpose(1, 2).contiguous().view(BATCH, SEQUENCE, -1))


def _rotated(x: Tensor, table: Tensor) -> Tensor:
    numbers = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(numbers * table.view(1, SEQUENCE, 1, -1)).flatten(3).type_as(x)


def _repeated(x: Tensor) -> Tensor:
    copies = HEADS // GROUPS
    return x[:, :, :, None].expand(BATCH, SEQUENCE, GROUPS, copies, WIDTH).reshape(BATCH, SEQUENCE, HEADS, WIDTH)


class Block(torch.nn.Module):  # type: ignore[misc]
    """Attention and a SwiGLU block, each behind its norm."""

    def __init__(self, *, norms: bool, repeats: bool) -> None:
        super().__init__()
        self.attention = Attention(norms=norms, repeats=repeats)
        self.attention_norm, self.ffn_norm = LlamaRMSNorm(HIDDEN), LlamaRMSNorm(HIDDEN)
        self.gate, self.up = (torch.nn.Linear(HIDDEN, FFN, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), table)
        y = self.ffn_norm(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class ByOperation(torch.nn.Module):  # type: ignore[misc]
    """Checkpointing by operation: attention and every second product stay."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        return checkpoint(self.block, x, table, use_reentrant=False, preserve_rng_state=False, context_fn=_contexts)


def _contexts() -> Any:  # noqa: ANN401 - torch's own
    counts = {True: 0, False: 0}

    def policy(context: Any, operation: Any, *_: object, **__: object) -> CheckpointPolicy:  # noqa: ANN401 - torch's own
        keeps = operation == torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default  # noqa: SLF001 - its name
        if operation == torch.ops.aten.mm.default:
            counts[context.is_recompute] += 1
            keeps = counts[context.is_recompute] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def compiled(function: Any) -> Any:  # noqa: ANN401 - a module or a function
    """Compiled by torch's partitioner of forward and backward, which decides what is kept, without making kernels."""
    torch._dynamo.reset()  # noqa: SLF001 - the public name keeps compiled code of other shapes
    return torch.compile(function, backend="aot_eager_decomp_partition", fullgraph=True)


class Moves(TorchDispatchMode):  # type: ignore[misc]
    """Bytes read and written by the element-wise operations that run inside: no products, no attention, no views."""

    size_bytes = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - torch's own
        result = operation(*args, **(kwargs or {}))
        outputs = [each for each in tree_leaves(result) if isinstance(each, torch.Tensor)]
        inputs = {
            each.untyped_storage().data_ptr(): each for each in tree_leaves(args) if isinstance(each, torch.Tensor)
        }
        view = any(each.untyped_storage().data_ptr() in inputs for each in outputs)
        if not view and not any(name in str(operation) for name in ("mm", "scaled_dot")):
            self.size_bytes += sum(each.numel() * each.element_size() for each in (*inputs.values(), *outputs))
        return result


def kept_by_torch(*, compiles: bool, norms: bool = False, repeats: bool = False, by_operation: bool = False) -> int:
    """Bytes that autograd keeps of the layer, without what all layers share."""
    block = Block(norms=norms, repeats=repeats).bfloat16()
    module = ByOperation(block) if by_operation else block
    x, table = inputs()
    with Saved(block.parameters()) as keeps:
        result = (compiled(module) if compiles else module)(x, table)
    result.sum().backward()
    return keeps.size_bytes - ROTARY_TABLE_BYTES


def inputs() -> tuple[Tensor, Tensor]:
    """The residual stream, and the table of rotations."""
    x = torch.randn(BATCH, SEQUENCE, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    return x, torch.polar(torch.ones(SEQUENCE, WIDTH // 2), torch.randn(SEQUENCE, WIDTH // 2))


def moved_by_torch() -> tuple[int, int]:
    """Bytes that element-wise work of an eager layer moves, forward and backward."""
    block = Block(norms=False, repeats=False).bfloat16()
    with Moves() as forward:
        result = block(*inputs())
    gradient = torch.randn_like(result)
    with Moves() as backward:
        result.backward(gradient)
    return forward.size_bytes, backward.size_bytes


def loss_kept_by_torch(*, compiles: bool) -> int:
    """Bytes that autograd keeps of the loss, without the labels and scalars."""

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))

    logits = torch.randn(BATCH, SEQUENCE, VOCABULARY, dtype=torch.bfloat16, requires_grad=True)
    labels = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE))
    with Saved((labels,)) as keeps:
        result = (compiled(loss) if compiles else loss)(logits, labels)
    result.backward()
    return keeps.size_bytes


def weighted_by_torch(*, compiles: bool) -> float:
    """Bytes that autograd keeps per element of experts' outputs for weighting them, in torchtitan/models/moe/moe.py.

    Outputs go in as what a product has made, which is not element-wise and therefore kept and not made again.
    """

    def weighted(rows: Tensor, weight: Tensor, scores: Tensor) -> Tensor:
        return ((rows @ weight).float() * scores).to(rows.dtype)

    rows, weight = (torch.randn(shape, dtype=torch.bfloat16) for shape in ((TOKENS, 8), (8, HIDDEN)))
    scores = torch.rand(TOKENS, 1)
    inputs = [each.requires_grad_() for each in (rows, weight, scores)]
    with Saved(inputs) as keeps:
        result = (compiled(weighted) if compiles else weighted)(*inputs)
    result.sum().backward()
    return keeps.size_bytes / (TOKENS * HIDDEN)
