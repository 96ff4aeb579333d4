"""What TorchTitan's own layers keep for backward is what the engine says, to the byte.

Its package brings a data pipeline along, and is therefore no requirement of the tests: `pip install torchtitan==0.2.2`
next to them runs these too.
"""

import contextlib
import importlib
from typing import Any
from unittest import mock

import pytest
import torch

from projector.layers import layer_operations
from projector.parallelism import resolve
from tests.cases.torchtitan import titan
from tests.layers.builders import target
from tests.layers.fake_gpu import EFFICIENT_RANDOM_BYTES, FLASH_RANDOM_BYTES, fake_gpu
from tests.layers.saved import Saved

pytestmark = pytest.mark.filterwarnings("ignore")
BATCH, SEQUENCE = 2, 4096
ROTATIONS = 2 * 2 * SEQUENCE * 128
"""Qwen 3's tables of cosines and sines are rounded to bf16 in every layer; the engine counts complex numbers, once."""
BLOCKS: dict[str, tuple[str, str, str, str, int]] = {
    "llama3-8b": ("llama3", "llama3_args", "8B", "precompute_freqs_cis", FLASH_RANDOM_BYTES),
    "qwen3-8b": ("qwen3", "qwen3_args", "8B", "precompute_rope_cache", FLASH_RANDOM_BYTES + ROTATIONS),
    "deepseek-v2-lite": ("deepseek_v3", "deepseekv3_args", "16B", "precompute_freqs_cis", EFFICIENT_RANDOM_BYTES),
}
"""By model of the catalog: TorchTitan's package, flavor, function of rotations, and what the engine leaves out."""


def saved_by_torch(package: str, flavors: str, flavor: str, rotations: str) -> int:
    pytest.importorskip("torchtitan", reason="torchtitan is not installed")
    pytest.importorskip("torchdata", reason="what torchtitan needs is not installed")
    arguments: Any = getattr(importlib.import_module(f"torchtitan.models.{package}"), flavors)[flavor]
    module = importlib.import_module(f"torchtitan.models.{package}.model.model")
    attention = importlib.import_module("torchtitan.models.attention")
    any_kernel = mock.patch.object(attention, "sdpa_kernel", return_value=contextlib.nullcontext())
    arguments.max_seq_len, arguments.use_flex_attn, arguments.attn_type = SEQUENCE, False, "sdpa"
    with fake_gpu(), any_kernel:
        torch.set_default_dtype(torch.bfloat16)
        try:
            block = module.TransformerBlock(0, arguments)
        finally:
            torch.set_default_dtype(torch.float32)
        table = getattr(module, rotations)(*_table_arguments(package, arguments))
        x = torch.randn(BATCH, SEQUENCE, arguments.dim, dtype=torch.bfloat16).requires_grad_()
        with Saved((*block.parameters(), table)) as saved:
            block(x, table, None)
    return saved.size_bytes


def _table_arguments(package: str, arguments: Any) -> tuple[Any, ...]:  # noqa: ANN401 - theirs
    match package:
        case "llama3":
            return arguments.dim // arguments.n_heads, SEQUENCE, arguments.rope_theta
        case "qwen3":
            return arguments.head_dim, SEQUENCE, arguments.rope_theta
        case _:
            return (arguments,)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_dense_block_keeps_what_torch_saves(name: str) -> None:
    *theirs, left_out = BLOCKS[name]
    job = titan(name, micro=BATCH, sequence=SEQUENCE, devices=8)
    operations = layer_operations(job.model.layers[0], job, resolve(job, target()))
    ours = sum(tensor.size_bytes for operation in operations for tensor in operation.saves)
    assert ours + left_out == saved_by_torch(*theirs)
