"""What megatron-core's own layers keep for backward is what the engine says of them, to the byte."""

import warnings
from typing import Any

import pytest

from projector.job import (
    Attention,
    CrossEntropy,
    DecoderLayer,
    DenseMLP,
    Dialect,
    NormKind,
    Parallelism,
    PositionKind,
    Recompute,
    RecomputeGranularity,
    Software,
    TrainingJob,
)
from projector.layers import layer_operations, output_operations, recomputed_modules
from projector.memory.footprint import layer_footprint
from projector.operations import Operation
from projector.parallelism import resolve
from tests.layers.builders import job, model, target

with warnings.catch_warnings():
    # It warns of every optional package that is not there.
    warnings.simplefilter("ignore")
    pytest.importorskip("megatron.core", reason="megatron-core is not installed")
    from tests.layers.megatron_layer import BATCH, GPT, LLAMA, SEQUENCE, block_bytes, layer_bytes, loss_bytes

LLAMA_LAYER = DecoderLayer(mixer=Attention(heads=32, key_value_heads=8, head_dim=128), feed_forward=DenseMLP(ffn=14336))
NORMED_LAYER = DecoderLayer(
    mixer=Attention(heads=32, key_value_heads=8, head_dim=128, query_key_norm=True), feed_forward=DenseMLP(ffn=14336)
)
GPT_LAYER = DecoderLayer(
    mixer=Attention(heads=96, key_value_heads=96, head_dim=128, bias_qkv=True, bias_output=True),
    feed_forward=DenseMLP(ffn=4 * 12288, gated=False, bias=True),
)
DROPOUT = {"attention_dropout": 0.1, "hidden_dropout": 0.1}
LAYERS: dict[str, tuple[DecoderLayer, dict[str, Any], dict[str, Any], int]] = {
    "GPT, dropout": (GPT_LAYER, GPT, DROPOUT, 12288),
    "GPT without dropout": (GPT_LAYER, GPT | {"attention_dropout": 0.0, "hidden_dropout": 0.0}, {}, 12288),
    "Llama, grouped keys": (LLAMA_LAYER, LLAMA, {}, 4096),
    "norms of queries and keys": (NORMED_LAYER, LLAMA | {"qk_layernorm": True}, {}, 4096),
}


def described(name: str, *, tensor: int = 1, sequence: bool = False) -> tuple[Operation, ...]:
    layer, values, choices, hidden = LAYERS[name]
    rotary = values is not GPT and "gated_linear_unit" in values
    architecture = model(
        (layer,) * 2,
        hidden=hidden,
        norm=NormKind.RMS if rotary else NormKind.LAYER,
        position=PositionKind.ROTARY if rotary else PositionKind.LEARNED,
    )
    asked = asked_of(architecture, tensor=tensor, sequence=sequence, **choices)
    return layer_operations(layer, asked, resolve(asked, target()))


def asked_of(architecture: Any, *, tensor: int, sequence: bool, **choices: Any) -> TrainingJob:  # noqa: ANN401 - fields of Software
    software = Software(dialect=Dialect.MEGATRON_LOCAL, flash_attention=False, rotary_fusion=False, **choices)
    layout = Parallelism(tensor=tensor, sequence_parallel=sequence)
    return job(architecture, micro=BATCH, sequence=SEQUENCE, layout=layout, software=software)


def size_of(operations: tuple[Operation, ...], *beginnings: str) -> int:
    return sum(
        tensor.size_bytes for each in operations if each.name.startswith(beginnings or ("",)) for tensor in each.saves
    )


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("tensor", [1, 8])
def test_a_layer_keeps_what_torch_saves(name: str, tensor: int) -> None:
    _, values, _, _ = LAYERS[name]
    rotary = "gated_linear_unit" in values
    assert size_of(described(name, tensor=tensor)) == layer_bytes(values, tensor=tensor, rotary=rotary)


@pytest.mark.parametrize("name", [name for name, (layer, *_) in LAYERS.items() if layer is not NORMED_LAYER])
def test_sequence_parallel_blocks_keep_what_torch_saves(name: str) -> None:
    """Without norms: torch's do not divide along the sequence, Apex's, which are not here, do."""
    _, values, _, _ = LAYERS[name]
    operations = described(name, tensor=8, sequence=True)
    blocks = [
        size_of(operations, *(f"{block}.{part}" for part in parts))
        for block, parts in (
            ("self_attention", ("linear", "rotary", "split", "core_attention")),
            ("mlp", ("linear", "activation")),
        )
    ]
    rotary = "gated_linear_unit" in values
    assert tuple(blocks) == block_bytes(values | {"sequence_parallel": True}, tensor=8, rotary=rotary)


def test_a_recomputed_block_keeps_what_torch_saves() -> None:
    modules = recomputed_modules(Recompute(granularity=RecomputeGranularity.SELECTIVE, modules=("mlp",)))
    footprint = layer_footprint(described("Llama, grouped keys"), modules)
    again = {"recompute_granularity": "selective", "recompute_modules": ["mlp"]}
    # Checkpointing keeps the block's input, the output of the norm in front.
    block_input = 2 * BATCH * SEQUENCE * 4096
    assert footprint.saved + block_input == layer_bytes(LLAMA | again, rotary=True)


PLACES = 1 + 8
"""Per token: whether its label lies in another rank's share, and its place in this one's, int64."""


@pytest.mark.parametrize("tensor", [1, 8])
def test_the_loss_keeps_what_torch_saves(tensor: int) -> None:
    """An fp32 copy of the logits, and of each label the place, which the engine leaves out."""
    asked = asked_of(model(vocabulary=131072), tensor=tensor, sequence=False, cross_entropy=CrossEntropy.UNFUSED)
    loss = output_operations(asked, resolve(asked, target()))[-1:]
    assert size_of(loss) + PLACES * BATCH * SEQUENCE == loss_bytes(131072, tensor=tensor)
