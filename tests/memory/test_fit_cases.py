"""Verdicts on configurations whose outcome is public."""

from dataclasses import replace

import pytest

from projector import catalog
from projector.job import (
    Attention,
    CrossEntropy,
    DecoderLayer,
    DenseMLP,
    LatentAttention,
    MixtureOfExperts,
    Parallelism,
    Recompute,
    RecomputeGranularity,
    RecomputeMethod,
    Software,
    TrainingJob,
)
from projector.memory import project_memory
from projector.parallelism import resolve
from projector.projection import MemoryLevel, MemoryProjection, Verdict
from tests.layers.builders import DENSE, job, model, target

GIB = 2**30
LOGITS = ("saved activations: output_layer", "saved activations: loss")
"""Where logits are counted: kept by the layer that made them, or as an fp32 copy by the loss."""
FULL = Recompute(granularity=RecomputeGranularity.FULL, method=RecomputeMethod.UNIFORM, layers=1)


def projected(asked: TrainingJob, device: str, nodes: int = 1) -> MemoryProjection:
    return project_memory(asked, resolve(asked, target(nodes=nodes)), catalog.device(device))


def seven_billion() -> TrainingJob:
    layer = DecoderLayer(mixer=Attention(heads=32, key_value_heads=32, head_dim=128), feed_forward=DenseMLP(ffn=11008))
    return job(model((layer,) * 32, hidden=4096, vocabulary=32000), micro=2, global_=128)


def test_a_7b_model_on_8_gpus() -> None:
    """NVIDIA/Megatron-LM issue 597: about 47 GiB of state, above 80 GiB with activations and logits."""
    on_a100, on_mi300x = projected(seven_billion(), "A100-80GB"), projected(seven_billion(), "MI300X")
    assert 46 < on_a100.worst.level_bytes(MemoryLevel.PERSISTENT) / GIB < 49
    assert on_a100.verdict in (Verdict.DOES_NOT_FIT, Verdict.AT_RISK)
    assert on_mi300x.verdict is Verdict.FITS


def test_llama_70b_on_one_node_fits_only_with_full_recomputation() -> None:
    """ROCm/Megatron-LM PR 45: TP 8 on 8x MI300X, micro batch 8 of 2,048 tokens, 78.56 % of the card."""
    plain = job(micro=8, sequence=2048, layout=Parallelism(tensor=8))
    again = replace(plain, recompute=FULL)
    assert projected(plain, "MI300X").verdict is Verdict.DOES_NOT_FIT
    memory = projected(again, "MI300X")
    assert memory.worst.level_bytes(MemoryLevel.PERSISTENT) / GIB == pytest.approx(147, abs=3)
    assert memory.verdict in (Verdict.FITS, Verdict.AT_RISK)


def deep_seek_v3() -> tuple[DecoderLayer, ...]:
    mixer = LatentAttention(
        heads=128,
        query_lora_rank=1536,
        key_value_lora_rank=512,
        query_key_nope_dim=128,
        query_key_rope_dim=64,
        value_dim=128,
    )
    moe = MixtureOfExperts(experts=256, top_k=8, expert_ffn=2048, shared_ffn=2048)
    dense = DecoderLayer(mixer=mixer, feed_forward=DenseMLP(ffn=18432))
    return (dense,) * 3 + (DecoderLayer(mixer=mixer, feed_forward=moe),) * 58


def test_deepseek_v3_over_8_stages_of_mi300x_does_not_fit_and_stages_differ() -> None:
    """AMD-AGI/Primus PR 362 printed the same parameters for every stage and no verdict."""
    architecture = model(deep_seek_v3(), hidden=7168, vocabulary=129280, multi_token_prediction_layers=1)
    asked = job(architecture, global_=128, layout=Parallelism(pipeline=8, expert=8))
    memory = projected(asked, "MI300X", nodes=8)
    assert memory.verdict is Verdict.DOES_NOT_FIT
    assert len({memory.stages[rank].parameters for rank in (0, 4, 7)}) == 3
    assert memory.worst.stage in range(8)


@pytest.mark.parametrize("nodes", [4, 8])
def test_deepseek_v3_cannot_be_tuned_whole_on_64_a100(nodes: int) -> None:
    """deepseek-ai/DeepSeek-V3 issue 109: 6 bytes a parameter already exceed 32, all of Adam 64 GPUs of 80 GB."""
    architecture = model(deep_seek_v3(), hidden=7168, vocabulary=129280)
    asked = job(architecture, global_=128, layout=Parallelism(expert=32), recompute=FULL)
    assert projected(asked, "A100-80GB", nodes=nodes).verdict is Verdict.DOES_NOT_FIT


@pytest.mark.parametrize(("tokens", "vocabulary", "tensor", "gib"), [(8192, 151936, 1, 4.64), (9216, 248320, 2, 4.25)])
def test_the_fp32_copy_of_logits(tokens: int, vocabulary: int, tensor: int, gib: float) -> None:
    """NVIDIA-NeMo/Automodel issue 3907: 4.64 GiB; verl PR 7826: 2.13 GB a rank in bf16 at TP 2, twice that in fp32."""

    def loss(fusion: CrossEntropy) -> float:
        asked = job(
            model((DENSE,) * 2, vocabulary=vocabulary),
            sequence=tokens,
            layout=Parallelism(tensor=tensor),
            software=Software(cross_entropy=fusion),
        )
        parts = projected(asked, "MI300X").stages[-1].components
        kept = sum(part.size_bytes for part in parts if part.name in LOGITS)
        return (kept - 2 * tokens // tensor * 8192) / GIB

    assert loss(CrossEntropy.UNFUSED) == pytest.approx(gib, rel=0.03)
    assert loss(CrossEntropy.TRANSFORMER_ENGINE) == pytest.approx(gib / 2, rel=0.03)
    assert loss(CrossEntropy.LINEAR_FUSED) <= 0
