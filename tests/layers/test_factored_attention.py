"""Attention with factored projections has the parameters of DeepSeek-V4."""

from dataclasses import replace

from projector.job import Attention, DecoderLayer
from projector.layers import layer_operations
from projector.operations import held_by
from projector.parallelism import resolve
from tests.layers.builders import DENSE, job, model, target

PLAIN = Attention(heads=64, key_value_heads=1, head_dim=512)
FACTORED = replace(PLAIN, query_lora_rank=1024, shared_key_value=True, output_lora_rank=1024, output_groups=8)


def parameters(mixer: Attention) -> int:
    layer = DecoderLayer(mixer=mixer, feed_forward=DENSE.feed_forward)
    asked = job(model((layer,), hidden=4096))
    operations = layer_operations(layer, asked, resolve(asked, target()))
    return held_by([each for each in operations if each.component == "self_attention"]).total


def test_projections_have_the_parameters_of_the_model() -> None:
    latent, queries, keys = 4096 * 1024, 1024 * 64 * 512, 4096 * 512
    groups, back = 8 * (8 * 512) * 1024, 8 * 1024 * 4096
    assert parameters(FACTORED) == latent + 1024 + queries + keys + 512 + groups + back


def test_without_ranks_attention_is_as_it_was() -> None:
    assert parameters(PLAIN) == 4096 * (64 + 2) * 512 + 64 * 512 * 4096


def test_either_side_may_be_factored_alone() -> None:
    queries, output = replace(PLAIN, query_lora_rank=1024), replace(PLAIN, output_lora_rank=1024, output_groups=8)
    assert parameters(FACTORED) < parameters(queries) < parameters(PLAIN)
    assert parameters(FACTORED) < parameters(output) < parameters(PLAIN)
