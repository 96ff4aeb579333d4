"""Layers of named models keep what formulas say that were derived beside the engine, symbol by symbol.

Symbols: S tokens of a device, h hidden, l = S / t with sequence parallelism, q and k query and key widths of a device,
F = ffn / t, V = vocabulary / t; bf16 has two bytes. They were found on Megatron-LM 23e00ed0 and d98e8a64 with
Transformer Engine 2.11 by comparing allocated bytes with published runs.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from projector.job import (
    Attention,
    AttentionBackend,
    CrossEntropy,
    DecoderLayer,
    DenseMLP,
    LatentAttention,
    LowPrecision,
    ModelArchitecture,
    NormKind,
    Parallelism,
    PositionKind,
    Precision,
    Software,
    TrainingJob,
)
from projector.layers import layer_operations, output_operations
from projector.operations import Operation
from projector.parallelism import resolve
from tests.layers.builders import DENSE, job, model, target

TOKENS, HIDDEN, FFN = 4096, 8192, 28672
"""Of Llama-3 70B with sequences of 4,096."""
GPT_7B = DecoderLayer(
    mixer=Attention(heads=32, key_value_heads=8, head_dim=128, bias_qkv=True, bias_output=True),
    feed_forward=DenseMLP(ffn=16384, gated=False, bias=True),
)
"""A layer of Megatron-LM's gpt3_7b tests."""
DEEPSEEK_V3 = LatentAttention(
    heads=128,
    query_lora_rank=1536,
    key_value_lora_rank=512,
    query_key_nope_dim=128,
    query_key_rope_dim=64,
    value_dim=128,
)


def operations(layer: DecoderLayer, asked: TrainingJob) -> tuple[Operation, ...]:
    return layer_operations(layer, asked, resolve(asked, target()))


def saved(parts: Sequence[Operation], *names: str) -> int:
    """Bytes that the operations keep, or those whose names end so."""
    return sum(
        tensor.size_bytes for part in parts for tensor in part.saves if not names or part.name.endswith(tuple(names))
    )


