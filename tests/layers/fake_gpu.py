"""Layers of others, run by torch on a GPU that is not there: what autograd keeps of them, to the byte.

Tensors without content (`FakeTensorMode`) say that they lie on a CUDA device, so that torch takes its paths for one:
dropout with boolean masks, fused norms with fp32 statistics. One thing must be told: which kernel runs attention, since
the choice lies in code that only a CUDA build of torch has.
"""

import contextlib
import gc
import weakref
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.layers.saved import Tensor, place

FLASH_RANDOM_BYTES, EFFICIENT_RANDOM_BYTES = 16 + 8, 8 + 8
"""State of the random generator that torch's kernels keep of a call, whether they drop anything or not; no GPU's
allocator gives less than 512 B for it, and the engine leaves it out."""


def cuda_attention(  # noqa: PLR0917 - torch's own signature
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002 - torch's own signature
    scale: float | None = None,
    enable_gqa: bool = False,  # noqa: FBT001, FBT002, ARG001 - torch's own signature
) -> Tensor:
    """The kernel that scaled_dot_product_attention runs on a GPU (aten/native/transformers/cuda/sdp_utils.cpp).

    Flash attention takes no mask and no values of another width than keys; the memory-efficient kernel takes both, the
    mask as numbers of the queries' type.
    """
    if attn_mask is None and query.shape[-1] == value.shape[-1]:
        flash = torch.ops.aten._scaled_dot_product_flash_attention  # noqa: SLF001 - its name
        return flash(query, key, value, dropout_p, is_causal, scale=scale)[0]
    if attn_mask is not None:
        if attn_mask.dtype is torch.bool:
            zero, outside = (torch.full((), each, dtype=query.dtype) for each in (0.0, -torch.inf))
            attn_mask = torch.where(attn_mask, zero, outside)
        attn_mask = attn_mask.expand(*query.shape[:3], key.shape[2])
    efficient = torch.ops.aten._scaled_dot_product_efficient_attention  # noqa: SLF001 - its name
    return efficient(query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale)[0]


_MODE = FakeTensorMode(allow_non_fake_inputs=True)
"""One for all: a tensor of another mode would be converted, into another storage."""


@contextlib.contextmanager
def fake_gpu() -> Iterator[None]:
    """Everything inside happens on a GPU of NVIDIA's Hopper generation, without content."""
    with (
        mock.patch.object(functional, "scaled_dot_product_attention", cuda_attention),
        mock.patch.object(torch.cuda, "get_device_capability", return_value=(9, 0)),
        _MODE,
        torch.device("cuda"),
    ):
        yield


class Alive(TorchDispatchMode):  # type: ignore[misc]
    """Storages that come to life inside, and how many of their bytes are alive, whoever holds them.

    Checkpointing keeps what it restarts from in closures, of which autograd's hooks know nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self._storages: dict[int, tuple[weakref.ref[Any], int]] = {}
        self.size_bytes = self.peak_bytes = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - torch's own
        inputs = {place(each) for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)}
        result = operation(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and place(tensor) not in inputs:
                self._add(tensor.untyped_storage())
        return result

    def _add(self, storage: Any) -> None:  # noqa: ANN401 - torch's own
        key, size = storage._cdata, storage.nbytes()  # noqa: SLF001 - the public address is that of content
        if key in self._storages:
            return
        self._storages[key] = weakref.ref(storage, lambda _: self._drop(key)), size
        self.size_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.size_bytes)

    def _drop(self, key: int) -> None:
        self.size_bytes -= self._storages.pop(key)[1]

    def settled(self) -> int:
        """Bytes that are alive once Python has given up what nobody holds."""
        gc.collect()
        return self.size_bytes
