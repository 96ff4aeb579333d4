"""Levels add up, the verdict follows the interval, and what was not understood gives none."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projector import catalog
from projector.catalog import Calibration, OutsideMeasurement
from projector.job import (
    DecoderLayer,
    DenseMLP,
    Dialect,
    LowPrecision,
    Parallelism,
    Precision,
    Recompute,
    RecomputeGranularity,
    Schedule,
    Software,
    TrainingJob,
    UnmodelledMixer,
)
from projector.memory import project_memory, unknown_figures, unmodelled_layers
from projector.memory.verdict import confidence_of
from projector.parallelism import resolve
from projector.projection import Confidence, MemoryLevel, MemoryProjection, Verdict
from tests.layers.builders import DENSE, job, mixtral, model, target

GIB = 2**30
MI300X = catalog.device("MI300X")
JOBS = {
    "dense": job(model((DENSE,) * 8)),
    "dense over stages": job(model((DENSE,) * 16), layout=Parallelism(pipeline=4, virtual_pipeline=2)),
    "experts over ranks": job(mixtral(16), layout=Parallelism(pipeline=2, expert=4)),
}


def projected(asked: TrainingJob, device: catalog.Device = MI300X, **changes: float) -> MemoryProjection:
    return project_memory(asked, resolve(asked, target()), device, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("asked", JOBS.values(), ids=JOBS)
def test_parts_add_up_at_every_level_and_levels_grow(asked: TrainingJob) -> None:
    for stage in projected(asked).stages:
        levels = [stage.level_bytes(level) for level in MemoryLevel]
        assert levels == sorted(levels)
        assert levels[-1] == sum(part.size_bytes for part in stage.components)
        assert all(part.size_bytes > 0 for part in stage.components)
        assert stage.device_bytes_lower <= stage.device_bytes <= stage.device_bytes_upper


@given(st.sampled_from(sorted(JOBS)), st.integers(1, 400 * GIB))
def test_at_risk_exactly_when_the_interval_of_the_fullest_stage_holds_the_capacity(name: str, capacity: int) -> None:
    memory = projected(JOBS[name], replace(MI300X, memory_capacity_bytes=capacity))
    lower = max(stage.device_bytes_lower for stage in memory.stages)
    upper = max(stage.device_bytes_upper for stage in memory.stages)
    expected = Verdict.DOES_NOT_FIT if lower > capacity else Verdict.AT_RISK if upper >= capacity else Verdict.FITS
    assert memory.verdict is expected


def test_a_safety_margin_widens_the_upper_end_only() -> None:
    plain, wide = projected(JOBS["dense"]).worst, projected(JOBS["dense"], safety_margin=0.2).worst
    assert wide.device_bytes_upper == pytest.approx(plain.device_bytes_upper * 1.2)
    assert wide.device_bytes_lower == plain.device_bytes_lower


def test_real_routing_widens_the_interval_and_forced_balance_narrows_it() -> None:
    natural = JOBS["experts over ranks"]
    forced = replace(natural, software=replace(natural.software, force_load_balancing=True))
    free, bound = projected(natural).worst, projected(forced).worst
    assert free.device_bytes_upper > bound.device_bytes_upper
    assert free.device_bytes > bound.device_bytes


def test_an_unmodelled_layer_leaves_the_verdict_open_and_is_named() -> None:
    odd = DecoderLayer(mixer=UnmodelledMixer(name="mamba"), feed_forward=DenseMLP(ffn=28672))
    asked = job(model((DENSE, odd, odd)))
    assert projected(asked).verdict is Verdict.UNKNOWN
    (named,) = unmodelled_layers(asked)
    assert (named.what, named.decides) == ("mamba", True)
    assert "2 decoder layers" in named.where


def test_memory_as_sold_can_refuse_and_never_promises() -> None:
    sold = replace(MI300X, memory_capacity_bytes=None)
    assert projected(JOBS["dense"], sold).verdict is Verdict.UNKNOWN
    assert projected(job(), sold).verdict is Verdict.DOES_NOT_FIT


def test_eager_communicators_show_at_the_device_level_only() -> None:
    """AMD-AGI/Primus 2367ac56 measured 16 GiB."""
    lazy = JOBS["dense"]
    eager = replace(lazy, software=replace(lazy.software, eager_communicators=True))
    first, second = projected(lazy).worst, projected(eager).worst
    assert second.device_bytes - first.device_bytes == 16 * GIB
    assert second.level_bytes(MemoryLevel.RESERVED) == first.level_bytes(MemoryLevel.RESERVED)


def test_a_figure_that_nobody_knows_is_named_and_leaves_open_only_that_a_job_fits() -> None:
    unknown = replace(MI300X, context_bytes=None, communicator_bytes=None)
    small, large = JOBS["dense"], job()
    (named,) = unknown_figures(small, resolve(small, target()), unknown)
    assert named.what == "runtime context, communicator size of MI300X"
    assert named.decides
    assert projected(small, unknown).verdict is Verdict.UNKNOWN
    assert projected(large, unknown).verdict is Verdict.DOES_NOT_FIT


@pytest.mark.parametrize(
    ("asked", "devices", "gap"),
    [
        pytest.param(JOBS["dense"], 1, "communicator_bytes", id="one device has no communicator"),
        pytest.param(JOBS["dense"], 8, "eager_communicator_bytes", id="nothing is created eagerly"),
    ],
)
def test_a_figure_that_the_job_does_not_need_is_not_missed(asked: TrainingJob, devices: int, gap: str) -> None:
    alone = resolve(asked, target(devices_per_node=devices))
    assert unknown_figures(asked, alone, replace(MI300X, **{gap: None})) == ()  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize("name", ["MI300A", "B300"])
def test_a_gpu_of_the_catalog_without_its_figures_gets_no_promise(name: str) -> None:
    device = catalog.device(name)
    tiny = job(model((DENSE,)), layout=Parallelism(tensor=8))
    found = unknown_figures(tiny, resolve(tiny, target()), device)
    assert projected(tiny, device).verdict is (Verdict.UNKNOWN if found else Verdict.FITS)
    assert bool(found) is (device.context_bytes is None or device.memory_capacity_bytes is None)


def test_a_gpu_without_figures_gets_a_verdict_once_what_lies_outside_torch_was_measured() -> None:
    unknown = replace(MI300X, context_bytes=None, communicator_bytes=None, outside_allocator_uncertainty_bytes=None)
    asked = JOBS["dense"]
    measured = OutsideMeasurement(size_bytes=10 * GIB, groups=3, dispatch_buffer_bytes=0, source="amd-smi")
    calibration = Calibration(device="MI300X", outside_allocator=measured)
    layout = resolve(asked, target())
    assert unknown_figures(asked, layout, unknown)
    assert unknown_figures(asked, layout, unknown, calibration) == ()
    assert project_memory(asked, layout, unknown, calibration=calibration).verdict is Verdict.FITS


CONFIDENCES: dict[str, tuple[TrainingJob, str, Confidence]] = {
    "dense bf16 on NVIDIA": (JOBS["dense"], "H100", Confidence.HIGH),
    "on AMD": (JOBS["dense"], "MI300X", Confidence.MEDIUM),
    "experts": (JOBS["experts over ranks"], "H100", Confidence.MEDIUM),
    "fp8": (replace(JOBS["dense"], precision=Precision(low_precision=LowPrecision.FP8)), "H100", Confidence.MEDIUM),
    "TorchTitan": (replace(JOBS["dense"], software=Software(dialect=Dialect.TORCHTITAN)), "H100", Confidence.MEDIUM),
    "selective recomputation": (
        replace(JOBS["dense"], recompute=Recompute(granularity=RecomputeGranularity.SELECTIVE)),
        "H100",
        Confidence.MEDIUM,
    ),
    "figures of the device missing": (JOBS["dense"], "MI300A", Confidence.LOW),
}


@pytest.mark.parametrize(("asked", "name", "want"), CONFIDENCES.values(), ids=CONFIDENCES)
def test_confidence_is(asked: TrainingJob, name: str, want: Confidence) -> None:
    assert projected(asked, catalog.device(name)).confidence is want


def test_a_mode_of_which_hardly_a_run_was_held_back_leaves_confidence_medium() -> None:
    """Half of the runs with Muon are projected within 2 %, but one alone took no part in fitting."""
    fullest = projected(JOBS["dense"], catalog.device("H100")).worst
    device = catalog.device("H100")
    many, few = (
        confidence_of(modes, fullest, device, understood=True, complete=True)
        for modes in (("NVIDIA GPUs",), ("NVIDIA GPUs", "muon optimizer"))
    )
    assert many[0] is Confidence.HIGH
    assert few[0] is Confidence.MEDIUM
    assert few[1] == ("1 measured run(s) with muon optimizer took no part in fitting, fewer than 3",)


@pytest.mark.parametrize("schedule", [Schedule.GPIPE, Schedule.ZERO_BUBBLE])
def test_a_job_without_a_pipeline_runs_no_schedule_of_one(schedule: Schedule) -> None:
    asked = JOBS["dense"]
    layout, device = resolve(asked, target()), catalog.device("H100")
    alone, plain = (project_memory(asked, layout, device, schedule=each) for each in (schedule, None))
    assert alone.stages == plain.stages
