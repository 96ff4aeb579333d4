"""Recomputation beside separate weight gradients is refused whichever way the schedule is asked for."""

import pytest

from projector.api import Question, project
from projector.errors import ConfigurationError
from tests.cases.asking import experiment
from tests.config.megatron.builders import BASE

RECOMPUTED = {
    "micro_batch_size": 1,
    "global_batch_size": 64,
    "seq_length": 4096,
    "pipeline_model_parallel_size": 2,
    "recompute_granularity": "full",
    "recompute_method": "block",
    "recompute_num_layers": 2,
}
WAYS = {
    "in the file": ({**RECOMPUTED, "patch_primus_pipeline": True, "pp_algorithm": "zero-bubble"}, "auto"),
    "by the switches of --enable-zero-bubble": (
        {**RECOMPUTED, "enable_zero_bubble": True, "patch_zero_bubble": True},
        "auto",
    ),
    "by --pipeline-schedule-algorithm": (RECOMPUTED, "zerobubble"),
    "by its name for two chunks": ({**RECOMPUTED, "num_virtual_stages_per_pipeline_rank": 2}, "zbv-greedy-half"),
}
SAID = "recomputation does not go with a schedule that separates weight gradients"


@pytest.mark.parametrize(("asked", "schedule"), WAYS.values(), ids=WAYS.keys())
def test_a_schedule_that_separates_weight_gradients(asked: dict[str, object], schedule: str) -> None:
    with pytest.raises(ConfigurationError, match=SAID):
        experiment(asked, model="llama2_7B.yaml", device="MI300X", schedule=schedule)


def test_a_schedule_asked_for_beside_megatrons_arguments() -> None:
    text = f"{BASE} --pipeline-model-parallel-size 2 --recompute-granularity selective"
    with pytest.raises(ConfigurationError, match=SAID) as caught:
        project(Question(text=text, name="run.sh", device="H100", schedule="zerobubble-heuristic"))
    assert caught.value.place == "pipeline schedule zerobubble-heuristic"


def test_all_leaves_such_schedules_out() -> None:
    answer = experiment(RECOMPUTED, model="llama2_7B.yaml", device="MI300X", schedule="all")
    assert answer.performance is not None
    assert [each.result.name for each in answer.performance.compared_schedules] == ["1f1b"]


@pytest.mark.parametrize(
    ("changes", "schedule"),
    [
        ({"recompute_granularity": None}, "zerobubble"),
        ({}, "1f1b"),
        ({"pipeline_model_parallel_size": 1}, "zerobubble"),
    ],
    ids=["nothing recomputed", "weight gradients in line", "no pipeline"],
)
def test_what_starts_is_answered(changes: dict[str, object], schedule: str) -> None:
    asked = {**RECOMPUTED, **changes}
    if not asked["recompute_granularity"]:
        asked = {key: value for key, value in asked.items() if not key.startswith("recompute")}
    assert experiment(asked, model="llama2_7B.yaml", device="MI300X", schedule=schedule).performance is not None
