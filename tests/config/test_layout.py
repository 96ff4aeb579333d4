"""Layout, recomputation and schedule of a Primus module -> the parts of a `TrainingJob`."""

from typing import Any

import pytest

from projector.errors import ConfigurationError, LayoutImpossible
from projector.job import (
    Recompute,
    RecomputeGranularity,
    RecomputeMethod,
    Schedule,
    Sharding,
)
from tests.config.builders import flat_text, load

PP: dict[str, Any] = {"pipeline_model_parallel_size": 4, "num_layers": 16}
CHUNKS: dict[str, tuple[dict[str, object], int]] = {
    "unstated": (PP, 1),
    "Primus's key": ({**PP, "virtual_pipeline_model_parallel_size": 2}, 2),
    "stages per rank": ({**PP, "num_virtual_stages_per_pipeline_rank": 4}, 4),
    "layers per stage": ({**PP, "num_layers_per_virtual_pipeline_stage": 2}, 2),
    "two spellings that agree": (
        {**PP, "num_virtual_stages_per_pipeline_rank": 2, "num_layers_per_virtual_pipeline_stage": 2},
        2,
    ),
    "without a pipeline": ({"num_virtual_stages_per_pipeline_rank": 4}, 1),
}


@pytest.mark.parametrize(("values", "want"), CHUNKS.values(), ids=CHUNKS.keys())
def test_model_chunks_per_stage_come_from_any_spelling(values: dict[str, object], want: int) -> None:
    assert load(flat_text(**values)).job.parallelism.virtual_pipeline == want


@pytest.mark.parametrize("before", [True, False])
def test_the_order_of_ranks_is_read(*, before: bool) -> None:
    assert load(flat_text(**PP, use_tp_pp_dp_mapping=before)).job.parallelism.pipeline_before_data is before


IMPOSSIBLE: dict[str, tuple[dict[str, object], str]] = {
    "contradiction": (
        {**PP, "num_virtual_stages_per_pipeline_rank": 2, "virtual_pipeline_model_parallel_size": 4},
        "contradict one another: .* gives 4, .* gives 2",
    ),
    "layers that do not divide": (
        {**PP, "num_layers_per_virtual_pipeline_stage": 3},
        "16 layers .* 4 stages x 3 layers",
    ),
    "groups that do not divide": (
        {"group_query_attention": True, "num_query_groups": 3},
        "16 attention heads do not divide over 3 groups",
    ),
    "heads that do not divide": ({"num_attention_heads": 15}, "hidden_size 1024 is not a multiple .* 15"),
}


