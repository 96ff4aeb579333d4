"""Activations in flight follow the schedule."""

from dataclasses import replace
from math import ceil

import pytest

from projector import catalog
from projector.job import Parallelism, Schedule, TrainingJob
from projector.memory import project_memory
from projector.parallelism import resolve
from projector.projection import MemoryLevel, StageMemory
from tests.layers.builders import DENSE, job, model, target

DEVICE = catalog.device("MI300X")


def stages(asked: TrainingJob, schedule: Schedule | None = None) -> tuple[StageMemory, ...]:
    return project_memory(asked, resolve(asked, target()), DEVICE, schedule=schedule).stages


def decoder_bytes(stage: StageMemory) -> int:
    """Saved activations of decoder layers."""
    names = {f"saved activations: {name}" for name in ("layer_norm", "self_attention", "mlp")}
    return sum(part.size_bytes for part in stage.components if part.name in names)


LAYER_BYTES = 4 * 2 * 4096 * 8192 + 8 * 4096 + 2 * 4096 * (2 * 8192 + 2 * 1024) + 4 * 4096 * 64 + 6 * 4096 * 28672
"""What a layer keeps of one micro batch."""


def passes(stage: StageMemory, layers: int = 2) -> int:
    """Micro batches whose layers are alive; what the running backward has freed already is less than one."""
    return ceil(decoder_bytes(stage) / (layers * LAYER_BYTES))


def eight_stages(micro_batches: int, virtual: int = 1, *, vocabulary: int = 128256) -> TrainingJob:
    layout = Parallelism(pipeline=8, virtual_pipeline=virtual)
    return job(model((DENSE,) * 16, vocabulary=vocabulary), global_=micro_batches, layout=layout)


def test_one_forward_one_backward_keeps_a_micro_batch_per_following_stage() -> None:
    held = stages(eight_stages(16))
    assert [passes(stage) for stage in held] == [8, 7, 6, 5, 4, 3, 2, 1]
    assert decoder_bytes(held[0]) - decoder_bytes(held[1]) == 2 * LAYER_BYTES


def test_fewer_micro_batches_than_stages_keep_no_more_than_there_are() -> None:
    full, half = stages(eight_stages(16)), stages(eight_stages(4))
    assert (passes(full[0]), passes(half[0])) == (8, 4)
    assert decoder_bytes(half[-1]) == decoder_bytes(full[-1])


@pytest.mark.parametrize(("micro_batches", "alive"), [(1, 1), (2, 2), (8, 8), (16, 8)])
def test_accumulation_matters_until_the_pipeline_is_full(micro_batches: int, alive: int) -> None:
    assert passes(stages(eight_stages(micro_batches))[0]) == alive


def test_interleaving_keeps_the_known_share_more() -> None:
    """1 + (p - 1) / (p v) of 1F1B's first stage (Korthikanti et al., arXiv 2205.05198, section 4.2.3)."""
    plain, interleaved = (decoder_bytes(stages(eight_stages(16, virtual, vocabulary=1024))[0]) for virtual in (1, 2))
    assert interleaved / plain == pytest.approx(1 + 7 / 16, rel=0.02)


def test_zero_bubble_keeps_on_every_stage_what_1f1b_keeps_on_the_first() -> None:
    held = [passes(stage) for stage in stages(eight_stages(16), schedule=Schedule.ZERO_BUBBLE)]
    assert held == [8] * 8


def held(schedule: Schedule, virtual: int = 1, pending: int | None = None) -> list[int]:
    """Saved activations of the layers of every stage, in passes through all of its chunks, of 24 micro batches."""
    asked = eight_stages(24, virtual, vocabulary=1024)
    layout = replace(asked.parallelism, pending_micro_batches=pending)
    found = stages(replace(asked, schedule=schedule, parallelism=layout))
    return [round(decoder_bytes(stage) / (2 * LAYER_BYTES)) for stage in found]


def test_the_automatic_schedule_keeps_what_it_may_on_every_stage() -> None:
    """ZB-2p and ZB-1p of arXiv 2401.10241, table 4."""
    # What the loss keeps does not wait: the last stage has room for a little more.
    assert held(Schedule.ZERO_BUBBLE_HEURISTIC)[:-1] == [16] * 7
    assert held(Schedule.ZERO_BUBBLE_HEURISTIC, pending=8) == [8] * 8


@pytest.mark.parametrize(
    ("schedule", "most"),
    [(Schedule.ZBV_FORMATTED, 8), (Schedule.ZBV_GREEDY_HALF, 5), (Schedule.ZBV_GREEDY_MIN, 4)],
)
def test_folded_schedules_keep_all_a_half_or_a_third_of_what_1f1b_keeps(schedule: Schedule, most: int) -> None:
    """p, p / 2 + 1 and p / 3 + 1 micro batches of both chunks together: arXiv 2405.15362."""
    assert max(held(schedule, 2)) == most


def test_a_schedule_without_turns_keeps_every_micro_batch() -> None:
    assert held(Schedule.GPIPE) == [24] * 8


def test_logits_sit_on_the_last_stage_and_are_not_multiplied_by_micro_batches() -> None:
    loss = [
        sum(part.size_bytes for part in stage.components if part.name == "saved activations: loss")
        for stage in stages(eight_stages(16))
    ]
    assert loss[:-1] == [0] * 7
    assert loss[-1] == 4 * 4096 * 128256


def test_the_number_of_micro_batches_does_not_matter_beyond_the_steady_state() -> None:
    some, many = (
        [stage.level_bytes(MemoryLevel.ALLOCATED) for stage in stages(eight_stages(count, 2))] for count in (24, 512)
    )
    assert some == many


def test_the_cause_names_operation_direction_and_passes() -> None:
    assert stages(eight_stages(16))[0].peak_cause == "backward of mlp.activation with 8 micro batches in flight"
    assert "loss" in stages(eight_stages(16))[7].peak_cause


def test_interleaving_keeps_two_tensors_at_each_boundary_of_a_chunk() -> None:
    """Megatron-LM schedules.py keeps input and output of every chunk; without chunks only the gradient sent last."""
    sizes = [
        {part.name: part.size_bytes for part in stages(eight_stages(16, virtual))[3].components}[
            "stage-boundary tensors"
        ]
        for virtual in (1, 2)
    ]
    assert sizes == [2 * 4096 * 8192, 2 * 2 * 2 * 4096 * 8192]
