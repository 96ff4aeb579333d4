"""Adapters beside frozen weights: what is kept, held and worked is what torch and Megatron-Bridge do."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from projector.errors import LayoutImpossible
from projector.job import (
    Attention,
    DecoderLayer,
    DenseMLP,
    LatentAttention,
    LowPrecision,
    LowRankAdapters,
    Parallelism,
    Precision,
    Software,
    TrainingJob,
)
from projector.layers import ADAPTERS, embedding_operations, layer_operations, output_operations
from projector.operations import Collective, CollectiveKind, Gemm, Group, GroupedGemm, Operation, Weight, Work
from projector.parallelism import resolve
from tests.layers.builders import DENSE, MOE, job, mixtral, model, target
from tests.layers.torch_layer import FFN, GROUPS, HEADS, HIDDEN, TOKENS, WIDTH, kept_by_torch

RANK = 8
ALL = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")
SMALL = DecoderLayer(
    mixer=Attention(heads=HEADS, key_value_heads=GROUPS, head_dim=WIDTH), feed_forward=DenseMLP(ffn=FFN, gated=True)
)
"""The layer that `torch_layer` runs."""


def described(asked: TrainingJob) -> tuple[Operation, ...]:
    return layer_operations(asked.model.layers[0], asked, resolve(asked, target()))


def adapted(targets: Iterable[str] = ALL, *, layer: DecoderLayer = DENSE, **changes: Any) -> tuple[Operation, ...]:  # noqa: ANN401 - fields of the adapters and of the job
    own: dict[str, Any] = {"rank": 16, "targets": tuple(targets)}
    own |= {name: changes.pop(name) for name in LowRankAdapters.__dataclass_fields__ if name in changes}
    adapters = LowRankAdapters(**own)
    architecture = mixtral(8) if layer is MOE else model((layer,) * 8)
    return described(job(architecture, adapters=adapters, **changes))


CHOICES = [(), ("linear_qkv",), ("linear_proj",), ("linear_qkv", "linear_proj"), ("linear_fc1",), ("linear_fc2",), ALL]
DROPOUTS: list[dict[str, Any]] = [{}, {"dropout": 0.1}, {"dropout": 0.1, "dropout_on_input": False}]


@pytest.mark.parametrize(("targets", "dropout"), list(product(CHOICES, DROPOUTS)))
def test_frozen_layers_and_adapters_keep_what_torch_keeps(targets: tuple[str, ...], dropout: dict[str, Any]) -> None:
    options = LowRankAdapters(rank=RANK, targets=targets, **dropout)
    asked = job(model((SMALL,) * 8, hidden=HIDDEN), adapters=options, sequence=TOKENS)
    inside = [each for each in described(asked) if not each.name.endswith(("layernorm", "residual"))]
    assert sum(tensor.size_bytes for each in inside for tensor in each.saves) == kept_by_torch(options)


def trained(operations: Iterable[Operation]) -> list[Weight]:
    return [weight for each in operations for weight in each.weights if not weight.frozen]


def products(works: Iterable[Work]) -> int:
    return sum(work.flops for work in works if isinstance(work, Gemm | GroupedGemm))


SEVEN = ("linear_q", "linear_k", "linear_v", "linear_proj", "linear_fc1_gate", "linear_fc1_up", "linear_fc2")


def test_adapters_have_the_parameters_that_others_count() -> None:
    """Unsloth's notebooks print 41,943,040 for rank 16 on all seven projections of Llama 3 8B."""
    llama = DecoderLayer(
        mixer=Attention(heads=32, key_value_heads=8, head_dim=128), feed_forward=DenseMLP(ffn=14336, gated=True)
    )
    asked = job(model((llama,) * 32, hidden=4096), adapters=LowRankAdapters(rank=16, targets=SEVEN))
    assert 32 * sum(weight.full_elements for weight in trained(described(asked))) == 41_943_040


def test_adapters_alone_are_trained() -> None:
    asked = job(adapters=LowRankAdapters(rank=16))
    layout = resolve(asked, target())
    assert trained((*embedding_operations(asked, layout), *output_operations(asked, layout))) == []
    assert {each.component for each in described(asked) if trained([each])} == {ADAPTERS}


def test_frozen_layers_multiply_forward_and_towards_the_input_only() -> None:
    plain, frozen = described(job(model((DENSE,) * 8))), adapted(())
    for before, after in zip(plain, frozen, strict=True):
        assert after.forward == before.forward
        assert after.backward_input == before.backward_input
        assert after.backward_weight == ()


def test_an_adapter_multiplies_three_times_as_any_trained_layer_does() -> None:
    own = [each for each in adapted() if each.component == ADAPTERS]
    elements = sum(weight.elements for weight in trained(own))
    for direction in ("forward", "backward_input", "backward_weight"):
        assert sum(products(getattr(each, direction)) for each in own) == 2 * 4096 * elements


@pytest.mark.parametrize("tensor", [2, 4, 8])
@pytest.mark.parametrize("sequence", [True, False])
def test_tensor_parallelism_divides_every_adapter(tensor: int, sequence: bool) -> None:  # noqa: FBT001 - a case
    whole = trained(adapted())
    part = trained(adapted(layout=Parallelism(tensor=tensor, sequence_parallel=sequence)))
    for one, other in zip(whole, part, strict=True):
        assert (one.elements, one.full_elements) == (tensor * other.elements, other.full_elements)


