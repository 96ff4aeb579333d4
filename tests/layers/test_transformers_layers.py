"""What real layers of Hugging Face transformers keep for backward on a GPU is what the engine says, to the byte."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from projector import catalog
from projector.catalog.facts import read_mapping
from projector.config.huggingface.facts import huggingface_facts
from projector.config.huggingface.modules import FILE
from projector.job import Recompute, RecomputeGranularity, RecomputeMethod, TrainingJob
from projector.layers import embedding_operations, layer_operations, output_operations
from projector.layers.shapes import shapes_of
from projector.memory.stages import Footprints, described_stages
from projector.operations import Operation
from projector.parallelism import resolve
from tests.layers.builders import target

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from tests.layers.fake_gpu import FLASH_RANDOM_BYTES  # noqa: E402 - needs torch
from tests.layers.transformers_layer import (  # noqa: E402 - needs transformers
    BATCH,
    MODEL,
    SEQUENCE,
    configuration,
    job_of,
    kept_of_model,
    layer_of,
)

TOKENS = BATCH * SEQUENCE
GPT2: dict[str, Any] = {"n_embd": 4096, "n_head": 32, "n_layer": 2, "vocab_size": 32000, "n_positions": SEQUENCE}
OPT = {key: value for key, value in MODEL.items() if key != "intermediate_size"} | {"ffn_dim": 16384, "dropout": 0.1}
WIDE: dict[str, Any] = {"head_dim": 256, "num_attention_heads": 16, "hidden_size": 3584, "sliding_window": SEQUENCE}
SPARSE: dict[str, Any] = {"num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 1408}
SHARED: dict[str, Any] = {"shared_expert_intermediate_size": 5632}
LATENT: dict[str, Any] = {"num_hidden_layers": 2, "vocab_size": 32000, "first_k_dense_replace": 1}
LITE: dict[str, Any] = {
    "q_lora_rank": None,
    "moe_intermediate_size": 1408,
    "num_experts_per_tok": 6,
    "hidden_size": 2048,
}
LAYERS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "Llama": ("llama", 0, MODEL),
    "Qwen2, biases on q, k and v": ("qwen2", 0, MODEL),
    "Qwen3, norms of queries and keys": ("qwen3", 0, MODEL | {"head_dim": 128}),
    "Mistral, without a window": ("mistral", 0, MODEL | {"sliding_window": None}),
    "Mistral, a window": ("mistral", 0, MODEL | {"sliding_window": 1024}),
    "Mistral, a window as long as the sequence": ("mistral", 0, MODEL | {"sliding_window": SEQUENCE}),
    "Mistral, a window that is never full": ("mistral", 0, MODEL | {"sliding_window": SEQUENCE + 1}),
    "Gemma": ("gemma", 0, MODEL | {"head_dim": 128}),
    "Gemma 2, capped scores, norms behind": ("gemma2", 1, MODEL | WIDE),
    "Gemma 3, a window": ("gemma3_text", 0, MODEL | WIDE | {"sliding_window": 1024}),
    "Gemma 3, all keys": ("gemma3_text", 5, MODEL | WIDE | {"num_hidden_layers": 6}),
    "OLMo 2, norms of whole rows": ("olmo2", 0, MODEL),
    "OLMo 3, a window": ("olmo3", 0, MODEL | {"sliding_window": 1024}),
    "GLM": ("glm", 0, MODEL | {"head_dim": 128}),
    "GLM-4, norms behind": ("glm4", 0, MODEL | {"head_dim": 128}),
    "Phi-3, packed projections": ("phi3", 0, MODEL | {"bos_token_id": 0, "eos_token_id": 0}),
    "Granite": ("granite", 0, MODEL),
    "SmolLM 3": ("smollm3", 0, MODEL | {"bos_token_id": 0, "eos_token_id": 0}),
    "ERNIE 4.5": ("ernie4_5", 0, MODEL),
    "StarCoder 2": ("starcoder2", 0, MODEL | {"sliding_window": None}),
    "Nemotron": ("nemotron", 0, MODEL | {"head_dim": 128}),
    "GPT-2, dropout": ("gpt2", 0, GPT2),
    "GPT-2 without dropout": ("gpt2", 0, GPT2 | {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}),
    "GPT-NeoX, blocks side by side": ("gpt_neox", 0, MODEL),
    "GPT-NeoX, one after the other": ("gpt_neox", 0, MODEL | {"use_parallel_residual": False}),
    "OPT": ("opt", 0, OPT),
    "Mixtral": ("mixtral", 0, MODEL | {"sliding_window": None}),
    "Qwen2-MoE, a shared expert": ("qwen2_moe", 0, MODEL | SPARSE | SHARED),
    "Qwen3-MoE": ("qwen3_moe", 0, MODEL | SPARSE | {"head_dim": 128, "norm_topk_prob": True}),
    "Qwen3-MoE, scores as they are": ("qwen3_moe", 0, MODEL | SPARSE | {"head_dim": 128, "norm_topk_prob": False}),
    "OLMoE": ("olmoe", 0, MODEL | {"intermediate_size": 1024}),
    "Granite-MoE": ("granitemoe", 0, MODEL | {"intermediate_size": 1024}),
    "MiniMax-M2": ("minimax_m2", 0, MODEL | {"head_dim": 128, "intermediate_size": 1024}),
    "GLM-4.5": ("glm4_moe", 1, MODEL | {"moe_intermediate_size": 1408, "head_dim": 128}),
    "GLM-4.7-Flash, latent attention": ("glm4_moe_lite", 1, LATENT),
    "DeepSeek-V2-Lite, dense": ("deepseek_v2", 0, LATENT | LITE),
    "DeepSeek-V2, experts": ("deepseek_v2", 1, LATENT | LITE | {"q_lora_rank": 1536}),
    "DeepSeek-V3, dense": ("deepseek_v3", 0, LATENT),
    "DeepSeek-V3, experts": ("deepseek_v3", 1, LATENT),
    "GPT-OSS, sinks": ("gpt_oss", 0, {"num_hidden_layers": 2, "vocab_size": 32000, "pad_token_id": 0}),
}
"""Families of which everything that a layer keeps is described: type, layer and sizes."""
ONLY_EAGER = {"gemma2", "gpt_oss"}
"""Classes that run no fused kernel of torch's."""
CASES = [
    (name, how)
    for name, (kind, *_) in LAYERS.items()
    for how in ("sdpa", "eager")
    if (kind, how) not in {(k, "sdpa") for k in ONLY_EAGER}
]