@pytest.mark.parametrize(("values", "complaint"), IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_a_layout_that_contradicts_itself_is_refused(values: dict[str, object], complaint: str) -> None:
    with pytest.raises(LayoutImpossible, match=complaint):
        load(flat_text(**values))


UNEVEN: dict[str, tuple[dict[str, object], bool]] = {
    "even": (PP, False),
    "uneven": ({**PP, "num_layers": 18}, True),
    "uneven by hand": ({**PP, "num_layers": 18, "decoder_last_pipeline_num_layers": 3}, False),
    "the ends count": ({**PP, "num_layers": 15, "account_for_loss_in_pipeline_split": True}, False),
}


@pytest.mark.parametrize(("values", "noted"), UNEVEN.values(), ids=UNEVEN.keys())
def test_layers_that_are_spread_unevenly_are_named_unless_somebody_chose_it(
    values: dict[str, object], *, noted: bool
) -> None:
    told = [note.what for note in load(flat_text(**values)).assumed if "hold one more" in note.what]
    assert told == (["18 layers over 4 stages: the first 2 hold one more"] if noted else [])


@pytest.mark.parametrize(("tensor", "noted"), [(2, False), (4, False), (8, True)])
def test_key_value_heads_that_tensor_ranks_share_are_named(tensor: int, *, noted: bool) -> None:
    values = {"group_query_attention": True, "num_query_groups": 4, "tensor_model_parallel_size": tensor}
    notes = load(flat_text(**values)).assumed
    assert any("Megatron-Core 0.16" in note.why for note in notes) is noted


def test_the_first_of_hierarchical_sizes_exchanges_heads() -> None:
    values = {"context_parallel_size": 8, "cp_comm_type": "a2a+p2p", "hierarchical_context_parallel_sizes": [4, 2]}
    loaded = load(flat_text(**values))
    assert loaded.job.parallelism.context_exchange == 4
    assert not loaded.unmodelled
    assert load(flat_text(**{**values, "cp_comm_type": "p2p"})).job.parallelism.context_exchange is None


@pytest.mark.parametrize("sizes", [[4], [4, 4], [2, 2, 2], [-4, -2]], ids=str)
def test_hierarchical_sizes_multiply_to_the_context_parallel_degree(sizes: list[int]) -> None:
    text = flat_text(context_parallel_size=8, cp_comm_type="a2a+p2p", hierarchical_context_parallel_sizes=sizes)
    with pytest.raises(ConfigurationError, match="two sizes whose product is the context-parallel degree, 8"):
        load(text)


@pytest.mark.parametrize(("ranks", "noted"), [(1, False), (2, True)])
def test_hierarchical_context_communication_is_named_where_it_runs(ranks: int, *, noted: bool) -> None:
    notes = load(flat_text(context_parallel_size=ranks, cp_comm_type="a2a+p2p")).unmodelled
    assert any("a2a+p2p" in note.what for note in notes) is noted


def test_a_layout_string_is_handed_on_and_a_list_becomes_one() -> None:
    text = "Et*3|(tt|)*3,t*7|L"
    assert load(flat_text(**PP, pipeline_model_parallel_layout=text)).job.parallelism.pipeline_layout == text
    stages = [["embedding", "decoder"], ["decoder"], ["t"], ["decoder", "loss"]]
    assert load(flat_text(**PP, pipeline_model_parallel_layout=stages)).job.parallelism.pipeline_layout == "Et|t|t|tL"


SHARDING: dict[str, tuple[dict[str, object], Sharding]] = {
    "none": ({}, Sharding.NONE),
    "distributed optimizer": ({"use_distributed_optimizer": True}, Sharding.OPTIMIZER),
    "FSDP2": ({"use_torch_fsdp2": True, "use_distributed_optimizer": False}, Sharding.PARAMETERS),
    "Megatron-FSDP, ZeRO-2": (
        {"use_megatron_fsdp": True, "data_parallel_sharding_strategy": "optim_grads"},
        Sharding.GRADIENTS,
    ),
    "Megatron-FSDP, ZeRO-3": (
        {"use_custom_fsdp": True, "data_parallel_sharding_strategy": "optim_grads_params"},
        Sharding.PARAMETERS,
    ),
}


@pytest.mark.parametrize(("values", "want"), SHARDING.values(), ids=SHARDING.keys())
def test_sharding_is(values: dict[str, object], want: Sharding) -> None:
    assert load(flat_text(**values)).job.parallelism.sharding is want


NOTHING = Recompute()
FULL = RecomputeGranularity.FULL
RECOMPUTE: dict[str, tuple[dict[str, object], Recompute]] = {
    "nothing": ({}, NOTHING),
    "full of no layers": (
        {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 0},
        NOTHING,
    ),
    "block": (
        {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 2},
        Recompute(granularity=FULL, method=RecomputeMethod.BLOCK, layers=2),
    ),
    "uniform": (
        {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1},
        Recompute(granularity=FULL, method=RecomputeMethod.UNIFORM, layers=1),
    ),
    "no method": (
        {"recompute_granularity": "full", "recompute_num_layers": 3},
        Recompute(granularity=FULL, layers=3),
    ),
    "layers by text": (
        {"recompute_granularity": "full", "recompute_layer_ids": "0,3,7"},
        Recompute(granularity=FULL, layer_ids=(0, 3, 7)),
    ),
    "layers by list, some of a deeper model": (
        {"recompute_granularity": "full", "recompute_layer_ids": [3, 0, 60]},
        Recompute(granularity=FULL, layer_ids=(0, 3)),
    ),
    "one layer by text": (
        {"recompute_granularity": "full", "recompute_layer_ids": "5"},
        Recompute(granularity=FULL, layer_ids=(5,)),
    ),
    "selective": ({"recompute_granularity": "selective"}, Recompute(granularity=RecomputeGranularity.SELECTIVE)),
    "selective by flag": ({"recompute_activations": True}, Recompute(granularity=RecomputeGranularity.SELECTIVE)),
    "selective modules": (
        {"recompute_granularity": "selective", "recompute_modules": ["moe_act", "layernorm"]},
        Recompute(granularity=RecomputeGranularity.SELECTIVE, modules=("moe_act", "layernorm")),
    ),
    "counts without granularity": ({"recompute_method": "block", "recompute_num_layers": 2}, NOTHING),
}


@pytest.mark.parametrize(("values", "want"), RECOMPUTE.values(), ids=RECOMPUTE.keys())
def test_recomputation_is(values: dict[str, object], want: Recompute) -> None:
    assert load(flat_text(**values)).job.recompute == want


def test_full_recomputation_of_nothing_stated_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="recompute_granularity: full recomputation of no stated layers"):
        load(flat_text(recompute_granularity="full"))


