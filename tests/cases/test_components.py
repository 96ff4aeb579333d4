"""Single terms of memory that other tools got wrong."""

from itertools import pairwise

import pytest

from projector.errors import LayoutImpossible
from projector.projection import MemoryLevel, MemoryProjection, Projection, Verdict
from tests.cases.asking import GIB, activations, experiment, gib, memory_of, part, text
from tests.cases.torchtitan import toml

ALLOCATED = MemoryLevel.ALLOCATED
TOY = {
    "num_layers": 8,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "vocab_size": 32000,
    "untie_embeddings_and_output_weights": True,
    "micro_batch_size": 1,
    "global_batch_size": 64,
    "seq_length": 2048,
    "bf16": True,
    "use_distributed_optimizer": True,
    "attention_backend": "flash",
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
    "create_attention_mask_in_dataloader": False,
}
"""A small GPT with Megatron-LM's defaults."""


def toy(**changes: object) -> Projection:
    return experiment({**TOY, **changes}, device="H100", nodes=1)


def test_cmp_01_the_heaviest_stage_is_found_stage_by_stage() -> None:
    layout = {"pipeline_model_parallel_size": 4, "pipeline_model_parallel_layout": "Et|tt|tt|tttL"}
    answer = toy(**layout)
    stages = memory_of(answer).stages
    layer = 12 * 1024**2 + 13 * 1024
    table = 32_000 * 1024
    # The first stage has learned positions too; the last the final norm.
    assert [stage.parameters for stage in stages[1:]] == [2 * layer, 2 * layer, 3 * layer + table + 2 * 1024]
    assert stages[0].parameters >= layer + table
    assert answer.parameters.per_device_max == stages[3].parameters
    assert answer.parameters.per_device_max > 1.2 * sum(stage.parameters for stage in stages) / 4


LOGITS = {
    "8,192 tokens": (8192, 151_936, 1, 4.64),
    "9,216 tokens, TP2": (9216, 248_320, 2, 2 * 2.13),
}


@pytest.mark.parametrize(("tokens", "vocabulary", "tensor", "size"), LOGITS.values(), ids=LOGITS.keys())
def test_cmp_03_the_fp32_copy_of_logits_sits_on_the_last_stage_only(
    tokens: int, vocabulary: int, tensor: int, size: float
) -> None:
    layout = {"pipeline_model_parallel_size": 2, "tensor_model_parallel_size": tensor}
    stages = memory_of(toy(**layout, seq_length=tokens, vocab_size=vocabulary, make_vocab_size_divisible_by=1)).stages
    loss = [part(stage, "saved activations: loss") / GIB for stage in stages]
    assert loss == pytest.approx([0, size], rel=0.03)


def test_cmp_03_fusing_the_loss_removes_the_copy_and_chunking_the_logits() -> None:
    def logits(**fusion: object) -> int:
        stage = memory_of(toy(seq_length=65_536, vocab_size=128_000, global_batch_size=8, **fusion)).worst
        names = ("saved activations: loss", "saved activations: output_layer")
        # The output layer's input, 65,536 x 1,024 in bf16, stays in every case.
        return sum(part(stage, name) for name in names) - 2 * 65_536 * 1024

    table = 65_536 * 128_000
    assert logits() == 4 * table
    assert logits(cross_entropy_loss_fusion=True, cross_entropy_fusion_impl="te") == 2 * table
    assert logits(enable_fused_linear_ce=True) <= 0


WEIGHTS: dict[str, tuple[str, dict[str, object], float, float]] = {
    "bf16": ("B200", {}, 2.0, 2.0),
    "fp8 beside bf16": ("H100", {"fp8": "hybrid", "fp8_recipe": "tensorwise"}, 3.0, 4.0),
    "fp8 alone": ("H100", {"fp8": "hybrid", "fp8_recipe": "tensorwise", "fp8_param_gather": True}, 1.0, 2.0),
    "fp8 alone, one copy": ("B200", {"fp8": "hybrid", "fp8_recipe": "tensorwise", "fp8_param_gather": True}, 1.0, 1.1),
    "mxfp8 alone": ("B200", {"fp8": "hybrid", "fp8_recipe": "mxfp8", "fp8_param_gather": True}, 2.0, 2.1),
}


