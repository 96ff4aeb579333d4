"""Degrees, sharding, stages and schedules."""

from typing import Any

import pytest

from projector.config import LoadedConfiguration
from projector.errors import InputError, LayoutImpossible
from projector.job import Schedule, Sharding, Target
from projector.parallelism import resolve
from tests.config.torchtitan.files import load, text


def loaded(**parallelism: object) -> LoadedConfiguration:
    return load(text(parallelism=parallelism, training={"local_batch_size": 16}))


SHARDING: dict[str, tuple[dict[str, Any], tuple[Sharding, int, int]]] = {
    "inferred": ({"data_parallel_shard_degree": -1}, (Sharding.PARAMETERS, 32, 32)),
    "stated": ({"data_parallel_shard_degree": 32}, (Sharding.PARAMETERS, 32, 32)),
    "hybrid, shards inferred": ({"data_parallel_replicate_degree": 4}, (Sharding.PARAMETERS, 8, 32)),
    "hybrid, both stated": (
        {"data_parallel_replicate_degree": 4, "data_parallel_shard_degree": 8},
        (Sharding.PARAMETERS, 8, 32),
    ),
    "over context-parallel ranks too": (
        {"data_parallel_shard_degree": 4, "data_parallel_replicate_degree": 4, "context_parallel_degree": 2},
        (Sharding.PARAMETERS, 8, 16),
    ),
    "replicated": (
        {"data_parallel_replicate_degree": 32, "data_parallel_shard_degree": 1},
        (Sharding.NONE, 1, 32),
    ),
}


@pytest.mark.parametrize(("parallelism", "want"), SHARDING.values(), ids=SHARDING.keys())
def test_32_gpus_shard_as_stated(parallelism: dict[str, Any], want: tuple[Sharding, int, int]) -> None:
    layout = resolve(loaded(**parallelism).job, Target(device="H100", nodes=4, devices_per_node=8))
    assert (layout.sharding, layout.shard, layout.data) == want


CLUSTERS: dict[str, tuple[dict[str, Any], tuple[int | None, int | None]]] = {
    "inferred shards leave it open": ({"data_parallel_shard_degree": -1}, (None, None)),
    "all degrees stated": ({"data_parallel_shard_degree": 8, "tensor_parallel_degree": 4}, (4, 8)),
    "fewer than a host": ({"data_parallel_shard_degree": 2}, (1, 2)),
    "no whole hosts": ({"data_parallel_shard_degree": 12}, (None, None)),
}


@pytest.mark.parametrize(("parallelism", "want"), CLUSTERS.values(), ids=CLUSTERS.keys())
def test_degrees_that_are_all_stated_fix_the_cluster(
    parallelism: dict[str, Any], want: tuple[int | None, int | None]
) -> None:
    configuration = loaded(**parallelism)
    assert (configuration.nodes, configuration.devices_per_node) == want


def test_a_cluster_on_which_torchtitan_does_not_start_is_refused_with_one_on_which_it_does() -> None:
    degrees = {"data_parallel_shard_degree": 4, "tensor_parallel_degree": 8}
    for parallelism in (degrees, {**degrees, "data_parallel_shard_degree": 1, "data_parallel_replicate_degree": 4}):
        job = loaded(**parallelism).job
        with pytest.raises(LayoutImpossible, match=r"64 GPUs \(8 x 8\), and the degrees multiply to 32; 4 node\(s\)"):
            resolve(job, Target(device="H100", nodes=8, devices_per_node=8))
        assert resolve(job, Target(device="H100", nodes=4, devices_per_node=8)).data == 4
    inferred = loaded(**{**degrees, "data_parallel_shard_degree": -1}).job
    assert resolve(inferred, Target(device="H100", nodes=8, devices_per_node=8)).data == 8


EXPERTS: dict[str, tuple[dict[str, Any], int | None]] = {
    "no expert parallelism follows dense weights": ({"tensor_parallel_degree": 4}, None),
    "unstated is 1": ({"tensor_parallel_degree": 4, "expert_parallel_degree": 8}, 1),
    "stated": (
        {"tensor_parallel_degree": 4, "expert_parallel_degree": 2, "expert_tensor_parallel_degree": 4},
        4,
    ),
}


