"""Frozen weights stay on the device; gradients and optimizer state are those of the adapters alone."""

import pytest

from projector import catalog
from projector.job import (
    LowRankAdapters,
    Parallelism,
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

SMALL = model((DENSE,) * 8, vocabulary=128 * 1000)
ADAPTERS = LowRankAdapters(rank=16)
PER_LAYER = 16 * (8192 + 10240 + 2 * 8192 + 8192 + 2 * 28672 + 28672 + 8192)
"""Rank x (inputs + outputs) of the four linear layers of `DENSE`."""
FULL = Recompute(granularity=RecomputeGranularity.FULL, method=RecomputeMethod.UNIFORM, layers=1)


def stage(asked: TrainingJob) -> StageMemory:
    return project_memory(asked, resolve(asked, target()), catalog.device("MI300X")).stages[0]


def parts(asked: TrainingJob) -> dict[str, int]:
    return {part.name: part.size_bytes for part in stage(asked).components}


@pytest.mark.parametrize(
    ("sharding", "weights", "gradients", "state"),
    [
        (Sharding.NONE, 2, 4, 12),
        (Sharding.OPTIMIZER, 2, 4, 12 / 8),
        (Sharding.PARAMETERS, 2 / 8, 4 / 8, 12 / 8),
    ],
)
def test_sharding_divides_all_weights_and_the_state_of_adapters(
    sharding: Sharding, weights: float, gradients: float, state: float
) -> None:
    asked = job(SMALL, layout=Parallelism(sharding=sharding), adapters=ADAPTERS)
    held = count_parameters(asked, resolve(asked, target())).per_device_max
    found, trained = parts(asked), 8 * PER_LAYER
    assert found["weights"] == round(held * weights)
    assert [found["gradients"], found["optimizer state"]] == [round(trained * each) for each in (gradients, state)]


def test_the_published_counts_do_not_know_adapters() -> None:
    plain, adapted = (
        count_parameters(asked, resolve(asked, target())) for asked in (job(SMALL), job(SMALL, adapters=ADAPTERS))
    )
    assert (adapted.total, adapted.active) == (plain.total, plain.active)
    assert adapted.per_device_max == plain.per_device_max + 8 * PER_LAYER
    counted = {row.name: row.parameters for row in adapted.components}
    assert counted["dense_layer.adapters"] == 8 * PER_LAYER


def test_recomputed_layers_keep_their_input_with_adapters_too() -> None:
    kept = parts(job(SMALL, adapters=ADAPTERS, recompute=FULL))
    assert (
        kept["saved activations: recomputed layers"]
        == parts(job(SMALL, recompute=FULL))["saved activations: recomputed layers"]
    )


def test_fine_tuning_needs_less_than_training_at_every_level() -> None:
    trained, tuned = stage(job(SMALL)), stage(job(SMALL, adapters=ADAPTERS))
    assert all(tuned.level_bytes(level) < trained.level_bytes(level) for level in MemoryLevel)
