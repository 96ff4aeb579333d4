"""What must hold for every projection, whatever the constants are."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projector.catalog import HardwareOverrides, device
from projector.errors import ConfigurationError
from projector.job import (
    Dialect,
    LowPrecision,
    Optimizer,
    OptimizerKind,
    Precision,
    Recompute,
    RecomputeGranularity,
    RecomputeMethod,
    Schedule,
    Sharding,
    Software,
    TrainingJob,
)
from projector.performance.clock import settled_gain
from tests.performance.jobs import LLAMA_8B, LLAMA_70B, MIXTRAL, a_job, part, project

FULL = RecomputeGranularity.FULL
EAGER = Software()


@st.composite
def jobs(draw: st.DrawFn) -> tuple[TrainingJob, int]:
    """Any layout of a dense or a mixture model on up to eight nodes."""
    model = draw(st.sampled_from([LLAMA_8B, MIXTRAL]))
    tensor, pipeline, context = (draw(st.sampled_from([1, 2, 4])) for _ in range(3))
    chunks = draw(st.sampled_from([1, 2])) if pipeline > 1 else 1
    expert = draw(st.sampled_from([1, 2])) if model is MIXTRAL else 1
    job = a_job(
        model,
        batch=256,
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        virtual_pipeline=chunks,
        expert=expert,
        expert_tensor=1,
        sequence_parallel=draw(st.booleans()) or model is MIXTRAL,
        sharding=draw(st.sampled_from(list(Sharding))),
        software=Software(overlap_gradient_reduce=draw(st.booleans()), overlap_tensor_parallel=draw(st.booleans())),
    )
    return job, draw(st.sampled_from([8, 16]))


@given(jobs())
@settings(deadline=None, max_examples=60)
def test_the_waterfall_adds_up_and_tokens_are_those_of_the_batch(drawn: tuple[TrainingJob, int]) -> None:
    job, nodes = drawn
    found = project(job, nodes=nodes)
    assert sum(step.seconds for step in found.waterfall) == pytest.approx(found.iteration_seconds, rel=1e-12)
    assert all(step.seconds >= -1e-9 for step in found.waterfall), found.waterfall
    tokens = (job.batch.global_ or 0) * job.batch.sequence_length
    assert found.tokens_per_second_per_device * nodes * 8 * found.iteration_seconds == pytest.approx(tokens)
    assert 0 <= found.bubble_ratio < 1
    assert 0 < found.mfu < 1
    assert all(0 <= row.exposed_seconds <= row.seconds * (1 + 1e-9) + 1e-12 for row in found.communication)


@given(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]))
@settings(deadline=None)
def test_more_micro_batches_lower_the_bubble(factor: int, chunks: int) -> None:
    few = project(a_job(batch=16 * factor, pipeline=4, virtual_pipeline=chunks))
    many = project(a_job(batch=64 * factor, pipeline=4, virtual_pipeline=chunks))
    assert many.bubble_ratio < few.bubble_ratio
    assert many.tokens_per_second_per_device > few.tokens_per_second_per_device


@pytest.mark.parametrize("name", ["MI300X", "MI325X", "MI355X", "H100-SXM-80GB", "B200"])
def test_fp8_is_faster_than_bf16_but_not_twice_as_fast(name: str) -> None:
    wide = a_job(micro=2)
    narrow = replace(wide, precision=Precision(low_precision=LowPrecision.FP8))
    assert 1.15 < project(wide, name).iteration_seconds / project(narrow, name).iteration_seconds < 1.8


def test_tensor_parallel_communication_grows_with_its_degree_and_overlap_hides_some() -> None:
    shares = []
    for tensor in (1, 2, 4, 8):
        found = project(a_job(LLAMA_70B, tensor=tensor, software=EAGER))
        shares.append(part(found, "exposed tensor-parallel communication") / found.iteration_seconds)
    assert shares[0] == 0
    assert shares == sorted(shares)
    overlapped = project(a_job(LLAMA_70B, tensor=8, software=Software(overlap_tensor_parallel=True)))
    plain = project(a_job(LLAMA_70B, tensor=8, software=EAGER))
    name = "exposed tensor-parallel communication"
    assert part(overlapped, name) < part(plain, name) / 2


def test_context_parallelism_divides_attention_time_once_and_needs_an_exchange() -> None:
    whole, halved = (project(a_job(sequence=32768, batch=32, context=degree)) for degree in (1, 2))
    # Half the data-parallel ranks: each runs twice the micro batches, and each takes half the time.
    assert part(halved, "attention") == pytest.approx(part(whole, "attention"), rel=0.1)
    assert any(row.group == "context" for row in halved.communication)
    assert not any(row.group == "context" for row in whole.communication)


@pytest.mark.parametrize(("degree", "micro_batches"), [(1, 16), (2, 32), (4, 64)])
def test_context_parallelism_leaves_more_micro_batches_to_each_rank(degree: int, micro_batches: int) -> None:
    found = project(a_job(batch=128, pipeline=2, context=degree), nodes=2)
    assert found.schedule.stages[1].peak_in_flight == 1
    assert found.schedule.stages[0].peak_in_flight == 2
    per_micro_batch = found.iteration_seconds / micro_batches
    assert per_micro_batch * degree == pytest.approx(
        project(a_job(batch=128, pipeline=2)).iteration_seconds / 32, rel=0.2
    )


def test_links_of_a_hardware_file_reach_the_layers() -> None:
    job = a_job(LLAMA_70B, tensor=8, software=EAGER)
    times = [
        next(row for row in project(job, overrides=overrides).layer_times if row.name == "dense layer").forward_seconds
        for overrides in (
            HardwareOverrides(node_bytes_per_second=4480e9),
            None,
            HardwareOverrides(node_bytes_per_second=100e9),
        )
    ]
    assert times == sorted(times)
    assert times[2] > 1.5 * times[1]


def test_links_between_nodes_decide_expert_parallelism_across_them() -> None:
    job = a_job(MIXTRAL, batch=256, expert=8, expert_tensor=1, tensor=2, software=EAGER)
    slow = HardwareOverrides(network_bytes_per_second=5e9)
    assert project(job, nodes=4, overrides=slow).iteration_seconds > 1.2 * project(job, nodes=4).iteration_seconds


def recompute_costs(recompute: Recompute) -> float:
    """Seconds that recomputation adds to an iteration of the 8B model."""
    return project(a_job(job={"recompute": recompute})).iteration_seconds - project(a_job()).iteration_seconds


def test_uniform_full_recomputation_costs_a_forward_pass_of_every_layer() -> None:
    found = project(a_job())
    forward = next(row for row in found.layer_times if row.name == "dense layer").forward_seconds
    uniform = Recompute(granularity=FULL, method=RecomputeMethod.UNIFORM, layers=1)
    assert recompute_costs(uniform) == pytest.approx(16 * 32 * forward, rel=1e-6)


@pytest.mark.parametrize("layers", [0, 1, 16, 32])
def test_block_recomputation_costs_a_forward_pass_of_the_layers_it_takes(layers: int) -> None:
    uniform = recompute_costs(Recompute(granularity=FULL, method=RecomputeMethod.UNIFORM, layers=1))
    block = recompute_costs(Recompute(granularity=FULL, method=RecomputeMethod.BLOCK, layers=layers))
    listed = recompute_costs(Recompute(granularity=FULL, layer_ids=tuple(range(layers))))
    assert block == pytest.approx(uniform * layers / 32, rel=1e-6, abs=1e-9)
    assert listed == pytest.approx(block, rel=1e-9, abs=1e-12)


def test_selective_recomputation_costs_attention_alone() -> None:
    selective = recompute_costs(Recompute(granularity=RecomputeGranularity.SELECTIVE))
    assert 0 < selective < 0.4 * part(project(a_job()), "attention")


def test_recomputation_is_not_counted_as_model_work() -> None:
    uniform = Recompute(granularity=FULL, method=RecomputeMethod.UNIFORM, layers=1)
    plain, recomputed = project(a_job()), project(a_job(job={"recompute": uniform}))
    work = [found.tflops_per_device * found.iteration_seconds for found in (plain, recomputed)]
    assert work[0] == pytest.approx(work[1])


def test_model_work_is_six_per_parameter_and_token_plus_attention() -> None:
    found = project(a_job())
    tokens = found.tokens_per_second_per_device
    attention = 6 * 32 * 8192 * 4096  # six per layer, token, half of the keys and both widths of 4096
    weights = 32 * (4096 * (4096 + 1024) * 2 + 3 * 4096 * 14336) + 4096 * 128256
    assert found.tflops_per_device * 1e12 == pytest.approx(tokens * (6 * weights + attention), rel=1e-3)


def test_fewer_micro_batches_than_stages_take_the_sum_of_their_path() -> None:
    found = project(a_job(batch=8, pipeline=8, tensor=1), nodes=8)
    passes = sum((row.forward_seconds + row.backward_seconds) * row.count for row in found.layer_times)
    assert found.iteration_seconds > passes
    assert found.bubble_ratio == pytest.approx(7 / 8, abs=0.02)


def test_all_compares_every_schedule_of_the_layout_and_keeps_what_would_run() -> None:
    found = project(a_job(batch=128, pipeline=4), nodes=2, schedule="all")
    assert found.schedule.name == "1f1b"
    assert [row.name for row in found.compared_schedules] == ["zerobubble-heuristic", "zerobubble", "1f1b"]
    shown = next(row for row in found.compared_schedules if row.name == "1f1b")
    assert shown.iteration_seconds == pytest.approx(found.iteration_seconds)


def test_a_folded_schedule_is_compared_and_places_the_loss_on_the_first_rank() -> None:
    job = a_job(batch=128, pipeline=4, virtual_pipeline=2)
    found = project(job, schedule="all")
    fastest, *others = [row.name for row in found.compared_schedules]
    assert fastest == "zbv-formatted"
    assert sorted(others) == ["1f1b-interleaved", "zbv-greedy-half", "zbv-greedy-min"]
    folded = project(job, schedule="zbv-formatted")
    assert folded.schedule.stages[0].busy_seconds > 1.05 * folded.schedule.stages[3].busy_seconds
    stated = project(replace(job, schedule=Schedule.ZBV_FORMATTED))
    assert stated.iteration_seconds == pytest.approx(folded.iteration_seconds)


def test_the_stated_schedule_runs_and_one_that_is_not_known_is_refused() -> None:
    job = a_job(batch=128, pipeline=4, job={"schedule": Schedule.ZERO_BUBBLE})
    assert project(job).schedule.name == "zerobubble"
    assert project(job, schedule="1f1b").schedule.name == "1f1b"
    assert project(job, schedule="zerobubble-heuristic").schedule.name == "zerobubble-heuristic"
    with pytest.raises(ConfigurationError, match="'hourglass'; one of auto, all, 1f1b"):
        project(job, schedule="hourglass")


def test_a_schedule_by_integer_programming_that_is_not_solved_is_called_the_heuristic() -> None:
    """The program of 4 stages and 32 micro batches is too large, with or without a solver."""
    found = project(a_job(batch=128, pipeline=4), schedule="seaailab-ilp")
    assert found.schedule.name == "zerobubble-heuristic"


def test_pytorch_compares_its_own_schedules() -> None:
    titan = a_job(batch=128, pipeline=4, virtual_pipeline=2, software=Software(dialect=Dialect.TORCHTITAN))
    names = {row.name for row in project(titan, schedule="all").compared_schedules}
    assert names == {"zbv-formatted", "1f1b-interleaved", "looped-bfs", "interleaved-zerobubble"}


def test_overlap_of_gradients_helps_and_never_hides_everything() -> None:
    name = "exposed data-parallel communication"
    exposed = part(project(a_job(software=EAGER)), name)
    overlapped = part(project(a_job()), name)
    assert 0 < overlapped < exposed / 2


def test_more_chunks_hide_more_gradients_behind_each_other() -> None:
    name = "exposed data-parallel communication"
    two, four = (
        part(project(a_job(LLAMA_70B, tensor=8, pipeline=4, virtual_pipeline=chunks, batch=64), nodes=8), name)
        for chunks in (2, 4)
    )
    assert four < two


def test_sharded_weights_are_gathered_every_micro_batch() -> None:
    once = project(a_job(sharding=Sharding.OPTIMIZER), nodes=8)
    every = project(a_job(sharding=Sharding.PARAMETERS), nodes=8)
    gathered = {row.collective: row.message_bytes for row in every.communication if row.group == "data"}
    reduced = {row.collective: row.message_bytes for row in once.communication if row.group == "data"}
    assert gathered["all_gather"] == 2 * 2 * reduced["all_gather"]  # two micro batches, forward and backward


def test_hybrid_sharding_reduces_between_copies() -> None:
    hybrid = project(a_job(sharding=Sharding.PARAMETERS, shard_degree=8), nodes=8)
    assert {row.collective for row in hybrid.communication if row.group == "data"} == {
        "all_gather",
        "all_reduce",
        "reduce_scatter",
    }


def test_a_small_micro_batch_waits_for_the_host() -> None:
    tiny = replace(LLAMA_8B, hidden=512, layers=LLAMA_8B.layers[:4])
    found = project(a_job(tiny, sequence=256, batch=8))
    assert part(found, "host-bound launches") > 0
    assert part(project(a_job(sequence=8192)), "host-bound launches") == 0


@pytest.mark.parametrize(
    "optimizer",
    [Optimizer(kind=OptimizerKind.MUON), Optimizer(offload_fraction=1.0)],
    ids=["muon", "offloaded"],
)
def test_costlier_optimizers_lengthen_the_step(optimizer: Optimizer) -> None:
    usual = part(project(a_job()), "optimizer step")
    assert part(project(a_job(job={"optimizer": optimizer})), "optimizer step") > 1.5 * usual


def test_tied_embeddings_on_two_stages_reduce_their_gradient() -> None:
    tied = replace(LLAMA_8B, tied_embeddings=True)
    name = "exposed embedding-parallel communication"
    assert part(project(a_job(tied, pipeline=2)), name) > 0
    assert part(project(a_job(LLAMA_8B, pipeline=2)), name) == part(project(a_job(tied)), name) == 0


def test_each_doubling_of_the_nodes_waits_for_one_more_straggler() -> None:
    shares = []
    for nodes in (1, 2, 4, 16):
        found = project(a_job(batch=1024), nodes=nodes)
        shares.append(part(found, "stragglers") / (found.iteration_seconds - part(found, "stragglers")))
    assert shares[0] == 0
    assert shares[1] > 0
    assert shares[2] / shares[1] == pytest.approx(2)
    assert shares[3] / shares[1] == pytest.approx(4)


@given(st.floats(0.0, 1.0))
def test_idle_stretches_buy_clock_up_to_the_highest_that_the_chip_has(idle: float) -> None:
    b200 = device("B200")
    gain = settled_gain(b200, {"matrix products": 1 - idle, "pipeline bubble": idle}, 1.0)
    assert 1 <= gain <= 1.25
    if idle > 0.2:
        assert gain > 1.03
    again = settled_gain(b200, {"matrix products": (1 - idle) / gain, "pipeline bubble": idle}, gain)
    assert again == pytest.approx(gain, abs=0.003), "the clock agrees with the step that it leads to"


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"name": "MI325X"}, id="another device"),
        pytest.param({"nodes": 2, "per_node": 4}, id="groups spread over nodes"),
        pytest.param({"overrides": HardwareOverrides(node_bytes_per_second=100e9)}, id="stated links"),
        pytest.param({"software": Software(overlap_tensor_parallel=True)}, id="other software"),
        pytest.param({"recompute": Recompute(granularity=FULL, method=RecomputeMethod.UNIFORM, layers=1)}, id="rerun"),
    ],
)
def test_layers_that_were_costed_for_another_question_change_no_answer(other: dict[str, Any]) -> None:
    setting = dict(other)
    fields = {name: setting.pop(name) for name in ("software", "recompute") if name in setting}
    job = a_job(tensor=8, sequence_parallel=True, software=EAGER)
    before = project(job)
    changed = project(replace(job, **fields), **setting)
    assert changed.iteration_seconds != pytest.approx(before.iteration_seconds, rel=1e-3)
    assert project(job) == before


def test_groups_that_exchange_heads_and_those_between_them_are_placed_each_by_itself() -> None:
    job = a_job(LLAMA_8B, context=4, context_exchange=2, context_communication="a2a+p2p")
    found = {(each.group, each.collective) for each in project(job).communication}
    assert {("context_inner", "all_to_all"), ("context_outer", "send_recv")} <= found


def test_sends_that_are_waited_for_take_longer_under_interleaving_alone() -> None:
    """Megatron-LM `--no-overlap-p2p-communication`; without interleaving each send is waited for anyway."""

    def seconds(chunks: int, *, overlap: bool) -> float:
        software = Software(overlap_pipeline_sends=overlap)
        found = project(a_job(LLAMA_70B, software=software, pipeline=4, virtual_pipeline=chunks, tensor=8), nodes=4)
        return part(found, "exposed pipeline-parallel communication")

    assert seconds(4, overlap=False) == pytest.approx(seconds(4, overlap=True) / 0.7)
    assert seconds(1, overlap=False) == seconds(1, overlap=True)
