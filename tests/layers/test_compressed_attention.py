"""DeepSeek-V4's attention and hyper-connections have the parameters of the classes in transformers."""

from dataclasses import replace

import pytest
import torch
from transformers.models.deepseek_v4.configuration_deepseek_v4 import DeepseekV4Config
from transformers.models.deepseek_v4.modeling_deepseek_v4 import (
    DeepseekV4Attention,
    DeepseekV4HyperConnection,
    DeepseekV4HyperHead,
)

from projector.job import Attention, DecoderLayer, Software
from projector.layers import layer_operations, output_operations
from projector.operations import Operation, held_by
from projector.parallelism import resolve
from tests.layers.builders import DENSE, job, model, target

WINDOWED = Attention(
    heads=64,
    key_value_heads=1,
    head_dim=512,
    query_lora_rank=1024,
    shared_key_value=True,
    output_lora_rank=1024,
    output_groups=8,
    window=128,
    sinks=True,
)
COMPRESSED = replace(WINDOWED, compression_ratio=128)
CHOSEN = replace(WINDOWED, compression_ratio=4, index_heads=64, index_head_dim=128, index_top_k=512)
KINDS = {
    "sliding_attention": WINDOWED,
    "heavily_compressed_attention": COMPRESSED,
    "compressed_sparse_attention": CHOSEN,
}


def operations(mixer: Attention, software: Software | None = None) -> tuple[Operation, ...]:
    layer = DecoderLayer(mixer=mixer, feed_forward=DENSE.feed_forward)
    asked = job(replace(model((layer,), hidden=4096), residual_streams=4))
    asked = asked if software is None else replace(asked, software=software)
    return layer_operations(layer, asked, resolve(asked, target()))


def count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_attention_has_the_parameters_of_the_class(kind: str) -> None:
    config = DeepseekV4Config(num_hidden_layers=len(KINDS), layer_types=list(KINDS))
    with torch.device("meta"):
        module = DeepseekV4Attention(config, config.layer_types.index(kind))
    own = [each for each in operations(KINDS[kind]) if each.component == "self_attention"]
    own = [each for each in own if not each.name.endswith("hyper_connection")]
    assert held_by(own).total == count(module)


def test_streams_are_mixed_by_the_parameters_of_the_class() -> None:
    with torch.device("meta"):
        mixer, head = DeepseekV4HyperConnection(DeepseekV4Config()), DeepseekV4HyperHead(DeepseekV4Config())
    mixes = [each for each in operations(WINDOWED) if each.name.endswith("hyper_connection")]
    assert [held_by([each]).total for each in mixes] == [count(mixer)] * 2
    asked = job(replace(model((), hidden=4096), residual_streams=4))
    ends = output_operations(asked, resolve(asked, target()))
    assert held_by(ends[:1]).total == count(head)


@pytest.mark.parametrize(("fused", "kept"), [(True, 2 + 4), (False, 2 + 4 + 4)], ids=["one kernel", "step by step"])
def test_norm_of_the_streams_keeps_fp32_tensors(fused: bool, kept: int) -> None:  # noqa: FBT001 - the case
    """As torch keeps them of `linear(x32 * rsqrt(x32.pow(2).mean() + eps))`."""
    first = operations(WINDOWED, Software(fused_unweighted_norms=fused))[0]
    wide = [tensor.size_bytes for tensor in first.saves if tensor.name not in ("statistics", "stream_weights")]
    streams = next(tensor.size_bytes for tensor in first.saves if tensor.name == "input") // 2
    assert sum(wide) == kept * streams