def llama(tensor: int, *, sequence_parallel: bool, context: int = 1, **changes: object) -> TrainingJob:
    layout = Parallelism(tensor=tensor, sequence_parallel=sequence_parallel, context=context)
    return job(model((DENSE,) * 8), layout=layout, sequence=TOKENS, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("sequence_parallel", [True, False])
@pytest.mark.parametrize("tensor", [1, 4, 8])
def test_a_dense_layer_keeps_norms_attention_and_mlp(tensor: int, sequence_parallel: bool) -> None:  # noqa: FBT001 - a case
    """A norm before a linear layer 4 l h + 4 l; attention 2 S (q + 2k) + 2 S q + 4 S heads; SwiGLU 4 S F + 2 S F."""
    rows = TOKENS // tensor if sequence_parallel else TOKENS
    heads, query, key, ffn = 64 // tensor, 8192 // tensor, 1024 // tensor, FFN // tensor
    norms = 2 * (4 * rows * HIDDEN + 4 * rows)
    attention = 2 * TOKENS * (query + 2 * key) + 2 * TOKENS * query + 4 * TOKENS * heads
    mlp = 4 * TOKENS * ffn + 2 * TOKENS * ffn
    asked = llama(tensor, sequence_parallel=sequence_parallel)
    assert saved(operations(DENSE, asked)) == norms + attention + mlp


def test_layer_norm_and_a_plain_mlp_keep_a_second_statistic_and_half_the_activation() -> None:
    """Megatron-LM's gpt3_7b test: tensor 4 without sequence parallelism, micro batch 2, dropout of 0.1."""
    architecture = model((GPT_7B,) * 4, hidden=4096, norm=NormKind.LAYER, position=PositionKind.LEARNED)
    layout = Parallelism(tensor=4, sequence_parallel=False)
    dropped = Software(hidden_dropout=0.1, attention_dropout=0.1)
    asked = job(architecture, micro=2, sequence=8192, layout=layout, software=dropped)
    tokens, query, key, ffn = 2 * 8192, 1024, 256, 4096
    norms = 2 * (4 * tokens * 4096 + 8 * tokens)
    masks = 2 * tokens * 4096
    attention = 2 * tokens * (query + 2 * key) + 2 * tokens * query + 4 * tokens * 8
    assert saved(operations(GPT_7B, asked)) == norms + masks + attention + 2 * tokens * ffn + 2 * tokens * ffn


def test_flash_attention_of_several_sequences_copies_its_output() -> None:
    def kept(backend: AttentionBackend, micro: int) -> int:
        software = Software(attention_backend=backend)
        return saved(operations(DENSE, llama(4, sequence_parallel=True, micro=micro, software=software)))

    assert kept(AttentionBackend.FLASH, 1) == kept(AttentionBackend.CUDNN, 1)
    assert kept(AttentionBackend.FLASH, 2) - kept(AttentionBackend.CUDNN, 2) == 2 * (2 * TOKENS) * (HIDDEN // 4)


def test_an_exchange_of_heads_keeps_another_output() -> None:
    asked = llama(1, sequence_parallel=False, context=4)
    exchanged = replace(asked, parallelism=replace(asked.parallelism, context_communication="a2a"))
    tokens = TOKENS // 4
    assert saved(operations(DENSE, exchanged)) - saved(operations(DENSE, asked)) == 2 * tokens * HIDDEN


def test_rotary_embedding_in_steps_keeps_four_tables_of_the_width_that_turns() -> None:
    """8 bytes per position and rotary element."""
    fused = saved(operations(DENSE, llama(1, sequence_parallel=False)))
    for share in (1.0, 0.5):
        architecture = model((DENSE,) * 8, rotary_share=share)
        asked = job(architecture, sequence=TOKENS, software=Software(rotary_fusion=False))
        assert saved(operations(DENSE, asked)) - fused == 8 * TOKENS * 128 * share


def test_norms_of_queries_and_keys_keep_their_inputs() -> None:
    normed = replace(DENSE, mixer=Attention(heads=64, key_value_heads=8, head_dim=128, query_key_norm=True))
    asked = llama(4, sequence_parallel=True)
    query, key, statistics = 8192 // 4, 1024 // 4, 4 * TOKENS * (64 + 8) // 4
    assert saved(operations(normed, asked)) - saved(operations(DENSE, asked)) == 2 * TOKENS * (query + key) + statistics


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_unfused_attention_keeps_scores(dropout: float) -> None:
    """2 b a s^2 / t, with dropout 5."""
    plain = saved(operations(DENSE, llama(4, sequence_parallel=True)))
    software = Software(flash_attention=False, attention_dropout=dropout)
    stored = saved(operations(DENSE, llama(4, sequence_parallel=True, software=software)))
    assert stored - plain == (5 if dropout else 2) * 16 * TOKENS**2 - 4 * TOKENS * 16


@pytest.mark.parametrize("tensor", [1, 2, 8])
def test_latent_attention_keeps_latents_on_the_rows_of_a_device(tensor: int) -> None:
    """Norms 4 l h and 4 l of each latent's rank; queries and keys 2 S heads 192 each, values and output 2 S heads 128.

    Down-projections are repeated on every rank, each over its part of the sequence (Megatron-LM
    multi_latent_attention.py, `_qkv_down_projection`).
    """
    layer = replace(DENSE, mixer=DEEPSEEK_V3)
    asked = job(model((layer,) * 4, hidden=7168), sequence=TOKENS, layout=Parallelism(tensor=tensor))
    rows, heads = TOKENS // tensor, 128 // tensor
    norm = 4 * rows * 7168 + 4 * rows
    latents = 4 * rows * 1536 + 4 * rows + 4 * rows * 512 + 4 * rows
    queries, keys, values, output = (2 * TOKENS * heads * width for width in (192, 192, 128, 128))
    parts = [part for part in operations(layer, asked) if part.component in ("layer_norm", "self_attention")]
    before_mlp = saved(parts) - saved(parts, "pre_mlp_layernorm")
    assert before_mlp == norm + latents + queries + keys + values + output + 4 * TOKENS * heads


def test_latent_attention_frees_the_packed_projection_without_fused_rotary_too() -> None:
    """Transformer Engine takes contiguous values only; what stays more are four tables of the rotary width."""
    layer = replace(DENSE, mixer=DEEPSEEK_V3)

    def kept(*, fused: bool) -> int:
        software = Software(rotary_fusion=fused)
        return saved(operations(layer, job(model((layer,) * 4, hidden=7168), sequence=TOKENS, software=software)))

    assert kept(fused=False) - kept(fused=True) == 8 * TOKENS * 64


def head(software: Software, architecture: ModelArchitecture | None = None) -> dict[str, Operation]:
    asked = job(architecture or model((DENSE,) * 8), sequence=TOKENS, layout=Parallelism(tensor=4), software=software)
    return {part.name: part for part in output_operations(asked, resolve(asked, target()))}


def highest_of_loss(parts: dict[str, Operation]) -> int:
    """What the logits add while the loss runs forward."""
    logits = sum(tensor.size_bytes for tensor in parts["output_layer"].saves if tensor.name == "logits")
    return logits + saved([parts["loss"]]) + parts["loss"].scratch_forward_bytes


@pytest.mark.parametrize(
    ("kind", "each"),
    [
        pytest.param(CrossEntropy.TRANSFORMER_ENGINE, 2, id="in place on the 16-bit logits"),
        pytest.param(CrossEntropy.UNFUSED, 6, id="an fp32 copy beside the 16-bit logits"),
        pytest.param(CrossEntropy.NATIVE_FUSED, 10, id="compiled: one fp32 copy more"),
    ],
)
def test_logits_cost_by_the_kind_of_loss(kind: CrossEntropy, each: int) -> None:
    assert highest_of_loss(head(Software(cross_entropy=kind))) == each * TOKENS * (128512 // 4)


def test_the_final_norm_keeps_its_input_and_the_head_its_own() -> None:
    rows = TOKENS // 4
    parts = head(Software())
    assert saved([parts["decoder.final_layernorm"], parts["output_layer"]]) == 4 * rows * HIDDEN + 4 * rows


@pytest.mark.parametrize(
    ("precision", "output"),
    [
        pytest.param(
            Precision(low_precision=LowPrecision.FP8, delayed_scaling=True), 3, id="delayed scaling keeps 16 and 8 bits"
        ),
        pytest.param(Precision(low_precision=LowPrecision.FP8), 2, id="current scaling"),
        pytest.param(Precision(low_precision=LowPrecision.MXFP8), 2, id="blocks"),
    ],
)
def test_the_output_of_attention_is_kept_once_unless_scaling_is_delayed(precision: Precision, output: int) -> None:
    """Megatron-LM lets the output projection keep the 16-bit tensor that attention keeps anyway."""
    parts = operations(DENSE, llama(4, sequence_parallel=True, precision=precision))
    kept = saved(parts, "core_attention", "linear_proj") - 4 * TOKENS * 16
    assert kept == output * TOKENS * HIDDEN // 4
