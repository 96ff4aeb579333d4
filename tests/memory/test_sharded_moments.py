"""The formula for fully sharded training gives what the replay of allocations gives, at whatever moment the peak is."""

from dataclasses import replace
from typing import Any

import pytest

from projector import catalog
from projector.job import Recompute, RecomputeGranularity, RecomputeMethod, Target, TrainingJob
from projector.layers.shapes import shapes_of
from projector.memory import project_memory
from projector.memory.allocator import replays_of
from projector.parallelism import resolve
from projector.projection import MemoryLevel, StageMemory
from projector.schedule import framework_schedule
from tests.cases.torchtitan import FULL, titan

GIB = 2**30
B200 = catalog.device("B200")
EVERY_OTHER = Recompute(granularity=RecomputeGranularity.FULL, layer_ids=tuple(range(0, 32, 2)))
FIRST_HALF = Recompute(granularity=RecomputeGranularity.FULL, method=RecomputeMethod.BLOCK, layers=16)
BY_OPERATION = Recompute(granularity=RecomputeGranularity.OPERATIONS)


def job(
    model: str = "llama3-8b",
    *,
    micro: int = 1,
    sequence: int = 1024,
    devices: int = 8,
    tensor: int = 1,
    context: int = 1,
    recompute: Recompute | None = None,
    reshards: bool = True,
    replicas: int = 1,
    micro_batches: int = 1,
    unsummed: int = 0,
) -> TrainingJob:
    """A job of TorchTitan; `unsummed` bytes an element of gradients that wait for the last micro batch."""
    asked = titan(
        model,
        micro=micro,
        sequence=sequence,
        devices=devices,
        tensor=tensor,
        context=context,
        recompute=recompute,
    )
    assert asked.batch.global_ is not None
    return replace(
        asked,
        software=replace(asked.software, gradients_given_up=True),
        parallelism=replace(asked.parallelism, reshard_after_forward=reshards, replicas=replicas),
        batch=replace(asked.batch, global_=asked.batch.global_ * micro_batches),
        precision=replace(asked.precision, local_gradient_bytes=unsummed),
    )