def size_of(operations: tuple[Operation, ...]) -> int:
    return sum(tensor.size_bytes for operation in operations for tensor in operation.saves)


def described(job: TrainingJob, index: int) -> tuple[Operation, ...]:
    return layer_operations(job.model.layers[index], job, resolve(job, target()))


@pytest.mark.parametrize(("name", "implementation"), CASES)
def test_a_layer_keeps_what_torch_saves(name: str, implementation: str) -> None:
    kind, index, sizes = LAYERS[name]
    layer = layer_of(kind, index, tuple(sizes.items()))
    operations = described(job_of(configuration(kind, sizes), implementation), index)
    random = layer.random_bytes(implementation)
    assert size_of(operations) + random == layer.saved_bytes(implementation)


SHIFTED_LABELS = 8 * TOKENS
"""The loss reads a copy of the labels, int64, shifted by one."""
SUM_OF_WEIGHTS = 4
"""By which the loss divides."""
POSITIONS = 8 * SEQUENCE
"""An int64 for each position, an argument of every layer, which a checkpoint holds."""
WHOLE = {"Llama": ("llama", MODEL), "Qwen3-MoE": ("qwen3_moe", MODEL | SPARSE | {"head_dim": 128})}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("checkpointing", [False, True], ids=["", "gradient checkpointing"])
def test_a_model_keeps_what_torch_holds_between_forward_and_backward(name: str, checkpointing: bool) -> None:  # noqa: FBT001 - a case
    kind, sizes = WHOLE[name]
    job = job_of(configuration(kind, sizes), "sdpa")
    if checkpointing:
        every = Recompute(granularity=RecomputeGranularity.FULL, method=RecomputeMethod.UNIFORM, layers=1)
        job = replace(job, recompute=every)
    layout = resolve(job, target())
    ((chunk,),) = described_stages(job, layout)
    footprint = Footprints(job, shapes_of(job, layout)).chunk(chunk)
    kept = kept_of_model(kind, tuple(sizes.items()), checkpointing=checkpointing)
    random = 0 if checkpointing else FLASH_RANDOM_BYTES * len(job.model.layers)
    beside = SHIFTED_LABELS + SUM_OF_WEIGHTS + random + (POSITIONS if checkpointing else 0)
    assert footprint.saved + beside == kept.alive_bytes


def test_tables_of_rotations_are_kept_once() -> None:
    """Cosines and sines of 128 columns in bf16, whatever the number of layers."""
    job = job_of(configuration("llama", MODEL), "sdpa")
    layout = resolve(job, target())
    assert size_of(embedding_operations(job, layout)) == 2 * 2 * SEQUENCE * 128
    names = {tensor.name for index in range(2) for each in described(job, index) for tensor in each.saves}
    assert "rotary_tables" not in names
    assert size_of(output_operations(job, layout)) > 4 * TOKENS * MODEL["vocab_size"]


def test_a_kernel_with_a_window_of_its_own_needs_no_mask() -> None:
    sizes = MODEL | {"sliding_window": 1024}
    masked, own = (
        size_of(described(job_of(configuration("mistral", sizes), how), 0)) for how in ("sdpa", "flash_attention_2")
    )
    mask, repeated = 2 * BATCH * SEQUENCE**2, 2 * 2 * TOKENS * (32 - 8) * 128
    assert masked - own == mask + repeated


def test_forms_are_stated_of_known_families_and_each_is_compared_with_its_class() -> None:
    content: dict[str, Any] = dict(read_mapping(Path(catalog.__file__).parent / FILE))
    stated = set(content["families"])
    assert stated <= set(huggingface_facts().families)
    assert stated - {kind for kind, *_ in LAYERS.values()} == {"falcon"}  # it keeps two indices of its heads more
