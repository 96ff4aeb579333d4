"""Decoder layers of Hugging Face transformers on a fake GPU, and the jobs that train them, as the reader sees them."""

import contextlib
import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest import mock

import torch
import transformers
from torch.utils._pytree import tree_leaves

from projector.job import TrainingJob
from tests.config.huggingface.builders import load
from tests.layers.fake_gpu import EFFICIENT_RANDOM_BYTES, FLASH_RANDOM_BYTES, Alive, fake_gpu
from tests.layers.saved import Saved, Tensor

BATCH, SEQUENCE = 2, 4096
FSDP = {"distributed_type": "FSDP", "mixed_precision": "bf16", "fsdp_config": {}}
MODEL: dict[str, Any] = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "num_hidden_layers": 2,
    "pad_token_id": 0,
}
"""Sizes of Llama 3 8B, but for its vocabulary and depth."""


def configuration(name: str, sizes: Mapping[str, Any]) -> Any:  # noqa: ANN401 - an instance of a configuration class
    return transformers.CONFIG_MAPPING[name](**sizes)


def job_of(described: Any, implementation: str) -> TrainingJob:  # noqa: ANN401 - such an instance
    """The job of a run under FSDP, read from the text of its config.json."""
    values = {key: value for key, value in described.to_dict().items() if not key.startswith("rope")}
    text = json.dumps({**values, "attn_implementation": implementation})
    loaded = load(
        text,
        f"seq_length={SEQUENCE}",
        f"micro_batch_size={BATCH}",
        "gradient_checkpointing=false",
        beside={"a.json": FSDP},
    )
    return loaded.job


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """A layer with the arguments that its model calls it with."""

    module: Any
    arguments: tuple[Tensor, ...]
    others: Mapping[str, Any]
    window: int | None
    """Keys that it sees; None for all."""
    narrow_values: bool
    """Heads of values are narrower than those of keys."""

    @property
    def _windowed(self) -> bool:
        return self.window is not None and self.window <= SEQUENCE

    def random_bytes(self, implementation: str) -> int:
        """What its attention kernel keeps of the random generator."""
        if implementation == "eager":
            return 0
        return EFFICIENT_RANDOM_BYTES if self._windowed or self.narrow_values else FLASH_RANDOM_BYTES

    def saved_bytes(self, implementation: str) -> int:
        """What autograd saves of it, the tables that all layers share and the weights not counted."""
        others = dict(self.others)
        with fake_gpu():
            # The models' own masks differ where values are read, which fake tensors have none of.
            shape = (BATCH, 1, SEQUENCE, SEQUENCE)
            others["attention_mask"] = None
            if implementation == "eager":
                others["attention_mask"] = torch.zeros(shape, dtype=torch.bfloat16)
            elif self._windowed:
                others["attention_mask"] = torch.ones(shape, dtype=torch.bool)
            shared = [each for each in tree_leaves(others) if isinstance(each, torch.Tensor) and each.ndim < 4]
            with _implemented(self.module, implementation), Saved((*self.module.parameters(), *shared)) as saved:
                self.module(*self.arguments, **others)
        return saved.size_bytes


class _Reached(Exception):  # noqa: N818 - no error
    """The layer's turn has come."""


@contextlib.contextmanager
def _implemented(module: Any, implementation: str) -> Iterator[None]:  # noqa: ANN401 - torch's own
    for part in module.modules():
        if hasattr(part, "config"):
            part.config._attn_implementation = implementation  # noqa: SLF001 - what the classes read
    yield


@cache
def layer_of(name: str, index: int, sizes: tuple[tuple[str, Any], ...]) -> Layer:
    """The layer of a model at an index, as training calls it."""
    described = configuration(name, dict(sizes))
    with fake_gpu(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = _network(described)
        module = _layers(network)[index]
        called = _call(network, module)
    hidden = called[0][0] if called[0] else called[1]["hidden_states"]
    x = hidden.detach().requires_grad_()
    others = {key: value for key, value in called[1].items() if key not in {"hidden_states", "attention_mask"}}
    kinds = getattr(described, "layer_types", None)
    window = getattr(described, "sliding_window", None)
    windowed = kinds[index] == "sliding_attention" if kinds else name in {"mistral", "ministral", "starcoder2"}
    narrow = getattr(described, "v_head_dim", 0) < getattr(described, "qk_head_dim", 0)
    return Layer(
        module=module, arguments=(x,), others=others, window=window if windowed else None, narrow_values=narrow
    )


def _network(described: Any, implementation: str = "eager") -> Any:  # noqa: ANN401 - torch's own
    make = transformers.AutoModelForCausalLM.from_config
    return make(described, attn_implementation=implementation, dtype=torch.bfloat16).train()


def _layers(network: Any) -> Any:  # noqa: ANN401 - torch's own
    body = getattr(network.base_model, "decoder", network.base_model)
    return body.layers if hasattr(body, "layers") else body.h


def _call(network: Any, module: Any) -> tuple[tuple[Tensor, ...], dict[str, Any]]:  # noqa: ANN401 - torch's own
    """The arguments that the model gives the layer."""
    found: list[tuple[tuple[Tensor, ...], dict[str, Any]]] = []

    def reached(_: object, arguments: tuple[Tensor, ...], others: dict[str, Any]) -> None:
        found.append((arguments, others))
        raise _Reached

    handle = module.register_forward_pre_hook(reached, with_kwargs=True)
    with contextlib.suppress(_Reached):
        network(torch.zeros(BATCH, SEQUENCE, dtype=torch.long), use_cache=False)
    handle.remove()
    return found[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """What stays of a model between forward and backward."""

    saved_bytes: int
    alive_bytes: int


@cache
def kept_of_model(name: str, sizes: tuple[tuple[str, Any], ...], *, checkpointing: bool) -> Kept:
    """A whole model with its loss, its token ids and weights not counted."""
    described = configuration(name, dict(sizes))
    with fake_gpu(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = _network(described, "sdpa")
        if checkpointing:
            network.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
        ids = torch.zeros(BATCH, SEQUENCE, dtype=torch.long)
        alive = Alive()
        # Whether there is anything to mask is read from values, which fake tensors have none of.
        unmasked = mock.patch(f"{type(network).__module__}.create_causal_mask", return_value=None)
        with unmasked, alive, Saved((*network.parameters(), ids)) as saved:
            result = network(ids, labels=ids, use_cache=False)
            root = result.loss.grad_fn
            del result
        assert root is not None
        return Kept(saved_bytes=saved.size_bytes, alive_bytes=alive.settled())
