"""Memory that public runs measured. State means weights, gradients and optimizer state.

Peaks of Megatron-LM's functional tests are those of the last pipeline stage, whose rank writes the log.
"""

import pytest

from projector.errors import ConfigurationError
from projector.projection import MemoryLevel, MemoryProjection, Projection, StageMemory, Verdict
from tests.cases.asking import (
    GIB,
    activations,
    content,
    experiment,
    file,
    gib,
    halves,
    measured,
    memory_of,
    part,
    text,
)

ALLOCATED, PERSISTENT = MemoryLevel.ALLOCATED, MemoryLevel.PERSISTENT


def state(stage: StageMemory) -> float:
    """GiB of weights, gradients and optimizer state."""
    return sum(part(stage, name) for name in ("weights", "gradients", "optimizer state")) / GIB


GPT_7B = "megatron/gpt3_7b_tp4_pp1_memory_speed.yaml"


@pytest.mark.parametrize(("device", "peak"), [("H100", 53.2), ("A100-80GB", 54.2), ("GB200", 54.2)])
def test_mem_01_gpt_7b_has_the_measured_state_and_peak(device: str, peak: float) -> None:
    stage = memory_of(file(GPT_7B, device=device)).worst
    assert state(stage) == pytest.approx(19.24, rel=0.02)
    assert gib(stage, PERSISTENT) == pytest.approx(19.24, rel=0.02)
    assert gib(stage, ALLOCATED) == pytest.approx(peak, rel=0.15)


def test_mem_01_three_gpus_need_the_same_and_have_different_limits() -> None:
    answers = [memory_of(file(GPT_7B, device=name)) for name in ("H100", "A100-80GB", "GB200")]
    peaks = [gib(answer.worst, ALLOCATED) for answer in answers]
    assert max(peaks) / min(peaks) < 1.02
    assert len({answer.device_capacity_bytes for answer in answers}) == 3


def test_mem_01_the_vocabulary_is_padded_and_runtime_paths_do_not_matter() -> None:
    answer = file(GPT_7B, device="H100")
    assert memory_of(answer).worst.parameters == pytest.approx(1.712e9, rel=0.001)
    assert {"save", "load", "tensorboard_dir", "data_cache_path"} <= set(answer.ignored)


GPT_15B = "megatron/gpt3_15b_8t_release.yaml"
PIECES = {"vocab_size": 256_000}
"""Of its SentencePiece model, which lies at a path that the file does not have."""


@pytest.mark.parametrize("device", ["H100", "A100-80GB"])
def test_mem_03_gpt_15b_on_128_gpus_has_the_measured_state_and_peak(device: str) -> None:
    stage = memory_of(file(GPT_15B, device=device, nodes=16, overrides=PIECES)).worst
    assert state(stage) == pytest.approx(12.3, rel=0.03)
    assert gib(stage, ALLOCATED) == pytest.approx(26.3, rel=0.15)


def test_mem_03_on_256_gpus_everything_that_stays_is_what_was_measured() -> None:
    """The file does not say how many GPUs ran: with twice as many the log's 12.36 and 26.23 GiB both come out."""
    stage = memory_of(file(GPT_15B, device="H100", nodes=32, overrides=PIECES)).worst
    assert gib(stage, PERSISTENT) == pytest.approx(12.36, rel=0.005)
    assert gib(stage, ALLOCATED) == pytest.approx(26.23, rel=0.005)


def gpt_15b(batch: str) -> Projection:
    """The file with these lines for its batch."""
    lines = [line for line in content(GPT_15B).splitlines() if "global-batch-size" not in line and "rampup" not in line]
    stated = "\n".join(lines).replace("MODEL_ARGS:", f"MODEL_ARGS:\n{batch}")
    return text(stated, name=GPT_15B, device="H100", nodes=16, overrides=PIECES)


def test_mem_03_a_schedule_of_batch_sizes_stands_for_a_global_batch() -> None:
    answer = gpt_15b('  --step-batch-size-schedule: "0:384 400B:1152"')
    assert answer.global_batch == 1152
    assert gib(memory_of(answer).worst, ALLOCATED) == pytest.approx(26.3, rel=0.15)


def test_mem_03_what_is_missing_is_shown_as_assumed_or_asked_for() -> None:
    nodes = file(GPT_15B, device="H100", overrides=PIECES)
    assert nodes.target.nodes == 1
    assert any("1 node(s) of 8 GPUs" in note.what for note in nodes.assumed)
    batch = gpt_15b("")
    assert batch.micro_batches == 1
    assert any("one micro batch per iteration" in note.what for note in batch.assumed)
    with pytest.raises(ConfigurationError, match=r"nemotron_2_256k.model' is not known; state vocab_size"):
        file(GPT_15B, device="H100")


MIXTRAL = "megatron/mixtral_8x7b_tp1pp4ep8vpp8_release.yaml"


