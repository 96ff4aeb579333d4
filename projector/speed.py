"""The time half of an answer: what decides it beside the job, and what is said where nobody can tell it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from projector.api import Question
from projector.asked import stated_choices
from projector.catalog import Calibration, Device, HardwareOverrides, MeasuredRates
from projector.config import Assumption, LoadedConfiguration, Unmodelled, read_hardware_file
from projector.errors import ConfigurationError, RateUnknown
from projector.job import Dialect, Schedule, Target, TrainingJob
from projector.memory import project_memory
from projector.parallelism import Layout
from projector.projection import TIME, MemoryLevel, PerformanceProjection, ScalingTable


class TimeEngine(NamedTuple):
    """Projects the time of jobs on one kind of machine, as a question asks for it."""

    question: Question
    """Schedule and cost model that are asked for."""
    unclocked: Device
    """The GPU as the catalog or a file describes it."""
    device: Device
    """The GPU at the clock that is asked for."""
    overrides: HardwareOverrides | None
    """Links that a file states."""
    rates: MeasuredRates | None
    """What was measured on the machine."""
    left_open: tuple[str, ...]
    """What decides the time and nobody stated (`projector.performance.Unstated`)."""

    def project(self, job: TrainingJob, target: Target, layout: Layout, *, compares: bool) -> PerformanceProjection:
        """The time of a laid-out job, beside that under other schedules where it `compares` as the question says.

        Raises `RateUnknown` where nobody can tell it.
        """
        from projector.performance import (  # noqa: PLC0415 - memory alone does not need it
            Unstated,
            project_performance,
            with_unstated,
        )

        schedule = self.question.schedule
        projection = project_performance(
            job,
            target,
            layout,
            self.device,
            schedule="auto" if schedule == "all" and not compares else schedule,
            backend=self.question.gemm_backend,
            overrides=self.overrides,
            peak_allocated_bytes=_peak(job, layout, self.device),
            rates=self.rates,
        )
        return with_unstated(projection, map(Unstated, self.left_open))


class Timed(NamedTuple):
    """What became of the question about time."""

    projection: PerformanceProjection | None = None
    """The time half; None where it was not asked for or nobody can tell it."""
    without_effect: tuple[str, ...] = ()
    """Keys of the hardware file that have no effect."""
    unknown: tuple[Unmodelled, ...] = ()
    """Why there is no time beside the memory."""

    def scaled(self, tables: tuple[ScalingTable, ...]) -> "Timed":
        """With tables of other clusters, where there is a time."""
        return self if self.projection is None else self._replace(projection=replace(self.projection, scaling=tables))


def time_engine(
    question: Question, loaded: LoadedConfiguration, device: Device, calibration: Calibration | None
) -> TimeEngine:
    """What projects time as the question asks for it; raises `ConfigurationError` where it contradicts itself."""
    rates = None if calibration is None or calibration.rates == MeasuredRates() else calibration.rates
    if rates is not None and question.clock_mhz is not None:
        message = f"{question.clock_mhz:g} MHz, and measured rates hold at the clock of their benchmark"
        raise ConfigurationError(message, place="--gpu-clock-mhz", expected="a clock, or rates in --calibration")
    clocked = device
    if question.clock_mhz is not None:
        from projector.performance import at_clock  # noqa: PLC0415 - memory alone does not need it

        clocked = at_clock(device, question.clock_mhz * 1e6)
    overrides = None if question.hardware is None else read_hardware_file(question.hardware)
    return TimeEngine(
        question=question,
        unclocked=device,
        device=clocked,
        overrides=overrides,
        rates=rates,
        left_open=tuple(_left_open(question, loaded, device)),
    )


def _left_open(question: Question, loaded: LoadedConfiguration, device: Device) -> Iterator[str]:
    """What decides the time and nobody stated, by the values of `Unstated`.

    Frameworks' defaults count as stated: they are what runs.
    """
    from projector.performance import Unstated  # noqa: PLC0415 - memory alone does not need it

    software = loaded.job.software
    own = device.vendor == "AMD" and software.dialect is not Dialect.PRIMUS_TURBO
    if own and software.attention_backend is None:
        yield Unstated.ATTENTION
    # A file that says 1 says what every file without a factor means.
    described = software.processes_bound or software.transformer_engine is not None
    unknown_host = question.host_factor is None and software.host_factor == 1 and not described
    if loaded.job.model.expert_blocks and unknown_host:
        yield Unstated.HOST


def timed(engine: TimeEngine, job: TrainingJob, target: Target, layout: Layout) -> Timed:
    """The time half, keys of the hardware file that have no effect, and why there is no time beside the memory.

    Raises `RateUnknown` where nobody can tell a time and nothing else was asked for.
    """
    keys = () if engine.overrides is None else engine.overrides.without_effect
    without_effect = tuple(f"hardware_config.{key}" for key in keys)
    try:
        projection = engine.project(job, target, layout, compares=True)
    except RateUnknown as error:
        if not engine.question.memory:
            raise
        unknown = Unmodelled(what=TIME, where=error.place, effect=f"{error.message}; {error.expected}", decides=False)
        return Timed(without_effect=without_effect, unknown=(unknown,))
    return Timed(projection=projection, without_effect=without_effect)


def _peak(job: TrainingJob, layout: Layout, device: Device) -> Callable[[Schedule], int]:
    """Most memory that a stage allocates under a schedule."""

    def peak_allocated_bytes(schedule: Schedule) -> int:
        stages = project_memory(job, layout, device, schedule=schedule, replay=False).stages
        return max(stage.level_bytes(MemoryLevel.ALLOCATED) for stage in stages)

    return peak_allocated_bytes


def stated(question: Question, job: TrainingJob) -> tuple[tuple[Assumption, ...], tuple[str, ...]]:
    """What a person states in place of figures and choices, with and without influence."""
    counted, idle = stated_choices(job, question)
    if job.tuning is None:
        return counted, idle
    if not question.performance:
        return counted, (*idle, "tuning (concerns times alone)")
    from projector.performance import stated_figures  # noqa: PLC0415 - loaded by now

    figures, without = stated_figures(job)
    return (*counted, *figures), (*idle, *without)


def method(question: Question, device: Device, job: TrainingJob) -> tuple[Assumption, ...]:
    """What the times rest on where it is not the catalog's usual rates."""
    found = []
    if question.gemm_backend != "analytical":
        why = "chosen; in proportions between shapes alone, at the catalog's rates, where it is origami"
        found.append(Assumption(what=f"times of matrix products by {question.gemm_backend}", why=why))
    if question.clock_mhz is not None and device.sustained_clock_hz is not None:
        from projector.performance import at_clock  # noqa: PLC0415 - loaded by now

        rates = at_clock(device, question.clock_mhz * 1e6).gemm_tflops
        shown = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
        why = (
            f"rates of matrix products ({shown} TFLOP/s) and attention are the catalog's at {question.clock_mhz:g} over"
            f" {device.sustained_clock_hz / 1e6:g} MHz, its sustained clock; memory and links do not change"
        )
        found.append(Assumption(what=f"a clock of {question.clock_mhz:g} MHz", why=why))
    if device.file is not None and device.estimated("gemm_tflops.bf16"):
        found.append(Assumption(what=f"rates of {device.name}", why=device.provenance["gemm_tflops.bf16"].why))
    if job.model.expert_blocks and job.software.routing_imbalance is None and not job.software.force_load_balancing:
        why = "nothing states how uneven it is; say --routing-imbalance"
        found.append(Assumption(what="time under balanced routing of tokens", why=why))
    from projector.costs.figures import assumed_rates  # noqa: PLC0415 - loaded by now

    for name, why in assumed_rates(device, job.precision.low_precision).items():
        found.append(Assumption(what=f"{name} of {device.name}", why=why))
    return tuple(found)
