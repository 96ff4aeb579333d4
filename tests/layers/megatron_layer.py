"""Layers of megatron-core on a fake GPU of a fake group: one process is rank 0 of many, and collectives do nothing.

Its own layers, which need neither Transformer Engine nor Apex; what its random states and compiled functions need of a
driver is left out, since both keep no tensor.
"""

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from megatron.core import parallel_state
from megatron.core.models.common.embeddings.rotary_pos_embedding import RotaryEmbedding
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.tensor_parallel import random
from megatron.core.tensor_parallel.cross_entropy import vocab_parallel_cross_entropy
from megatron.core.transformer.spec_utils import build_module
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import distributed
from torch.testing._internal.distributed.fake_pg import FakeStore

from tests.layers.fake_gpu import fake_gpu
from tests.layers.saved import Saved, Tensor

BATCH, SEQUENCE = 2, 4096
LLAMA: dict[str, Any] = {
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_query_groups": 8,
    "ffn_hidden_size": 14336,
    "gated_linear_unit": True,
    "activation_func": torch.nn.functional.silu,
    "normalization": "RMSNorm",
    "add_bias_linear": False,
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
}
"""Llama 3 8B."""
GPT: dict[str, Any] = {
    "hidden_size": 12288,
    "num_attention_heads": 96,
    "ffn_hidden_size": 4 * 12288,
    "activation_func": torch.nn.functional.gelu,
    "attention_dropout": 0.1,
    "hidden_dropout": 0.1,
}
"""GPT-3 175B."""
MEASURES = {"num_layers": 2, "bf16": True, "params_dtype": torch.bfloat16, "perform_initialization": False}
FUSIONS: dict[str, Any] = {
    "bias_activation_fusion": True,
    "bias_dropout_fusion": True,
    "gradient_accumulation_fusion": False,
    # Megatron-LM's kernel, which only its CUDA build has, keeps softmax's result in the scores' own format.
    "masked_softmax_fusion": False,
    "attention_softmax_in_fp32": False,
}


class _NoStates:
    """A tracker of random states that has none."""

    def fork(self, *_: object) -> contextlib.nullcontext[None]:
        return contextlib.nullcontext()

    def is_initialized(self) -> bool:
        return True


@contextlib.contextmanager
def _rank_zero(tensor: int) -> Iterator[None]:
    """The first of `tensor` ranks of a fake group."""
    distributed.init_process_group("fake", rank=0, world_size=tensor, store=FakeStore())
    with contextlib.ExitStack() as stack:
        stack.callback(distributed.destroy_process_group)
        stack.enter_context(fake_gpu())
        # Its own defaults and calls are deprecated in part.
        stack.enter_context(warnings.catch_warnings(action="ignore"))
        stack.enter_context(mock.patch.object(torch.cuda, "current_device", return_value=0))
        stack.enter_context(mock.patch.object(random, "_get_all_rng_states", return_value=(None, None, None)))
        for module in [each for name, each in sys.modules.items() if name.startswith("megatron.core")]:
            if hasattr(module, "get_cuda_rng_tracker"):
                stack.enter_context(mock.patch.object(module, "get_cuda_rng_tracker", return_value=_NoStates()))
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=tensor, create_gloo_process_groups=False)
        stack.callback(parallel_state.destroy_model_parallel)
        with torch.compiler.set_stance("force_eager"):
            yield


def _config(values: dict[str, Any], tensor: int) -> tuple[TransformerConfig, Any]:
    config = TransformerConfig(**MEASURES, **FUSIONS, **values, tensor_model_parallel_size=tensor)
    return config, get_gpt_layer_local_spec(qk_layernorm=config.qk_layernorm, normalization=config.normalization)


def _saved(config: TransformerConfig, make: Callable[[], Any], *, rotary: bool, **arguments: object) -> int:
    """Bytes that autograd saves of a module, its weights and the table that all layers share not counted."""
    torch.set_default_dtype(torch.bfloat16)
    try:
        module = make().train()
    finally:
        torch.set_default_dtype(torch.float32)
    rows = SEQUENCE // (config.tensor_model_parallel_size if config.sequence_parallel else 1)
    x = torch.randn(rows, BATCH, config.hidden_size, dtype=torch.bfloat16).requires_grad_()
    shared: list[Tensor] = list(module.parameters())
    if rotary:
        arguments["rotary_pos_emb"] = RotaryEmbedding(config.kv_channels, rotary_percent=1.0)(SEQUENCE)
        shared.append(arguments["rotary_pos_emb"])
    if "attention_mask" in arguments:
        arguments["attention_mask"] = torch.ones(1, 1, SEQUENCE, SEQUENCE, dtype=torch.bool)
        shared.append(arguments["attention_mask"])
    with Saved(shared) as saved:
        module(x, **arguments)
    return saved.size_bytes


def layer_bytes(values: dict[str, Any], *, tensor: int = 1, rotary: bool) -> int:
    """Of a whole layer."""
    with _rank_zero(tensor):
        config, spec = _config(values, tensor)
        return _saved(
            config, lambda: build_module(spec, config=config, layer_number=1), rotary=rotary, attention_mask=None
        )


def block_bytes(values: dict[str, Any], *, tensor: int, rotary: bool) -> tuple[int, int]:
    """Of attention and of the feed-forward block without the norms in front and the additions behind."""
    with _rank_zero(tensor):
        config, spec = _config(values, tensor)
        attention, dense = spec.submodules.self_attention, spec.submodules.mlp
        return (
            _saved(
                config,
                lambda: build_module(attention, config=config, layer_number=1),
                rotary=rotary,
                attention_mask=None,
            ),
            _saved(config, lambda: build_module(dense, config=config), rotary=False),
        )


def loss_bytes(vocabulary: int, *, tensor: int) -> int:
    """Of the vocabulary-parallel cross entropy of bf16 logits."""
    with _rank_zero(tensor):
        logits = torch.randn(SEQUENCE, BATCH, vocabulary // tensor, dtype=torch.bfloat16).requires_grad_()
        labels = torch.zeros(SEQUENCE, BATCH, dtype=torch.long)
        with Saved((logits, labels)) as saved:
            vocab_parallel_cross_entropy(logits.float(), labels)
        return saved.size_bytes