@pytest.mark.parametrize(("parallelism", "want"), EXPERTS.values(), ids=EXPERTS.keys())
def test_experts_have_a_tensor_degree_of_their_own(parallelism: dict[str, Any], want: int | None) -> None:
    model = {"name": "deepseek_v3", "flavor": "16B"}
    assert load(text(model=model, parallelism=parallelism)).job.parallelism.expert_tensor == want


RESHARDING = {
    "one stage": ({}, True),
    "a pipeline keeps weights": ({"pipeline_parallel_degree": 4}, False),
    "always": ({"pipeline_parallel_degree": 4, "fsdp_reshard_after_forward": "always"}, True),
    "never": ({"fsdp_reshard_after_forward": "never"}, False),
}


@pytest.mark.parametrize(("parallelism", "want"), RESHARDING.values(), ids=RESHARDING.keys())
def test_weights_are_sharded_again_after_forward(parallelism: dict[str, Any], want: bool) -> None:  # noqa: FBT001 - a case
    assert loaded(**parallelism).job.parallelism.reshard_after_forward is want


PIPELINES: dict[str, tuple[dict[str, Any], str, int, Schedule]] = {
    # torchtitan/distributed/pipeline_parallel.py: 32 layers, embedding and output layer weighing one each.
    "even": ({"pipeline_parallel_degree": 2}, "Et*16|t*16L", 1, Schedule.ONE_F_ONE_B),
    "remainder to the first": ({"pipeline_parallel_degree": 4}, "Et*8|t*9|t*8|t*7L", 1, Schedule.ONE_F_ONE_B),
    "two chunks by default": (
        {"pipeline_parallel_degree": 2, "pipeline_parallel_schedule": "Interleaved1F1B"},
        "Et*8|t*9|t*8|t*7L",
        2,
        Schedule.INTERLEAVED,
    ),
    "layers per stage": (
        {
            "pipeline_parallel_degree": 2,
            "pipeline_parallel_schedule": "Interleaved1F1B",
            "pipeline_parallel_layers_per_stage": 6,
        },
        "Et*5|t*6|t*6|t*6|t*5|t*4L",
        3,
        Schedule.INTERLEAVED,
    ),
    "a V": (
        {"pipeline_parallel_degree": 2, "pipeline_parallel_schedule": "ZBVZeroBubble"},
        "Et*8|t*9|t*8|t*7L",
        2,
        Schedule.ZBV_FORMATTED,
    ),
    "all forwards first": (
        {"pipeline_parallel_degree": 2, "pipeline_parallel_schedule": "GPipe"},
        "Et*16|t*16L",
        1,
        Schedule.GPIPE,
    ),
    "breadth first": (
        {"pipeline_parallel_degree": 2, "pipeline_parallel_schedule": "LoopedBFS"},
        "Et*8|t*9|t*8|t*7L",
        2,
        Schedule.LOOPED_BFS,
    ),
    "chunks with a split backward": (
        {"pipeline_parallel_degree": 2, "pipeline_parallel_schedule": "InterleavedZeroBubble"},
        "Et*8|t*9|t*8|t*7L",
        2,
        Schedule.INTERLEAVED_ZERO_BUBBLE,
    ),
    "weights of the ends": (
        {
            "pipeline_parallel_degree": 4,
            "pipeline_parallel_first_stage_less_layers": 0,
            "pipeline_parallel_last_stage_less_layers": 4,
        },
        "Et*9|t*9|t*9|t*5L",
        1,
        Schedule.ONE_F_ONE_B,
    ),
    "split points": (
        {"pipeline_parallel_degree": 2, "pipeline_parallel_split_points": ["layers.20"]},
        "Et*20|t*12L",
        1,
        Schedule.ONE_F_ONE_B,
    ),
    "modules of each part": (
        {
            "pipeline_parallel_degree": 3,
            "module_fqns_per_model_part": [
                ["tok_embeddings"],
                [f"layers.{index}" for index in range(31)],
                ["layers.31", "norm", "output"],
            ],
        },
        "E|t*31|t*1L",
        1,
        Schedule.ONE_F_ONE_B,
    ),
}


