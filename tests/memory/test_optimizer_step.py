"""The optimizer step as a moment of peak, and the first iteration, beside torch's own steps."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from projector import catalog
from projector.config.optimizers import optimizers
from projector.job import (
    Optimizer,
    OptimizerKind,
    Parallelism,
    Precision,
    Recompute,
    RecomputeGranularity,
    RecomputeMethod,
    Sharding,
    TrainingJob,
)
from projector.memory import count_parameters, project_memory
from projector.parallelism import resolve
from projector.projection import MemoryLevel, StageMemory
from tests.layers.builders import DENSE, job, model, target
from tests.memory.live_bytes import LiveBytes

DEVICE = catalog.device("MI300X")
SMALL = model((DENSE,) * 2, vocabulary=128 * 1000)
FULL = Recompute(granularity=RecomputeGranularity.FULL, method=RecomputeMethod.UNIFORM, layers=1)
WHOLE = Parallelism(sharding=Sharding.NONE)


def stage(asked: TrainingJob) -> StageMemory:
    return project_memory(asked, resolve(asked, target()), DEVICE).stages[0]


def allocated(held: StageMemory) -> int:
    return held.level_bytes(MemoryLevel.ALLOCATED)


def made_in_a_step(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter]) -> int:
    """Bytes that a later step makes at most, beside parameters, gradients and state."""
    optimizer.step()
    state = [value for held in optimizer.state.values() for value in held.values() if isinstance(value, torch.Tensor)]
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    with LiveBytes((*(parameter.data for parameter in parameters), *gradients, *state)) as counted:
        optimizer.step()
    return int(counted.peak)


def matrices(shape: tuple[int, int], count: int = 8) -> list[nn.Parameter]:
    made = [nn.Parameter(torch.zeros(shape)) for _ in range(count)]
    for parameter in made:
        parameter.grad = torch.zeros_like(parameter)
    return made


FOREACH = {
    "adamw_torch": lambda given: torch.optim.AdamW(given, foreach=True),
    "adagrad": lambda given: torch.optim.Adagrad(given, foreach=True),
    "rmsprop": lambda given: torch.optim.RMSprop(given, foreach=True),
    "sgd_momentum": lambda given: torch.optim.SGD(given, lr=0.1, momentum=0.9, foreach=True),
}


@pytest.mark.parametrize("name", FOREACH)
def test_multi_tensor_steps_make_as_many_copies_as_torch(name: str) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        given = matrices((64, 128))
        made = made_in_a_step(FOREACH[name](given), given)
    elements = sum(parameter.numel() for parameter in given)
    assert optimizers("huggingface")[name].foreach_copies == made / (4 * elements)


@pytest.mark.parametrize("ffn", [256, 1024])
def test_newton_schulz_iterations_take_what_torchs_muon_does(ffn: int) -> None:
    """One matrix at a time: the largest of a job counts, whichever side is longer."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        given = matrices((256, ffn), count=1)
        made = made_in_a_step(torch.optim.Muon(given), given)
    narrow = replace(DENSE, mixer=None, feed_forward=replace(DENSE.feed_forward, ffn=ffn, gated=False))  # type: ignore[type-var]
    muon = Optimizer(kind=OptimizerKind.MUON, newton_schulz_bytes=2, step_bytes=1000.0)
    plain = replace(muon, kind=OptimizerKind.SGD)
    sizes = [
        allocated(stage(job(model((narrow,), hidden=256), optimizer=each, recompute=FULL))) for each in (muon, plain)
    ]
    assert sizes[0] - sizes[1] == made


def test_a_step_that_makes_more_than_the_passes_is_the_peak() -> None:
    """Full recomputation leaves little; a multi-tensor Adam makes 4 bytes a parameter that is not divided."""
    fused, multi = (
        stage(job(SMALL, recompute=FULL, layout=WHOLE, optimizer=Optimizer(step_bytes=each))) for each in (0.0, 4.0)
    )
    asked = job(SMALL)
    count = count_parameters(asked, resolve(asked, target())).per_device_max
    assert "optimizer step" not in fused.peak_cause
    assert multi.peak_cause == "optimizer step"
    assert allocated(multi) - multi.level_bytes(MemoryLevel.PERSISTENT) == 4 * count
    assert not any(part.name.startswith("saved activations") for part in multi.components)


def test_a_step_over_tiles_makes_one_tile_at_a_time() -> None:
    tiled = Optimizer(step_bytes=600.0, step_elements=10**7)
    held = stage(job(SMALL, recompute=FULL, optimizer=tiled))
    assert allocated(held) - held.level_bytes(MemoryLevel.PERSISTENT) == 600 * 10**7


def test_a_lower_step_changes_nothing() -> None:
    assert allocated(stage(job(SMALL))) == allocated(stage(job(SMALL, optimizer=Optimizer(step_bytes=0.01))))


MOMENTS = {
    "Adam": (Precision(), Optimizer(), 8),
    "SGD with momentum": (Precision(second_moment_bytes=0), Optimizer(kind=OptimizerKind.SGD), 4),
    "master weights in the state": (Precision(master_weight_bytes=2), Optimizer(master_in_state=True), 10),
    "state from the start": (Precision(), Optimizer(state_from_start=True), 0),
    "state on the host": (Precision(), Optimizer(offload_fraction=1.0), 0),
}


@pytest.mark.parametrize(("precision", "optimizer", "each"), MOMENTS.values(), ids=MOMENTS)
def test_the_first_iteration_runs_without_the_state_that_its_step_makes(
    precision: Precision, optimizer: Optimizer, each: int
) -> None:
    """Where activations are the peak by more than the state is large: micro batches of 16 sequences over 8 ranks."""
    held = stage(job(SMALL, micro=16, global_=128, precision=precision, optimizer=optimizer))
    asked = job(SMALL)
    count = count_parameters(asked, resolve(asked, target())).per_device_max
    assert held.first_iteration_allocated_bytes is not None
    assert allocated(held) - held.first_iteration_allocated_bytes == pytest.approx(each * count / 8, rel=1e-6)


def test_the_first_iteration_needs_at_least_what_stays_behind_it() -> None:
    """Where the state is larger than the activations the first peak is the step's: what is persistent."""
    held = stage(job(SMALL, recompute=FULL, layout=WHOLE))
    assert held.first_iteration_allocated_bytes == held.level_bytes(MemoryLevel.PERSISTENT)
    assert held.first_step_effect_bytes > 0


@pytest.mark.parametrize(
    "made", [Optimizer(step_bytes=4.0), Optimizer(moment_copy_bytes=8.0)], ids=["gradients", "moments"]
)
def test_what_a_step_makes_is_reserved(made: Optimizer) -> None:
    """The allocator keeps what it found for the step, whether or not activations left room for it."""
    held = stage(job(SMALL, recompute=FULL, layout=WHOLE, optimizer=made))
    assert held.peak_cause == "optimizer step"
    slack = held.level_bytes(MemoryLevel.RESERVED) - allocated(held)
    assert 0 < slack < 0.1 * allocated(held)
