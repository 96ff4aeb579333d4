"""What layers keep for backward equals published formulas."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from projector.job import (
    Attention,
    DecoderLayer,
    DenseMLP,
    Dialect,
    LowPrecision,
    NormKind,
    Parallelism,
    Precision,
    Software,
)
from projector.layers import layer_operations
from projector.operations import Operation
from projector.parallelism import resolve
from tests.layers.builders import DENSE, MOE, job, mixtral, model, target

KORTHIKANTI = DecoderLayer(
    mixer=Attention(heads=96, key_value_heads=96, head_dim=128, bias_qkv=True, bias_output=True),
    feed_forward=DenseMLP(ffn=4 * 12288, gated=False, bias=True),
)
"""GPT-3 175B's layer, as arXiv 2205.05198 counts it."""
UNFUSED = Software(dialect=Dialect.MEGATRON_LOCAL, flash_attention=False, attention_dropout=0.1, hidden_dropout=0.1)


def saved(operations: tuple[Operation, ...], *, without: tuple[str, ...] = ()) -> int:
    return sum(
        tensor.size_bytes for operation in operations for tensor in operation.saves if tensor.name not in without
    )


@pytest.mark.parametrize(
    ("tensor", "sequence_parallel", "formula"),
    [
        (1, False, lambda t, scores: 34 / t + scores / t),
        (8, False, lambda t, scores: 10 + 24 / t + scores / t),
        (8, True, lambda t, scores: 34 / t + scores / t),
    ],
)
def test_a_gpt_layer_keeps_what_korthikanti_derives(
    tensor: int,
    sequence_parallel: bool,  # noqa: FBT001 - a case
    formula: Callable[[int, float], float],
) -> None:
    """S b h (34 + 5 a s / h) and its tensor- and sequence-parallel forms (arXiv 2205.05198, table 2)."""
    layout = Parallelism(tensor=tensor, sequence_parallel=sequence_parallel)
    architecture = model((KORTHIKANTI,) * 2, hidden=12288, norm=NormKind.LAYER)
    asked = job(architecture, sequence=2048, layout=layout, software=UNFUSED)
    operations = layer_operations(KORTHIKANTI, asked, resolve(asked, target()))
    sbh = 2048 * 12288
    expected = sbh * formula(tensor, 5 * 96 * 2048 / 12288)
    assert saved(operations, without=("statistics",)) == expected


def kept(layer: DecoderLayer, **changes: object) -> int:
    architecture = mixtral(8) if layer is MOE else model((layer,) * 8)
    asked = job(architecture, **changes)  # type: ignore[arg-type]
    return saved(layer_operations(layer, asked, resolve(asked, target())))


def test_flash_attention_keeps_no_scores() -> None:
    difference = kept(DENSE, software=Software(flash_attention=False)) - kept(DENSE)
    assert difference == 2 * 64 * 4096 * 4096 - 4 * 4096 * 64


def test_scores_are_as_wide_as_activations() -> None:
    """In fp32 torch keeps four bytes of softmax, a mask byte and four of what dropout gives."""
    wide = Precision(activation_bytes=4)
    stored, dropped = Software(flash_attention=False), Software(flash_attention=False, attention_dropout=0.1)
    flash = kept(DENSE, precision=wide)
    scores = 64 * 4096 * 4096
    assert kept(DENSE, precision=wide, software=stored) - flash == 4 * scores - 4 * 4096 * 64
    assert kept(DENSE, precision=wide, software=dropped) - flash == 9 * scores - 4 * 4096 * 64


def test_a_window_saves_nothing_without_flash_attention() -> None:
    windowed = replace(DENSE, mixer=Attention(heads=64, key_value_heads=8, head_dim=128, window=128))
    unfused = Software(flash_attention=False)
    assert kept(windowed, software=unfused) == kept(DENSE, software=unfused)


def test_context_parallelism_equals_a_smaller_batch() -> None:
    """Megatron-LM PR 7220: peak memory of CP 2 equals that of half the micro batch to within KiB."""
    layout = Parallelism(context=2, sequence_parallel=False)
    assert kept(DENSE, micro=2, layout=layout) == kept(DENSE, micro=1)


def test_expert_activations_grow_with_the_capacity_factor() -> None:
    layout = Parallelism(expert=8)

    def at(factor: float | None) -> int:
        return kept(MOE, layout=layout, software=Software(permute_fusion=True, expert_capacity_factor=factor))

    rows = 2 * 4096
    per_row = 2 * 6144 + 6 * 16384 + 4
    assert at(1.0) == at(None)
    assert at(2.0) - at(1.0) == rows * per_row


def test_delayed_fp8_halves_linear_inputs_and_keeps_the_attention_output_twice() -> None:
    """Transformer Engine keeps attention's bf16 output for its backward beside the fp8 copy of the projection."""
    tokens, hidden, ffn = 4096, 8192, 28672
    bf16 = kept(DENSE)
    fp8 = kept(DENSE, precision=Precision(low_precision=LowPrecision.FP8, delayed_scaling=True))
    linear_inputs = tokens * (hidden + hidden + hidden + ffn)
    assert bf16 - fp8 == linear_inputs - 2 * tokens * hidden
