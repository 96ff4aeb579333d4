"""Layers do the work that their mathematics asks for."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projector.job import Attention, DecoderLayer, LatentAttention, Parallelism
from projector.layers import layer_operations, output_operations
from projector.operations import (
    AttentionKernel,
    Collective,
    CollectiveKind,
    Gemm,
    Group,
    GroupedGemm,
    Operation,
    Work,
)
from projector.parallelism import resolve
from tests.layers.builders import DENSE, MOE, job, mixtral, model, target


def described(
    layer: DecoderLayer = DENSE, layout: Parallelism | None = None, *, micro: int = 1
) -> tuple[Operation, ...]:
    asked = job(mixtral(8) if layer is MOE else model((layer,) * 8), layout=layout, micro=micro)
    return layer_operations(layer, asked, resolve(asked, target()))


def products(works: tuple[Work, ...]) -> int:
    return sum(work.flops for work in works if isinstance(work, Gemm | GroupedGemm))


def test_a_dense_layer_multiplies_every_weight_with_every_token_three_times() -> None:
    weights = 8192 * (64 + 2 * 8) * 128 + 8192 * 8192 + 3 * 8192 * 28672
    for operations, tokens in ((described(), 4096), (described(micro=2), 8192)):
        for work in ("forward", "backward_input", "backward_weight"):
            total = sum(products(getattr(operation, work)) for operation in operations)
            assert total == 2 * weights * tokens


def test_an_expert_layer_multiplies_the_active_weights() -> None:
    operations = described(MOE, Parallelism(expert=8))
    active = 6144 * (48 + 2 * 8) * 128 + 6144 * 6144 + 6144 * 8 + 2 * 3 * 6144 * 16384
    assert sum(products(operation.forward) for operation in operations) == 2 * active * 4096


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.booleans())
def test_tensor_and_context_parallelism_divide_work_and_weights(tensor: int, context: int, sequence: bool) -> None:  # noqa: FBT001
    if tensor * context > 8:
        return
    layout = Parallelism(tensor=tensor, context=context, sequence_parallel=sequence)
    whole, part = described(), described(layout=layout)
    for one, other in zip(whole, part, strict=True):
        assert products(one.forward) == products(other.forward) * tensor * context
        kernels = [
            sum(work.flops for work in each.forward if isinstance(work, AttentionKernel)) for each in (one, other)
        ]
        assert kernels[0] == kernels[1] * tensor * context
        for weight, divided in zip(one.weights, other.weights, strict=True):
            factor = tensor if len(weight.shape) > 1 else 1
            assert (weight.elements, weight.full_elements) == (divided.elements * factor, divided.full_elements)


def calls(operations: tuple[Operation, ...]) -> list[tuple[CollectiveKind, int]]:
    return [
        (work.kind, work.message_bytes)
        for operation in operations
        for work in (*operation.forward, *operation.backward_input, *operation.backward_weight)
        if isinstance(work, Collective) and work.group is Group.TENSOR
    ]


def test_tensor_parallelism_reduces_the_residual_stream_four_times_a_layer() -> None:
    """Two forward, two backward (Megatron-LM, arXiv 1909.08053, figure 4)."""
    plain = calls(described(layout=Parallelism(tensor=8, sequence_parallel=False)))
    assert plain == [(CollectiveKind.ALL_REDUCE, 2 * 4096 * 8192)] * 4


def test_sequence_parallelism_splits_each_reduction_and_gathers_again_for_weights() -> None:
    """ArXiv 2205.05198, section 4.2.2: the gathered input is not kept but gathered again."""
    kinds = [kind for kind, _ in calls(described(layout=Parallelism(tensor=8)))]
    assert kinds.count(CollectiveKind.REDUCE_SCATTER) == 4
    assert kinds.count(CollectiveKind.ALL_GATHER) == 4 + 2


def test_experts_exchange_every_token_copy_there_and_back() -> None:
    operations = described(MOE, Parallelism(expert=8))
    sent = [
        work.message_bytes
        for operation in operations
        for work in (*operation.forward, *operation.backward_input)
        if isinstance(work, Collective)
    ]
    assert sent == [2 * 2 * 4096 * 6144] * 4


def test_a_window_bounds_attention_and_not_its_memory() -> None:
    windowed = replace(DENSE, mixer=Attention(heads=64, key_value_heads=8, head_dim=128, window=128))
    plain, bounded = described(), described(windowed)
    flops = [
        sum(work.flops for one in each for work in one.forward if isinstance(work, AttentionKernel))
        for each in (plain, bounded)
    ]
    assert flops[1] < flops[0] / 10
    assert [one.saves for one in plain] == [one.saves for one in bounded]


def test_equal_layers_are_described_once() -> None:
    asked = job()
    layout = resolve(asked, target())
    assert layer_operations(DENSE, asked, layout) is layer_operations(replace(DENSE), asked, layout)


def test_the_output_layer_is_one_product_over_the_padded_vocabulary() -> None:
    asked = job(layout=Parallelism(tensor=8))
    operations = output_operations(asked, resolve(asked, target()))
    assert sum(products(operation.forward) for operation in operations) == 2 * 4096 * 8192 * 129024 // 8


@pytest.mark.parametrize("rank", [None, 1536])
def test_latent_attention_holds_the_weights_of_its_definition(rank: int | None) -> None:
    """DeepSeek-V2 (arXiv 2405.04434, section 2.1): down to the latents, up to the heads, out of the values."""
    mixer = LatentAttention(
        heads=128,
        query_lora_rank=rank,
        key_value_lora_rank=512,
        query_key_nope_dim=128,
        query_key_rope_dim=64,
        value_dim=128,
    )
    operations = described(replace(DENSE, mixer=mixer), Parallelism(tensor=4))
    attention = [weight for one in operations if one.component == "self_attention" for weight in one.weights]
    query = 8192 * 128 * 192 if rank is None else 8192 * rank + rank + rank * 128 * 192
    expected = query + 8192 * (512 + 64) + 512 + 512 * 128 * (128 + 128) + 128 * 128 * 8192
    assert sum(weight.full_elements for weight in attention) == expected