@pytest.mark.parametrize(("device", "flags", "least", "most"), WEIGHTS.values(), ids=WEIGHTS.keys())
def test_cmp_04_fp8_does_not_halve_weights(device: str, flags: dict[str, object], least: float, most: float) -> None:
    asked = {"micro_batch_size": 1, "global_batch_size": 64, "seq_length": 4096, **flags}
    stage = memory_of(experiment(asked, model="qwen3_32B.yaml", device=device, performance=False)).worst
    size = part(stage, "weights") + part(stage, "low-precision weight copies")
    assert least <= size / stage.parameters <= most


def routed(**changes: object) -> MemoryProjection:
    asked = {
        "micro_batch_size": 1,
        "global_batch_size": 64,
        "seq_length": 4096,
        "expert_model_parallel_size": 8,
        "moe_router_force_load_balancing": False,
        **changes,
    }
    return memory_of(experiment(asked, model="mixtral_8x7B_v0.1.yaml", device="MI300X", performance=False))


def test_cmp_06_real_routing_has_a_margin_and_forced_balance_none() -> None:
    real, forced = routed().worst, routed(moe_router_force_load_balancing=True).worst
    experts = "saved activations: experts"
    assert part(real, experts) > part(forced, experts)
    assert real.device_bytes_upper - real.device_bytes > forced.device_bytes_upper - forced.device_bytes


@pytest.mark.parametrize("factor", [1.5, 2.0, 4.0])
def test_cmp_06_expert_activations_grow_with_the_rows_that_arrive(factor: float) -> None:
    experts = "saved activations: experts"
    once, more = (
        part(routed(moe_expert_capacity_factor=each, moe_pad_expert_input_to_capacity=True).worst, experts)
        for each in (1.0, factor)
    )
    assert more == pytest.approx(factor * once, rel=0.01)


def kept_by_first_stage(accumulated: int, pipeline: int) -> int:
    answer = toy(pipeline_model_parallel_size=pipeline, global_batch_size=accumulated * (8 // pipeline))
    return activations(memory_of(answer).stages[0])


def test_cmp_10_accumulation_costs_memory_until_the_pipeline_is_full() -> None:
    assert kept_by_first_stage(2, 8) == pytest.approx(2 * kept_by_first_stage(1, 8), rel=0.01)
    assert kept_by_first_stage(16, 8) == kept_by_first_stage(8, 8)


def test_cmp_10_the_first_of_equal_stages_needs_most_activations() -> None:
    kept = [activations(stage) for stage in memory_of(toy(pipeline_model_parallel_size=8)).stages]
    assert kept.index(max(kept)) == 0


def test_cmp_11_context_parallelism_equals_halving_the_batch() -> None:
    small = {"hidden_size": 512, "num_attention_heads": 8, "vocab_size": 50257, "position_embedding_type": "rope"}
    whole = memory_of(toy(**small, micro_batch_size=4)).worst
    halved = memory_of(toy(**small, micro_batch_size=2)).worst
    shared = memory_of(toy(**small, micro_batch_size=4, context_parallel_size=2)).worst
    assert shared.parameters == whole.parameters
    assert activations(shared) == pytest.approx(activations(whole) / 2, rel=0.01)
    assert gib(shared, ALLOCATED) == pytest.approx(gib(halved, ALLOCATED), rel=0.01)


def test_cmp_13_offloading_with_a_pipeline_is_refused() -> None:
    with pytest.raises(LayoutImpossible, match=r"activations cannot be offloaded .* with 2 pipeline stages"):
        toy(cpu_offloading=True, pipeline_model_parallel_size=2)


def test_cmp_13_offloading_without_a_pipeline_is_allowed_and_gets_no_verdict() -> None:
    answer = toy(cpu_offloading=True)
    assert memory_of(answer).verdict is Verdict.UNKNOWN
    assert any("offloading" in note.what for note in answer.unmodelled)


def test_mem_19_each_doubling_of_nodes_removes_half_of_the_sharded_state() -> None:
    run = toml("qwen3", "30B-A3B", micro=8, sequence=4096, expert=8)

    def peak(nodes: int) -> float:
        answer = text(run, name="qwen3_30b_a3b.toml", device="B200", nodes=nodes)
        return gib(memory_of(answer).worst, MemoryLevel.RESERVED)

    peaks = [peak(nodes) for nodes in (1, 2, 4, 8)]
    removed = [before - after for before, after in pairwise(peaks)]
    assert removed == pytest.approx([58 / 2, 58 / 4, 58 / 8], rel=0.05)
