"""Layers do the work that their mathematics asks for."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projector.job import Attention, DecoderLayer, LatentAttention, LowPrecision, Parallelism, Precision, TrainingJob
from projector.layers import embedding_operations, layer_operations, output_operations
from projector.operations import (
    AttentionKernel,
    Collective,
    CollectiveKind,
    ElementWise,
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


def described_in(asked: TrainingJob) -> tuple[Operation, ...]:
    return layer_operations(asked.model.layers[0], asked, resolve(asked, target()))


def halves(operation: Operation) -> tuple[tuple[Work, ...], ...]:
    return operation.forward, operation.backward_input, operation.backward_weight


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
def test_tensor_and_context_parallelism_divide_work_and_weights(tensor: int, context: int, sequence: bool) -> None:  # noqa: FBT001 - a case
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


TRAFFIC = {
    "a cast to fp8 reads 16 bits twice and writes two copies of 8": ("quantize", 6),
    "cross entropy passes fp32 logits twice": ("cross_entropy", 8),
    "its gradient reads and writes 16 bits": ("cross_entropy_backward", 4),
    "the table's gradient is zeroed, filled and added to fp32": ("embedding_gradient", 12),
}


@pytest.mark.parametrize(("name", "bytes_per_element"), TRAFFIC.values(), ids=TRAFFIC)
def test_bytes_that_pass_memory_for_each_element(name: str, bytes_per_element: int) -> None:
    """Counted by hand on Megatron-LM and Transformer Engine: B per element of an input, a logit or the table."""
    asked = job(model((DENSE,), vocabulary=128_000), precision=Precision(low_precision=LowPrecision.FP8))
    layout = resolve(asked, target())
    operations = (*embedding_operations(asked, layout), *described_in(asked), *output_operations(asked, layout))
    elements = {"quantize": 4096 * 8192, "embedding_gradient": 128_000 * 8192}.get(name, 4096 * 128_000)
    works = [work for each in operations for half in halves(each) for work in half]
    first = next(work for work in works if isinstance(work, ElementWise) and work.name == name)
    assert first.bytes_read + first.bytes_written == bytes_per_element * elements


def test_the_three_products_of_a_linear_layer_lie_as_blas_sees_them() -> None:
    """For y = x W^T, TN forward, NN for the input's gradient, NT for the weight's: layouts of SimuMax's B200 table."""
    layer = next(each for each in described() if each.name == "mlp.linear_fc2")
    forward, gradient, weight = (
        next(work for work in half if isinstance(work, Gemm))
        for half in (layer.forward, layer.backward_input, layer.backward_weight)
    )
    assert [each.layout.value for each in (forward, gradient, weight)] == ["TN", "NN", "NT"]
    assert (weight.m, weight.n, weight.k) == (forward.n, forward.k, forward.m)


CASTS = {
    "fp8, scale of earlier iterations": (LowPrecision.FP8, True, 2, 2.0),
    "fp8, largest value first": (LowPrecision.FP8, False, 4, 2.0),
    "blocks of 128": (LowPrecision.FP8_BLOCK, False, 2, 2 * (1 + 4 / 128)),
    "mxfp8": (LowPrecision.MXFP8, False, 2, 2 * (1 + 1 / 32) + 3),
    "mxfp6": (LowPrecision.MXFP6, False, 2, 2 * (0.75 + 1 / 32) + 3),
    "mxfp4": (LowPrecision.MXFP4, False, 6, 2 * (0.5 + 1 / 32) + 1),
    "nvfp4": (LowPrecision.NVFP4, False, 6, 2 * (0.5 + 1 / 16) + 1),
}


@pytest.mark.parametrize(("low", "delayed", "read", "written"), CASTS.values(), ids=CASTS)
def test_a_cast_reads_16_bits_and_writes_both_copies_with_their_scales(
    low: LowPrecision, read: int, written: float, *, delayed: bool
) -> None:
    asked = job(model((DENSE,)), precision=Precision(low_precision=low, delayed_scaling=delayed))
    casts = [
        work
        for each in described_in(asked)
        for work in each.forward
        if isinstance(work, ElementWise) and work.name == "quantize"
    ]
    assert casts[0].bytes_read == read * 4096 * 8192
    assert casts[0].bytes_written == pytest.approx(written * 4096 * 8192)


def test_hierarchical_context_parallelism_exchanges_heads_inside_and_passes_keys_outside() -> None:
    """Transformer Engine context_parallel.py, `a2a+p2p`: 64 heads over 4 neighbours, a ring of two such groups."""
    layout = Parallelism(context=8, context_communication="a2a+p2p", context_exchange=4)
    core = next(each for each in described(layout=layout) if each.name.endswith("core_attention"))
    tokens = 4096 // 8
    sent = {work.group: work.message_bytes for work in core.forward if isinstance(work, Collective)}
    query, both = 64 * 128, 8 * (128 + 128)
    assert sent == {
        Group.CONTEXT_INNER: 2 * tokens * (2 * query + both),
        Group.CONTEXT_OUTER: 2 * tokens * both,
    }
    kernel = next(work for work in core.forward if isinstance(work, AttentionKernel))
    assert (kernel.heads, kernel.query_length) == (64 // 4, 4096 // 2)
    whole = next(work for work in described()[3].forward if isinstance(work, AttentionKernel))
    assert kernel.flops == pytest.approx(whole.flops / 8)


def test_ring_attention_sends_every_other_rank_s_keys_and_values() -> None:
    """Transformer Engine context_parallel.py: a rank passes on the blocks of the others, its own it has."""
    sent = {
        work.message_bytes
        for operation in described(layout=Parallelism(context=4))
        for work in operation.forward
        if isinstance(work, Collective) and work.group is Group.CONTEXT
    }
    assert sent == {3 * (4096 // 4) * 8 * (128 + 128) * 2}
