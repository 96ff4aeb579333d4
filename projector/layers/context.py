"""What attention under context parallelism holds while it runs, beyond one device's own queries, keys and values.

Keys and values of other ranks are never kept for backward: they travel again. Nor is anything counted here for an
exchange of heads (`a2a`), whose tensors are as large as those of one device alone.
"""

from dataclasses import dataclass

from projector.job import Dialect
from projector.layers.shapes import Shapes

FP32_OVER_BF16 = 2
"""Bytes of an fp32 tensor over those of its 16-bit original."""
MERGED_TENSORS = 4
"""fp32 tensors as large as the output while torch merges a block into it: the output, the block, their difference, and
its product with a weight (torch 2.15, torch/distributed/tensor/experimental/_context_parallel/_attention.py
`_SDPAMerger`)."""
TORCH_RING_BUFFERS = 2
"""Keys and values that torch's ring holds beside a device's own: those in use and those that arrive (the same,
`_AllToAllRotater`)."""
RING_BUFFERS = 2
"""Buffers of Transformer Engine's backward ring, each with keys and values and their gradients."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Passing:
    """Bytes of tensors that live while attention runs, one by one."""

    forward: tuple[int, ...] = ()
    """In the forward pass, beside its inputs and its output."""
    backward: tuple[int, ...] = ()
    """In the backward pass, beside what was kept, the output's gradient and those of queries, keys and values."""


def passing(*, query: int, key: int, value: int, output: int, shapes: Shapes) -> Passing:
    """For a device's own queries, keys, values and output, in bytes, on the rank that holds most."""
    degree, software = shapes.context, shapes.software
    if degree == 1 or not software.flash_attention or shapes.context_communication.startswith("a2a"):
        return Passing()
    gathers = shapes.context_communication == "all_gather"
    both = key + value
    if software.dialect is Dialect.TORCHTITAN:
        return _torch(query=query, both=both, output=output, degree=degree, gathers=gathers)
    if gathers:
        return _gathered(query=query, key=key, value=value, degree=degree)
    return _ring(query=query, both=both, output=output, degree=degree)


def keeps_own_output(shapes: Shapes) -> bool:
    """Whether the kernel's output is kept beside the one that the projection reads.

    An exchange of heads changes it; Transformer Engine's all-gather copies both halves of it into one tensor.
    """
    if shapes.context == 1:
        return False
    gathers = shapes.context_communication == "all_gather" and shapes.transformer_engine
    return gathers or shapes.context_communication.startswith("a2a")


def _ring(*, query: int, both: int, output: int, degree: int) -> Passing:
    """Transformer Engine's ring: all buffers and the outputs of all steps stay until these are put together.

    The last rank computes whole outputs in every step, others halves (TransformerEngine 015d2257, pytorch/attention/
    dot_product_attention/context_parallel.py `AttnFuncWithCPAndKVP2P`). One buffer more is kept for backward in place
    of the keys and values that came in.
    """
    return Passing(
        forward=(*[both] * degree, *[output] * degree),
        backward=(*[2 * both] * RING_BUFFERS, query),
    )


def _gathered(*, query: int, key: int, value: int, degree: int) -> Passing:
    """Transformer Engine's all-gather: keys and values of all ranks as they arrive and in the order of the sequence.

    Backward gathers again, and both halves of the queries have gradients of all keys and values they see (the same,
    `AttnFuncWithCPAndKVAllGather`): together half a rank's more than the whole sequence.
    """
    keys, values = degree * key, degree * value
    seen = (key + value) * (2 * degree + 1) // 2
    return Passing(forward=(keys, values, values), backward=(keys, values, keys, values, seen, query))


def _torch(*, query: int, both: int, output: int, degree: int, gathers: bool) -> Passing:
    """Ring attention of torch, which gathers keys and values or passes them on, and accumulates in fp32.

    Backward is highest where a step's gradient is added to half of the fp32 one, of keys and values or of queries,
    which makes another tensor of it (`_templated_ring_attention_backward`, `_partial_update`).
    """
    wide = FP32_OVER_BF16
    arrived = (both * degree,) if gathers else (both,) * min(TORCH_RING_BUFFERS, degree - 1)
    gradients = (wide * query, *[wide * both] * 3)
    updates = (wide * both, both // 2), (query, query // 2, both)
    return Passing(
        forward=(*arrived, *[wide * output] * MERGED_TENSORS),
        backward=(*arrived, *gradients, *max(updates, key=sum)),
    )
