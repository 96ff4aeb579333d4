"""Parameter counts equal those of published models, to the last parameter."""

import pytest

from projector import catalog
from projector.job import (
    Attention,
    DecoderLayer,
    DenseMLP,
    LatentAttention,
    MixtureOfExperts,
    ModelArchitecture,
    NormKind,
    Parallelism,
    PositionKind,
)
from projector.memory import count_parameters, project_memory
from projector.parallelism import resolve
from tests.layers.builders import DENSE, job, mixtral, model, target


def grouped(heads: int, groups: int, dim: int, **changes: bool) -> Attention:
    return Attention(heads=heads, key_value_heads=groups, head_dim=dim, **changes)


def latent(heads: int, rank: int | None) -> LatentAttention:
    return LatentAttention(
        heads=heads,
        query_lora_rank=rank,
        key_value_lora_rank=512,
        query_key_nope_dim=128,
        query_key_rope_dim=64,
        value_dim=128,
    )


def deep_seek(
    attention: LatentAttention, dense: int, ffn: int, moe: MixtureOfExperts, layers: int
) -> list[DecoderLayer]:
    first = DecoderLayer(mixer=attention, feed_forward=DenseMLP(ffn=ffn))
    rest = DecoderLayer(mixer=attention, feed_forward=moe)
    return [first] * dense + [rest] * (layers - dense)


GPT2_LAYER = DecoderLayer(
    mixer=grouped(12, 12, 64, bias_qkv=True, bias_output=True),
    feed_forward=DenseMLP(ffn=3072, gated=False, bias=True),
)

PUBLISHED: dict[str, tuple[ModelArchitecture, int]] = {
    "meta-llama/Meta-Llama-3-8B": (
        model([DecoderLayer(mixer=grouped(32, 8, 128), feed_forward=DenseMLP(ffn=14336))] * 32, hidden=4096),
        8_030_261_248,
    ),
    "meta-llama/Llama-3.1-70B": (model(), 70_553_706_496),
    "Qwen/Qwen2.5-0.5B, tied, biases on q, k and v": (
        model(
            [DecoderLayer(mixer=grouped(14, 2, 64, bias_qkv=True), feed_forward=DenseMLP(ffn=4864))] * 24,
            hidden=896,
            vocabulary=151936,
            tied_embeddings=True,
        ),
        494_032_768,
    ),
    "Qwen/Qwen3-0.6B, tied, query and key norms": (
        model(
            [DecoderLayer(mixer=grouped(16, 8, 128, query_key_norm=True), feed_forward=DenseMLP(ffn=3072))] * 28,
            hidden=1024,
            vocabulary=151936,
            tied_embeddings=True,
        ),
        596_049_920,
    ),
    "openai-community/gpt2, learned positions": (
        model(
            [GPT2_LAYER] * 12,
            hidden=768,
            vocabulary=50257,
            tied_embeddings=True,
            norm=NormKind.LAYER,
            position=PositionKind.LEARNED,
            max_position=1024,
        ),
        124_439_808,
    ),
    "mistralai/Mixtral-8x22B-v0.1 with 32,000 pieces": (mixtral(), 140_620_634_112),
    "deepseek-ai/DeepSeek-V2-Lite": (
        model(
            deep_seek(
                latent(16, None), 1, 10944, MixtureOfExperts(experts=64, top_k=6, expert_ffn=1408, shared_ffn=2816), 27
            ),
            hidden=2048,
            vocabulary=102400,
        ),
        15_706_484_224,
    ),
    "deepseek-ai/DeepSeek-V3": (
        model(
            deep_seek(
                latent(128, 1536),
                3,
                18432,
                MixtureOfExperts(experts=256, top_k=8, expert_ffn=2048, shared_ffn=2048, router_balance_bias=True),
                61,
            ),
            hidden=7168,
            vocabulary=129280,
        ),
        671_026_404_352,
    ),
}


@pytest.mark.parametrize(("architecture", "total"), PUBLISHED.values(), ids=PUBLISHED)
def test_total(architecture: ModelArchitecture, total: int) -> None:
    asked = job(architecture)
    assert count_parameters(asked, resolve(asked, target())).total == total


@pytest.mark.parametrize(("architecture", "total"), PUBLISHED.values(), ids=PUBLISHED)
def test_no_layout_changes_the_total_and_components_add_up(architecture: ModelArchitecture, total: int) -> None:
    experts = any(isinstance(layer.feed_forward, MixtureOfExperts) for layer in architecture.layers)
    layout = Parallelism(tensor=2, pipeline=2, expert=2 if experts else 1, expert_tensor=1)
    asked = job(architecture, layout=layout)
    counts = count_parameters(asked, resolve(asked, target()))
    assert counts.total == total
    assert sum(row.parameters for row in counts.components) == total


def test_padding_and_prediction_layers_are_stated_apart() -> None:
    """DeepSeek-V3's module has 11.5 B parameters of its own beside shared table and head (arXiv 2412.19437)."""
    architecture, total = PUBLISHED["deepseek-ai/DeepSeek-V3"]
    changed = model(architecture.layers, hidden=7168, vocabulary=129280, multi_token_prediction_layers=1)
    asked = job(changed, layout=Parallelism(tensor=8))
    counts = count_parameters(asked, resolve(asked, target()))
    layer = 11_507_286_016 + 3 * 7168
    assert counts.total == total
    assert counts.vocabulary_padding == 2 * 7168 * (-129280 % 1024)
    assert counts.multi_token_prediction == layer + 2 * 7168 * 7168


def test_active_parameters_count_top_k_experts_and_the_output_layer_once() -> None:
    """DeepSeek-V3 activates 37 B (arXiv 2412.19437), the token table not counted among them."""
    architecture, total = PUBLISHED["deepseek-ai/DeepSeek-V3"]
    asked = job(architecture)
    active = count_parameters(asked, resolve(asked, target())).active
    assert active == total - 129280 * 7168 - 58 * (256 - 8) * 3 * 7168 * 2048
    assert 36.5e9 < active < 37.5e9


def test_the_fullest_device_is_found_stage_by_stage() -> None:
    """Averaging over stages reports too little: NVIDIA-NeMo/Megatron-Bridge PR 5077."""
    layout = Parallelism(pipeline=4, pipeline_layout="Et|tt|tt|tttL")
    asked = job(model((DENSE,) * 8), layout=layout)
    counts = count_parameters(asked, resolve(asked, target()))
    layer, table = 855_654_400, 128256 * 8192
    assert counts.per_device_max == 3 * layer + table + 8192
    assert counts.per_device_max > counts.total / 4


def test_a_stage_of_its_own_for_prediction_holds_copies_of_table_and_head() -> None:
    """Megatron-LM gpt_model.py builds both where `mtp_process`."""
    architecture = model((DENSE,) * 3, vocabulary=128 * 1000, multi_token_prediction_layers=1)
    layout = Parallelism(pipeline=4, pipeline_layout="Et|tt|m|L")
    asked = job(architecture, layout=layout)
    resolved = resolve(asked, target())
    stages = project_memory(asked, resolved, catalog.device("MI300X")).stages
    table, layer, joining = 128 * 1000 * 8192, 855_654_400, 2 * 8192 * 8192 + 3 * 8192
    assert [stage.parameters for stage in stages] == [
        table + layer,
        2 * layer,
        layer + joining + 2 * table,
        8192 + table,
    ]
    assert count_parameters(asked, resolved).total == 3 * layer + 2 * table + 8192