@pytest.mark.parametrize(("parallelism", "stages", "chunks", "schedule"), PIPELINES.values(), ids=PIPELINES.keys())
def test_a_pipeline_is_split_as_torchtitan_splits_it(
    parallelism: dict[str, Any], stages: str, chunks: int, schedule: Schedule
) -> None:
    job = loaded(**parallelism).job
    assert (job.parallelism.pipeline_layout, job.parallelism.virtual_pipeline) == (stages, chunks)
    assert job.schedule is schedule
    nodes = parallelism["pipeline_parallel_degree"]
    layout = resolve(job, Target(device="H100", nodes=nodes, devices_per_node=8))
    assert sum(len(stage.layer_ids) for stage in layout.stages) == 32
    assert (layout.micro_batch, layout.micro_batches) == (1, 16)


@pytest.mark.parametrize("name", ["DualPipeV"])
def test_a_schedule_that_is_not_modelled_is_named_and_decides(name: str) -> None:
    notes = loaded(pipeline_parallel_degree=2, pipeline_parallel_schedule=name).unmodelled
    assert [(note.what, note.decides) for note in notes] == [(f"the pipeline schedule {name}", True)]


WRONG = {
    "stages that do not divide": (
        {"pipeline_parallel_degree": 4, "pipeline_parallel_split_points": ["layers.3"]},
        "2 stages do not divide over 4 pipeline ranks",
    ),
    "more stages than layers": ({"pipeline_parallel_degree": 64}, "32 layers do not fill 64 pipeline stages"),
    "an unknown schedule": ({"pipeline_parallel_schedule": "1F2B"}, "'1F2B' is not known"),
    "parts without a layer": (
        {"pipeline_parallel_degree": 2, "module_fqns_per_model_part": [["layers.0"], ["layers.2"]]},
        "does not list the 32 layers",
    ),
    "split points out of order": (
        {"pipeline_parallel_degree": 4, "pipeline_parallel_split_points": "layers.9,layers.3,layers.20"},
        "not in order",
    ),
    "a split point of another model": (
        {"pipeline_parallel_degree": 2, "pipeline_parallel_split_points": ["layers.99"]},
        "'layers.99' is no layer",
    ),
    "a degree of 0": ({"tensor_parallel_degree": 0}, "an integer of at least 1"),
    "a shard degree of -2": ({"data_parallel_shard_degree": -2}, "an integer of at least 1"),
    "a degree that is text": ({"tensor_parallel_degree": "8"}, "an integer of at least 1"),
    "an expert tensor degree of its own": (
        {"tensor_parallel_degree": 8, "expert_parallel_degree": 2, "expert_tensor_parallel_degree": 4},
        "expert tensor parallel 4 with tensor parallel 8; 1 or 8",
    ),
    "a micro batch that does not divide": (
        {"pipeline_parallel_degree": 2, "pipeline_parallel_microbatch_size": 5},
        "the local batch 16 does not divide",
    ),
}


@pytest.mark.parametrize(("parallelism", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_layout_is_one_clear_line(parallelism: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        loaded(**parallelism)
    assert str(caught.value).startswith("run: parallelism.")


def test_a_loss_that_is_not_divided_decides_with_tensor_parallelism_only() -> None:
    assert [note.decides for note in loaded(disable_loss_parallel=True, tensor_parallel_degree=2).unmodelled] == [True]
    assert loaded(disable_loss_parallel=True).unmodelled == ()


def test_hosts_of_eight_are_said_to_be_assumed() -> None:
    notes = [note.what for note in loaded(data_parallel_shard_degree=32).assumed]
    assert "32 GPUs, 8 a host" in notes
