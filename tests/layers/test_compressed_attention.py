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

from projector.job import Attention, DecoderLayer, IndexerTraining, Software
from projector.layers import layer_operations, output_operations
from projector.operations import AttentionKernel, Collective, ElementWise, Operation, Work, held_by
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


def works(operations: tuple[Operation, ...], kind: type, name: str = "") -> list[Work]:
    found = [
        work
        for operation in operations
        for work in (*operation.forward, *operation.backward_input, *operation.backward_weight)
        if isinstance(work, kind)
    ]
    return [work for work in found if not name or getattr(work, "name", "") == name]


SEQUENCE = 4096
"""Tokens of a sequence of `job`."""


def seen(mixer: Attention) -> float:
    """Keys that the queries of a sequence see, counted one by one."""
    total = 0.0
    for position in range(SEQUENCE):
        total += min(position + 1, 128)
        compressed = position / (mixer.compression_ratio or SEQUENCE + 1)
        total += min(compressed, mixer.index_top_k) if mixer.index_heads else compressed
    return total


@pytest.mark.parametrize("kind", KINDS)
def test_the_kernel_multiplies_the_keys_that_a_query_sees(kind: str) -> None:
    for kernel in works(operations(KINDS[kind]), AttentionKernel):
        assert isinstance(kernel, AttentionKernel)
        assert kernel.key_length == SEQUENCE
        assert kernel.attended_pairs == pytest.approx(seen(KINDS[kind]), rel=0.01)


def moved(operations_: tuple[Operation, ...], name: str) -> int:
    found = works(operations_, ElementWise, name)
    return sum(work.bytes_read + work.bytes_written for work in found if isinstance(work, ElementWise))


def test_a_kernel_that_reads_chosen_keys_adds_up_their_gradients_alone() -> None:
    places = SEQUENCE * 512 * 512 * 2
    fused, stepwise = operations(CHOSEN), operations(CHOSEN, Software(gathered_keys=True))
    # Three quarters of the places of a choice are real: the first queries have fewer keys.
    assert moved(fused, "scatter_keys") == pytest.approx(1.75 * places)
    assert moved(fused, "gather_keys") == 0
    assert moved(stepwise, "gather_keys") == 4 * places
    assert moved(stepwise, "scatter_keys") == pytest.approx((3 + 2 * 0.75 + 2 * 2) * places)
    assert moved(operations(COMPRESSED), "scatter_keys") == 0


def test_gathered_keys_stay_for_backward() -> None:
    fused, stepwise = operations(CHOSEN), operations(CHOSEN, Software(gathered_keys=True))
    kept = [sum(tensor.size_bytes for each in run for tensor in each.saves) for run in (fused, stepwise)]
    assert kept[1] - kept[0] == SEQUENCE * 512 * 512 * 2


@pytest.mark.parametrize(
    ("indexer", "backward", "trained"),
    [(IndexerTraining.IDLE, 0, True), (IndexerTraining.FROZEN, 0, False), (IndexerTraining.TRAINED, 3, True)],
)
def test_an_indexer_learns_where_it_has_a_loss(indexer: IndexerTraining, backward: int, *, trained: bool) -> None:
    of = next(each for each in operations(CHOSEN, Software(indexer=indexer)) if each.name.endswith("indexer"))
    products = [work for work in of.backward_input if not isinstance(work, ElementWise)]
    assert len(products) == backward + bool(backward)  # the indexer's own three, and its compressor's
    assert bool(held_by([of]).total) is trained
    assert {weight.frozen for weight in of.weights} == {not trained}
    forward, inputs, weights = (flops(run) for run in (of.forward, of.backward_input, of.backward_weight))
    assert inputs == weights == (forward if backward else 0)


def flops(run: tuple[Work, ...]) -> float:
    return sum(work.flops for work in run if not isinstance(work, ElementWise | Collective))


@pytest.mark.parametrize(("iterations", "kernels"), [(0, 0), (1, 2), (20, 78)])
def test_an_iteration_sums_rows_and_columns_and_divides_by_both(iterations: int, kernels: int) -> None:
    run = operations(WINDOWED, Software(sinkhorn_iterations=iterations))
    for name in ("sinkhorn", "sinkhorn_backward"):
        found = works(run, ElementWise, name)
        assert [work.kernels for work in found if isinstance(work, ElementWise)] == [kernels] * (2 if kernels else 0)
