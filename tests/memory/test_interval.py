"""The interval is the sum of its named parts, at every level that a measurement can tell apart."""

from dataclasses import replace

import pytest

from projector import catalog
from projector.job import LowPrecision, Parallelism, Precision, Recompute, RecomputeGranularity, Sharding, TrainingJob
from projector.memory import interval, project_memory
from projector.parallelism import resolve
from projector.projection import MemoryComponent, MemoryLevel, StageMemory
from tests.layers.builders import DENSE, job, mixtral, model, target

PLAIN = job(model((DENSE,) * 8))
JOBS = {
    "dense": PLAIN,
    "dense over stages": job(model((DENSE,) * 16), layout=Parallelism(pipeline=4, virtual_pipeline=2)),
    "experts over ranks": job(mixtral(8), layout=Parallelism(expert=8)),
}


def stages(asked: TrainingJob) -> tuple[StageMemory, ...]:
    return project_memory(asked, resolve(asked, target()), catalog.device("MI300X")).stages


@pytest.mark.parametrize("asked", JOBS.values(), ids=JOBS)
def test_the_ends_of_a_level_are_the_parts_that_have_entered_up_to_it(asked: TrainingJob) -> None:
    for stage in stages(asked):
        order = list(MemoryLevel)
        for level in MemoryLevel:
            entered = [each for each in stage.uncertainties if order.index(each.level) <= order.index(level)]
            lower, upper = stage.interval_bytes(level)
            assert lower == max(0, stage.level_bytes(level) - sum(each.below_bytes for each in entered))
            assert upper == stage.level_bytes(level) + sum(each.above_bytes for each in entered)


@pytest.mark.parametrize("asked", JOBS.values(), ids=JOBS)
def test_a_higher_level_is_never_less_uncertain(asked: TrainingJob) -> None:
    for stage in stages(asked):
        ends = [stage.interval_bytes(level) for level in MemoryLevel]
        widths = [upper - lower for lower, upper in ends]
        assert widths == sorted(widths)


def test_only_routing_to_experts_sets_a_job_with_experts_apart() -> None:
    dense, experts = (
        {each.name for each in stages(JOBS[name])[0].uncertainties} for name in ("dense", "experts over ranks")
    )
    assert experts - dense == {"routing to experts"}


@pytest.mark.parametrize(
    "asked",
    [
        replace(PLAIN, precision=Precision(low_precision=LowPrecision.FP8)),
        replace(PLAIN, recompute=Recompute(granularity=RecomputeGranularity.SELECTIVE, modules=("core_attn",))),
        replace(PLAIN, software=replace(PLAIN.software, flash_attention=False)),
        replace(PLAIN, parallelism=Parallelism(sharding=Sharding.PARAMETERS)),
    ],
    ids=["low precision", "selective recomputation", "stored scores", "sharded weights"],
)
def test_modes_whose_tensors_are_known_less_well_are_less_certain(asked: TrainingJob) -> None:
    def share(each: TrainingJob) -> float:
        stage = stages(each)[0]
        passing = stage.level_bytes(MemoryLevel.ALLOCATED) - stage.level_bytes(MemoryLevel.PERSISTENT)
        (counted,) = (part for part in stage.uncertainties if part.level is MemoryLevel.ALLOCATED)
        return counted.above_bytes / passing

    assert share(asked) > 2 * share(PLAIN)


def test_the_allocator_is_uncertain_around_all_that_is_reserved_pools_of_other_streams_included() -> None:
    """Gradients of FSDP2 lie in the reducing stream's pool at the loss: they are reserved and not allocated."""
    stage = StageMemory(
        stage=0,
        layers=(),
        parameters=0,
        components=(
            MemoryComponent(name="weights", level=MemoryLevel.ALLOCATED, size_bytes=1000),
            MemoryComponent(name="gradients", level=MemoryLevel.RESERVED, size_bytes=100),
        ),
        device_bytes_lower=0,
        device_bytes_upper=0,
        peak_cause="",
    )
    found = interval.reserved(stage, 50, 1.14, 1.20)
    assert (found.below_bytes, found.above_bytes) == (10, 50)