def calls(operations: Iterable[Operation], direction: str) -> list[tuple[str, CollectiveKind, int]]:
    return [
        (each.name.partition(".")[2], work.kind, work.message_bytes)
        for each in operations
        if each.component == ADAPTERS
        for work in getattr(each, direction)
        if isinstance(work, Collective)
    ]


def test_adapters_talk_as_parallel_linear_adapter_does() -> None:
    """Megatron-Bridge 2afd2d34 peft/utils.py: `linear_in` gathers or reduces the rank, `linear_out` the result."""
    narrow, wide = 2 * 4096 * 16, 2 * 4096 * 8192
    sequence = adapted(("linear_qkv", "linear_proj"), layout=Parallelism(tensor=4))
    assert calls(sequence, "forward") == [
        ("linear_qkv.adapter.linear_in", CollectiveKind.ALL_GATHER, narrow),
        ("linear_proj.adapter.linear_in", CollectiveKind.ALL_REDUCE, narrow),
        ("linear_proj.adapter.linear_out", CollectiveKind.ALL_GATHER, wide),
    ]
    assert calls(sequence, "backward_input") == [
        ("linear_qkv.adapter.linear_out", CollectiveKind.ALL_REDUCE, narrow),
        ("linear_proj.adapter.linear_out", CollectiveKind.ALL_GATHER, wide),
        ("linear_proj.adapter.linear_out", CollectiveKind.ALL_REDUCE, narrow),
    ]
    whole = adapted(("linear_qkv",), layout=Parallelism(tensor=4, sequence_parallel=False))
    assert calls(whole, "backward_input")[0] == ("linear_qkv.adapter.linear_in", CollectiveKind.ALL_REDUCE, wide)


def test_all_to_all_moves_a_share_of_what_gathering_moves() -> None:
    exchanged = adapted(("linear_proj",), layout=Parallelism(tensor=4), all_to_all=True)
    assert ("linear_proj.adapter.linear_out", CollectiveKind.ALL_TO_ALL, 2 * 4096 * 2048) in calls(exchanged, "forward")


def test_user_buffers_make_the_adapter_gather_for_itself() -> None:
    overlapped = adapted(("linear_qkv",), layout=Parallelism(tensor=4), software=Software(overlap_tensor_parallel=True))
    wide = 2 * 4096 * 8192
    assert ("linear_qkv.adapter.linear_in", CollectiveKind.ALL_GATHER, wide) in calls(overlapped, "forward")
    assert ("linear_qkv.adapter.linear_in", CollectiveKind.REDUCE_SCATTER, wide) in calls(overlapped, "backward_input")


def test_a_rank_that_does_not_divide_is_refused_where_megatron_divides_it() -> None:
    with pytest.raises(LayoutImpossible, match=r"rank 6 on .*linear_qkv"):
        adapted(("linear_qkv",), rank=6, layout=Parallelism(tensor=4))
    assert trained(adapted(("linear_proj",), rank=6, layout=Parallelism(tensor=4)))


def test_packed_layers_have_an_adapter_for_each_named_share() -> None:
    """Canonical LoRA: three matrices of inputs x rank where the packed layer has one."""
    packed = trained(adapted(("linear_qkv",)))
    apart = trained(adapted(("linear_q", "linear_k", "linear_v")))
    extra = 2 * 16 * 8192
    assert sum(weight.elements for weight in apart) == sum(weight.elements for weight in packed) + extra
    up = trained(adapted(("linear_fc1_up",)))
    assert [weight.shape for weight in up] == [(16, 8192), (28672, 16)]


def test_experts_of_a_rank_share_one_adapter() -> None:
    weights = trained(adapted(("linear_fc1",), layer=MOE, layout=Parallelism(expert=4, expert_tensor=1)))
    assert [(weight.shape, weight.copies, weight.full_copies, weight.expert) for weight in weights] == [
        ((16, 6144), 1, 4, True),
        ((2 * 16384, 16), 1, 4, True),
    ]


def test_adapters_work_in_16_bit_whatever_the_layer_beside_them_does() -> None:
    operations = adapted(precision=Precision(low_precision=LowPrecision.FP8))
    formats = {
        (each.component == ADAPTERS, work.low_precision)
        for each in operations
        for work in each.forward
        if isinstance(work, Gemm)
    }
    assert formats == {(True, None), (False, LowPrecision.FP8)}
    kept = {each.name: each.saves for each in operations}
    assert [tensor.size_bytes for tensor in kept["self_attention.linear_qkv.adapter.linear_in"]] == [2 * 4096 * 8192]
    assert kept["self_attention.linear_qkv"] == ()


def test_latent_attention_has_no_packed_projection_to_adapt() -> None:
    mixer = LatentAttention(
        heads=128,
        query_lora_rank=1536,
        key_value_lora_rank=512,
        query_key_nope_dim=128,
        query_key_rope_dim=64,
        value_dim=128,
    )
    latent = replace(DENSE, mixer=mixer)
    names = {each.name.removesuffix(".linear_in") for each in adapted(layer=latent) if each.component == ADAPTERS}
    assert {name for name in names if name.startswith("self_attention.linear_") and name.endswith("adapter")} == {
        "self_attention.linear_proj.adapter"
    }
    assert trained(adapted(("linear_q_up_proj",), layer=latent))[0].shape == (16, 1536)


def test_experts_talk_over_their_own_group() -> None:
    layout = Parallelism(expert=2, tensor=4, expert_tensor=4)
    own = [each for each in adapted(("linear_fc2",), layer=MOE, layout=layout) if each.component == ADAPTERS]
    groups = {work.group for each in own for work in each.forward if isinstance(work, Collective)}
    assert groups == {Group.EXPERT_TENSOR}
