"""What autograd saves of layers that torch runs."""

from collections.abc import Iterable
from typing import Any, Self, TypeAlias

import torch

Tensor: TypeAlias = Any
"""torch is not followed by the type checker."""


def place(tensor: Tensor) -> int:
    """Identity of a tensor's storage; without content it has no address."""
    identity: int = tensor.untyped_storage()._cdata  # noqa: SLF001 - the public address is that of content
    return identity


class Saved:
    """Distinct storages that autograd saves of what runs inside, those of `others` not counted."""

    def __init__(self, others: Iterable[Tensor]) -> None:
        self._others = {place(tensor) for tensor in others}
        self._kept: dict[int, Tensor] = {}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor)

    def _pack(self, tensor: Tensor) -> Tensor:
        if place(tensor) not in self._others:
            # Held, so that no other tensor takes its place.
            self._kept[place(tensor)] = tensor
        return tensor

    def __enter__(self) -> Self:
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.__exit__(*error)

    @property
    def size_bytes(self) -> int:
        """Bytes of the storages, each counted once."""
        return sum(tensor.untyped_storage().nbytes() for tensor in self._kept.values())
