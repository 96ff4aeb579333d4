"""What PyTorch does not run beside a schedule with a split backward pass is refused."""

from typing import Any

import pytest

from projector.errors import ConfigurationError
from tests.config.torchtitan.files import load, text

SPLIT = ["InterleavedZeroBubble", "ZBVZeroBubble"]
WHOLE = ["1F1B", "Interleaved1F1B", "GPipe"]


def written(schedule: str, **sections: dict[str, Any]) -> str:
    parallelism = {"pipeline_parallel_degree": 2, "pipeline_parallel_schedule": schedule}
    return text(parallelism=parallelism, training={"local_batch_size": 8}, **sections)


COMPILED: dict[str, Any] = {"compile": {"enable": True}}
BY_OPERATION: dict[str, Any] = {"activation_checkpoint": {"mode": "selective", "selective_ac_option": "op"}}


@pytest.mark.parametrize("schedule", SPLIT)
def test_compiled_layers_are_refused(schedule: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{schedule} runs the backward pass in two halves.*compiled layers"):
        load(written(schedule, **COMPILED))


@pytest.mark.parametrize("schedule", SPLIT)
def test_checkpoints_by_operation_are_refused(schedule: str) -> None:
    with pytest.raises(ConfigurationError, match=r"activation_checkpoint.mode: .* by operation does not survive; full"):
        load(written(schedule, **BY_OPERATION))


@pytest.mark.parametrize("schedule", SPLIT)
@pytest.mark.parametrize("mode", ["full", "none"])
def test_full_checkpointing_and_none_are_taken(schedule: str, mode: str) -> None:
    found = load(written(schedule, activation_checkpoint={"mode": mode})).job.schedule
    assert found is not None
    assert found.splits_backward


@pytest.mark.parametrize("schedule", WHOLE)
@pytest.mark.parametrize("sections", [COMPILED, BY_OPERATION], ids=["compiled", "by operation"])
def test_schedules_with_a_whole_backward_pass_take_both(schedule: str, sections: dict[str, Any]) -> None:
    found = load(written(schedule, **sections)).job.schedule
    assert found is not None
    assert not found.splits_backward