@pytest.mark.parametrize(("device", "stays"), [("H100", 18.4), ("A100-80GB", 17.8)])
def test_mem_04_flags_beat_the_name_of_the_folder(device: str, stays: float) -> None:
    answer = file(MIXTRAL, device=device, nodes=8)
    last = memory_of(answer).stages[-1]
    assert (answer.layout.tensor, answer.layout.virtual_pipeline, answer.layout.data) == (2, 8, 8)
    assert gib(last, PERSISTENT) == pytest.approx(stays, rel=0.06)
    assert gib(last, ALLOCATED) == pytest.approx(33.2, rel=0.20)


def test_mem_04_mixtral_shards_expert_state_by_copies_of_experts() -> None:
    last = memory_of(file(MIXTRAL, device="H100", nodes=8)).stages[-1]
    # 8 layers with one expert each of 3 x 4096 x 14336 parameters; 2 copies of an expert, 8 of everything else.
    experts = 8 * 3 * 4096 * 14336
    assert part(last, "optimizer state") == pytest.approx(
        12 * (experts / 2 + (last.parameters - experts) / 8), rel=1e-6
    )


UNFUSED = "megatron/gpt3_mcore_te_tp2_pp2_ep4_etp1_memory_speed.yaml"
OFFLOADED = "megatron/gpt3_moe_mcore_te_tp2_pp2_ep4_etp1_fine_grained_offloading.yaml"
GPT2 = {"vocab_size": 50_257}
"""Of the vocabulary file that both name at a path of their own."""


def test_mem_07_unfused_attention_keeps_its_scores() -> None:
    unfused = memory_of(file(UNFUSED, device="H100", overrides=GPT2))
    flash = memory_of(file(UNFUSED, device="H100", overrides={**GPT2, "attention_backend": "flash"}))
    assert gib(unfused.stages[-1], PERSISTENT) == pytest.approx(6.18, rel=0.05)
    assert gib(unfused.stages[-1], ALLOCATED) == pytest.approx(55.0, rel=0.10)
    assert gib(unfused.worst, ALLOCATED) > 40
    same = flash.stages[unfused.worst.stage]
    assert gib(same, ALLOCATED) < 0.4 * gib(unfused.worst, ALLOCATED)


def test_mem_07_offloaded_activations_leave_the_measured_peak() -> None:
    answer = file(OFFLOADED, device="H100", overrides=GPT2)
    assert answer.layout.virtual_pipeline == 4
    stages = memory_of(answer).stages
    assert [len(stage.layers) for stage in stages] == [9, 6]
    assert gib(stages[-1], PERSISTENT) == pytest.approx(4.9, rel=0.05)
    assert gib(stages[-1], ALLOCATED) == pytest.approx(7.7, rel=0.06)


LAYOUTS = {
    "TP1 PP2": ("simumax-b200-llama3_70b_l12_tp1_pp2_dp4", 66.55, 843.0),
    "TP2": ("simumax-b200-llama3_70b_tp2_pp1_dp4_l12", 60.68, 725.5),
    "TP4": ("simumax-b200-llama3_70b_l12_tp4_pp1_dp2", 39.07, 409.8),
    "TP8": ("simumax-b200-llama3_70b_l12_tp8_pp1_dp1", 28.29, 280.9),
}


@pytest.mark.parametrize(("row", "peak", "_step"), LAYOUTS.values(), ids=LAYOUTS.keys())
def test_mem_09_peaks_do_not_depend_on_the_number_of_micro_batches(row: str, peak: float, _step: float) -> None:
    peaks = [gib(halves(*measured(f"{row}_mbc{count}"))[0].worst, ALLOCATED) for count in (4, 8, 32)]
    assert peaks == pytest.approx([peak] * 3, rel=0.05)
    assert len(set(peaks)) == 1


def test_mem_09_step_times_stand_in_the_measured_ratios() -> None:
    steps = {name: halves(*measured(f"{row}_mbc4"))[1].iteration_seconds for name, (row, _, _) in LAYOUTS.items()}
    ratios = {name: steps[name] / steps["TP1 PP2"] for name in LAYOUTS}
    assert ratios == pytest.approx({name: step / 843.0 for name, (_, _, step) in LAYOUTS.items()}, rel=0.15)


LONG = {
    "32k TP2 CP4": ("tp2_cp4_pp1_dp1_seq32768", 68.43),
    "32k TP1 CP8": ("tp1_cp8_pp1_dp1_seq32768", 104.51),
    "131k TP2 CP4": ("tp2_cp4_pp1_dp1_seq131072", 112.67),
    "131k TP1 CP8": ("tp1_cp8_pp1_dp1_seq131072", 147.99),
}


def long_sequence(row: str) -> MemoryProjection:
    return halves(*measured(f"simumax-b200-llama3_70b_l12_{row}_mbc4"))[0]