PATCHED: dict[str, Any] = {**PP, "patch_zero_bubble": True, "enable_zero_bubble": True}
PRIMUS: dict[str, Any] = {**PP, "patch_primus_pipeline": True}
SCHEDULES: dict[str, tuple[dict[str, object], Schedule | None]] = {
    "enable_zero_bubble alone is nothing": ({**PP, "enable_zero_bubble": True}, None),
    "patched": (PATCHED, Schedule.ZERO_BUBBLE),
    "patched and not enabled": ({**PATCHED, "enable_zero_bubble": False}, None),
    "patched without a pipeline": ({**PATCHED, "pipeline_model_parallel_size": 1}, None),
    "V of half memory": ({**PATCHED, "zero_bubble_v_schedule": True}, Schedule.ZBV_GREEDY_HALF),
    "V of least memory": (
        {**PATCHED, "zero_bubble_v_schedule": True, "zero_bubble_v_schedule_mem_setup": "min"},
        Schedule.ZBV_GREEDY_MIN,
    ),
    "V": (
        {**PATCHED, "zero_bubble_v_schedule": True, "zero_bubble_v_schedule_mem_setup": "zb"},
        Schedule.ZBV_FORMATTED,
    ),
    "automatic with a limit": ({**PATCHED, "zero_bubble_max_pending_backward": 4}, Schedule.ZERO_BUBBLE_HEURISTIC),
    "automatic with a limit in quotes": (
        {**PATCHED, "zero_bubble_max_pending_backward": "4"},
        Schedule.ZERO_BUBBLE_HEURISTIC,
    ),
    "automatic as memory allows": ({**PATCHED, "zero_bubble_max_pending_backward": "auto"}, Schedule.ZERO_BUBBLE),
    "pp_algorithm alone is nothing": ({**PP, "pp_algorithm": "zbv-formatted"}, None),
    "Primus pipeline": ({**PRIMUS, "pp_algorithm": "zbv-formatted"}, Schedule.ZBV_FORMATTED),
    "Primus pipeline, heuristic": ({**PRIMUS, "pp_algorithm": "zero-bubble-heuristic"}, Schedule.ZERO_BUBBLE_HEURISTIC),
    "Primus pipeline, interleaved": (PRIMUS, None),
}


@pytest.mark.parametrize(("values", "want"), SCHEDULES.values(), ids=SCHEDULES.keys())
def test_the_schedule_is_the_one_that_really_runs(values: dict[str, object], want: Schedule | None) -> None:
    assert load(flat_text(**values)).job.schedule is want


@pytest.mark.parametrize(("stated", "want"), [(4, 4), ("8", 8), ("auto", None), (None, None)])
def test_the_automatic_schedule_may_keep_as_many_micro_batches_as_are_stated(stated: object, want: int | None) -> None:
    parallelism = load(flat_text(**{**PATCHED, "zero_bubble_max_pending_backward": stated})).job.parallelism
    assert parallelism.pending_micro_batches == want


def test_a_limit_that_is_no_number_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"zero_bubble_max_pending_backward: .*an integer of at least 1"):
        load(flat_text(**{**PATCHED, "zero_bubble_max_pending_backward": "much"}))
