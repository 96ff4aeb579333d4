"""Live bytes of tensors that torch makes under a dispatch mode, without a device."""

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class LiveBytes(TorchDispatchMode):  # type: ignore[misc]
    """Counts the storages that appear while it is on, but for those of the tensors that are `there` before."""

    def __init__(self, there: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._known = {_key(tensor) for tensor in there}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        """Run an operator and look at what it returns."""
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, list | tuple) else (out,):
            if isinstance(tensor, torch.Tensor) and _key(tensor) not in self._known:
                self._appears(tensor)
        return out

    def _appears(self, tensor: torch.Tensor) -> None:
        key, storage = _key(tensor), tensor.untyped_storage()
        size = storage.nbytes()
        self._known.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)

        def gone() -> None:
            self.live -= size
            self._known.discard(key)

        weakref.finalize(storage, gone)


def _key(tensor: torch.Tensor) -> int:
    """What two tensors of one storage have in common."""
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001 - torch has no public name for it