@pytest.mark.parametrize(("row", "peak"), LONG.values(), ids=LONG.keys())
def test_mem_11_long_sequences_have_the_measured_peak(row: str, peak: float) -> None:
    assert gib(long_sequence(row).worst, ALLOCATED) == pytest.approx(peak, rel=0.08)


def test_mem_11_context_parallelism_does_not_divide_weights() -> None:
    tensor, context = long_sequence(LONG["32k TP2 CP4"][0]).worst, long_sequence(LONG["32k TP1 CP8"][0]).worst
    assert part(context, "weights") == pytest.approx(2 * part(tensor, "weights"), rel=0.001)
    assert activations(context) == pytest.approx(activations(tensor), rel=0.01)


def titan(row: str) -> MemoryProjection:
    return halves(*measured(f"titan-8b-{row}"))[0]


def test_mem_13_more_shards_remove_the_measured_state() -> None:
    few, many = titan("fsdp8-eager").worst, titan("fsdp128-eager").worst
    assert 14 <= gib(few, MemoryLevel.RESERVED) - gib(many, MemoryLevel.RESERVED) <= 17


def test_mem_13_float8_does_not_halve_memory() -> None:
    assert gib(titan("fsdp8-compile+float8").worst, ALLOCATED) > 0.8 * gib(titan("fsdp8-compile").worst, ALLOCATED)


def test_mem_13_eager_fsdp_has_the_measured_reserved_memory() -> None:
    assert gib(titan("fsdp8-eager").worst, MemoryLevel.RESERVED) == pytest.approx(82.4, rel=0.12)


LLAMA_70B = {
    "tensor_model_parallel_size": 8,
    "sequence_parallel": True,
    "micro_batch_size": 8,
    "global_batch_size": 64,
    "seq_length": 2048,
}
WHOLE_LAYERS = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}


def test_mem_15_llama_70b_on_one_node_fits_only_with_full_recomputation() -> None:
    plain = memory_of(experiment(LLAMA_70B, model="llama2_70B.yaml", device="MI300X"))
    again = memory_of(experiment({**LLAMA_70B, **WHOLE_LAYERS}, model="llama2_70B.yaml", device="MI300X"))
    assert 140 <= state(plain.worst) <= 150
    assert plain.verdict is Verdict.DOES_NOT_FIT
    assert again.verdict in {Verdict.FITS, Verdict.AT_RISK}
    assert 0.75 <= again.worst.device_bytes / (192 * GIB) <= 0.85


BRIDGE = {
    # The source prints layout, batch and format; the rest is Megatron-Bridge's performance recipes: fp8 weights,
    # gradients reduced in bf16, Transformer Engine's loss.
    "micro_batch_size": 1,
    "global_batch_size": 32,
    "seq_length": 4096,
    "sequence_parallel": True,
    "fp8": "hybrid",
    "fp8_recipe": "tensorwise",
    "fp8_param_gather": True,
    "grad_reduce_in_bf16": True,
    "cross_entropy_loss_fusion": True,
    "cross_entropy_fusion_impl": "te",
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
    "create_attention_mask_in_dataloader": False,
}


def bridge(tensor: int, pipeline: int, chunks: int, *, again: tuple[str, ...] = ()) -> MemoryProjection:
    """Llama 3 70B on 32 H100, with these modules recomputed."""
    layout = {
        "tensor_model_parallel_size": tensor,
        "pipeline_model_parallel_size": pipeline,
        "num_virtual_stages_per_pipeline_rank": chunks,
    }
    recompute = {"recompute_granularity": "selective", "recompute_modules": list(again)} if again else {}
    return memory_of(experiment({**BRIDGE, **layout, **recompute}, model="llama3_70B.yaml", device="H100", nodes=4))


@pytest.mark.parametrize(
    ("layout", "again", "peak"),
    [
        pytest.param((4, 4, 5), (), 58.8, id="baseline"),
        pytest.param((4, 8, 5), (), 53.2, id="more pipeline"),
        pytest.param((4, 4, 10), (), 60.2, id="more chunks"),
        pytest.param((4, 4, 5), ("mlp",), 55.6, id="mlp recomputed"),
        pytest.param(
            (8, 4, 5),
            (),
            50.2,
            id="more tensor",
            marks=pytest.mark.xfail(
                strict=True,
                reason="44.7 GiB: the run kept as much beside its state at TP 8 as at TP 4, which divided activations "
                "do not; its recipe is not printed",
            ),
        ),
    ],
)
def test_mem_17_llama_70b_in_fp8_has_the_measured_peak(
    layout: tuple[int, int, int], again: tuple[str, ...], peak: float
) -> None:
    assert gib(bridge(*layout, again=again).worst, ALLOCATED) == pytest.approx(peak, rel=0.10)


def test_mem_17_reserved_memory_has_a_margin_of_its_own() -> None:
    stage = bridge(4, 4, 5).worst
    assert part(stage, "allocator slack") > 0
    assert stage.device_bytes_upper > stage.device_bytes > stage.level_bytes(ALLOCATED)