def fullest(asked: TrainingJob, devices: int) -> StageMemory:
    layout = resolve(asked, Target(device="B200", nodes=devices // 8, devices_per_node=8))
    return project_memory(asked, layout, B200, replay=False).worst


JOBS = {
    "loss": ({"sequence": 8192}, 8, "loss"),
    "loss, full recomputation": ({"sequence": 8192, "recompute": FULL}, 8, "loss"),
    "loss, recomputation by operation": ({"micro": 4, "sequence": 2048, "recompute": BY_OPERATION}, 8, "loss"),
    "loss, every other layer again": ({"sequence": 8192, "recompute": EVERY_OTHER}, 8, "loss"),
    "loss, half of the layers again": ({"sequence": 8192, "recompute": FIRST_HALF}, 8, "loss"),
    "short": ({}, 8, "reduction of the root group"),
    "short, full recomputation": ({"recompute": FULL}, 8, "reduction of the root group"),
    "short, weights stay whole": ({"devices": 64, "reshards": False, "recompute": FULL}, 64, "reduction of a layer"),
    "short, four micro batches": ({"micro_batches": 4, "recompute": FULL}, 8, "reduction of the root group"),
    "large layers": (
        {"model": "llama3-70b", "sequence": 8192, "devices": 64, "recompute": FULL},
        64,
        "mlp.activation after recomputation",
    ),
    "tensor parallel": (
        {"model": "llama3-70b", "sequence": 8192, "devices": 256, "tensor": 8, "recompute": FULL},
        256,
        "loss",
    ),
    "weights stay whole": (
        {"micro": 2, "sequence": 8192, "devices": 64, "reshards": False, "recompute": FULL},
        64,
        "loss",
    ),
    "copies": ({"micro": 2, "sequence": 8192, "devices": 16, "replicas": 2, "recompute": FULL}, 16, "loss"),
    "context parallel": ({"micro": 2, "sequence": 8192, "devices": 16, "context": 2, "recompute": FULL}, 16, "loss"),
    "four micro batches": ({"micro": 2, "sequence": 8192, "micro_batches": 4, "recompute": FULL}, 8, "loss"),
    "gradients wait": (
        {"micro": 2, "sequence": 8192, "micro_batches": 4, "unsummed": 2, "recompute": FULL},
        8,
        "loss",
    ),
    "gradients wait in fp32": (
        {"micro": 2, "sequence": 8192, "micro_batches": 2, "unsummed": 4, "recompute": FULL},
        8,
        "loss",
    ),
}
"""What is asked, on how many devices, and the moment of the peak."""


@pytest.mark.parametrize(("asked", "devices", "moment"), JOBS.values(), ids=JOBS)
def test_peak_is_that_of_the_replayed_allocations(asked: dict[str, Any], devices: int, moment: str) -> None:
    described = job(**asked)
    layout = resolve(described, Target(device="B200", nodes=devices // 8, devices_per_node=8))
    replays = replays_of(described, layout, shapes_of(described, layout), B200, framework_schedule(1, None))
    assert replays is not None
    stage = fullest(described, devices)
    played = replays.play(0, ranks=1).allocated_bytes
    assert stage.level_bytes(MemoryLevel.ALLOCATED) == pytest.approx(played, rel=0.011)
    assert moment in stage.peak_cause


def sizes(stage: StageMemory, level: MemoryLevel) -> dict[str, int]:
    return {part.name: part.size_bytes for part in stage.components if part.level is level}


def test_gradients_that_are_given_up_stay_reserved_and_are_not_allocated_at_the_loss() -> None:
    stage = fullest(job(sequence=8192), 8)
    shards = 4 * stage.parameters / 8
    assert "gradients" not in sizes(stage, MemoryLevel.PERSISTENT)
    assert "gradients" not in sizes(stage, MemoryLevel.ALLOCATED)
    assert sizes(stage, MemoryLevel.RESERVED)["gradients"] == pytest.approx(shards, rel=1e-6)


def test_every_later_micro_batch_finds_the_gradients_of_the_first() -> None:
    stage = fullest(job(sequence=8192, micro_batches=2), 8)
    assert sizes(stage, MemoryLevel.ALLOCATED)["gradients"] == pytest.approx(4 * stage.parameters / 8, rel=1e-6)


def test_buffers_of_gradients_are_persistent() -> None:
    asked = job(sequence=8192)
    kept = replace(asked, software=replace(asked.software, gradients_given_up=False))
    assert "gradients" in sizes(fullest(kept, 8), MemoryLevel.PERSISTENT)


def test_a_replay_of_waiting_gradients_reserves_them() -> None:
    def reserved(unsummed: int) -> int:
        described = job(sequence=2048, micro_batches=4, unsummed=unsummed, recompute=FULL)
        layout = resolve(described, Target(device="B200", nodes=1, devices_per_node=8))
        replays = replays_of(described, layout, shapes_of(described, layout), B200, framework_schedule(1, None))
        assert replays is not None
        return replays.play(0, ranks=1).reserved_bytes

    parameters = fullest(job(), 8).parameters
    assert reserved(2) - reserved(0) > parameters


@pytest.mark.parametrize("compiled", [True, False])
def test_tokens_are_weighted_in_fp32_where_only_the_rest_of_a_layer_is_compiled(compiled: bool) -> None:  # noqa: FBT001
    asked = titan("deepseek-v2-lite", micro=4, sequence=4096, devices=8)
    software = replace(asked.software, compiled_layers=True, compiled_dispatch=compiled)
    stage = fullest(replace(asked, software=software), 8)
    width, rows, layers = 4 - 2 * compiled, 6 * 4 * 4096, 26
    router = next(part.size_bytes for part in stage.components if part.name == "saved activations: router")
    assert router == pytest.approx(width * rows * 2048 * layers, rel=0.06 / width * 2)


def staged(micro_batches: int) -> list[StageMemory]:
    """Two pipeline stages of 8 ranks, whose weights stay whole between micro batches."""
    asked = job(sequence=8192, devices=16, reshards=False, recompute=FULL)
    parallelism = replace(asked.parallelism, pipeline=2)
    batch = replace(asked.batch, global_=8 * micro_batches)
    asked = replace(asked, parallelism=parallelism, batch=batch)
    layout = resolve(asked, Target(device="B200", nodes=2, devices_per_node=8))
    return list(project_memory(asked, layout, B200, replay=False).stages)


def test_pipeline_stages_hold_weights_whole_and_add_gradients_up_in_fp32() -> None:
    for stage in staged(8):
        held = sizes(stage, MemoryLevel.ALLOCATED)
        assert held["gathered weights"] == pytest.approx(2 * stage.parameters, rel=1e-6)
        assert held["gradients that ranks have not summed"] == pytest.approx(4 * stage.parameters, rel=1e-6)
        assert "gradients" not in held


def test_pipeline_stages_have_receive_buffers_for_all_micro_batches() -> None:
    few, many = (sizes(staged(count)[1], MemoryLevel.ALLOCATED)["stage-boundary tensors"] for count in (8, 16))
    assert many - few == 8 * 2 * 8192 * 4096
