"""From a question to the whole answer: read, lay out, project memory and time, say what was assumed."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from projector import catalog
from projector.api import DEFAULT_DEVICE, Question
from projector.asked import asked_job
from projector.catalog import Calibration, Device, MeasuredRates
from projector.config import (
    ALLOCATOR_VARIABLES,
    Assumption,
    ConfigValue,
    LoadedConfiguration,
    Source,
    Unmodelled,
    named_device,
    overrides_from_pairs,
    read,
    read_gpu_files,
)
from projector.errors import ConfigurationError, InputError
from projector.job import DEFAULT_DEVICES_PER_NODE, AttentionBackend, Schedule, Target, TrainingJob
from projector.memory import (
    allocator_settings,
    count_parameters,
    measured_outside,
    project_memory,
    routing_assumptions,
    saved_activations,
    unknown_figures,
    unmodelled_layers,
)
from projector.parallelism import Layout, minimum_nodes, resolve
from projector.projection import (
    MemoryLevel,
    MemoryProjection,
    PerformanceProjection,
    Projection,
    ResolvedLayout,
    Verdict,
)
from projector.scaling import scaling_tables, smallest_layout
from projector.schedule import named_schedule, planned_schedule
from projector.speed import Timed, TimeEngine, method, stated, time_engine, timed

_FLASH_ARCHITECTURES = ("sm80", "sm86", "sm89")
"""NVIDIA GPUs older than Hopper, where Transformer Engine prefers FlashAttention 2 to cuDNN
(TransformerEngine dot_product_attention/utils.py)."""
_NO_REPEATED_DROPOUT = ("sm100", "sm103")
"""NVIDIA GPUs where cuDNN's backward kernel with dropout does not repeat bit by bit, so that Transformer Engine takes
FlashAttention 2 in deterministic mode (transformer_engine/common/fused_attn/fused_attn.cpp)."""

_OF_STOCK_MEGATRON = (Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED)
"""Schedules of megatron/core/pipeline_parallel/schedules.py."""


def answer(question: Question) -> Projection:
    """Answer a question; what it raises is what the parts raise, all `InputError`."""
    loaded = load(question)
    device = _device(question)
    asked = asked_job(loaded.job, question)
    target = _target(question, loaded, asked, device)
    try:
        job, layout = _laid_out(asked, target, device)
    except InputError as error:
        raise _in_own_words(error, loaded.spelling) from error
    job, settings = _allocator(question, loaded, job, layout, device)
    unmodelled = (*loaded.unmodelled, *unmodelled_layers(job), *_unknown_samples(job))
    calibration = _calibration(question, device)
    memory = None
    if question.memory:
        memory, unmodelled = _memory(question, job, layout, device, unmodelled, calibration=calibration)
    unknown = unknown_figures(job, layout, device, calibration) if question.memory else ()
    measured = measured_outside(job, layout, calibration) if question.memory else ()
    speed = Timed()
    if question.performance:
        engine = time_engine(question, loaded, device, calibration)
        speed = timed(engine, job, target, layout)
        if question.scaling_nodes:
            elsewhere = partial(_elsewhere, question, loaded, engine, unmodelled, calibration)
            speed = speed.scaled(scaling_tables(question.scaling_nodes, asked, target, elsewhere))
    performance = speed.projection
    said, idle = stated(question, job)
    return Projection(
        model=job.model.name,
        format=loaded.format,
        target=target,
        layout=_resolved(layout),
        smallest=smallest_layout(job, target, layout),
        micro_batch=layout.micro_batch,
        global_batch=layout.global_batch,
        sequence_length=job.batch.sequence_length,
        micro_batches=layout.micro_batches,
        parameters=count_parameters(job, layout),
        values=_sorted(loaded.values),
        ignored=(*loaded.ignored, *speed.without_effect, *idle, *_unused(calibration), *_uncompared(question)),
        assumed=(
            *_assumed(question, loaded, target),
            *said,
            *(method(question, device, job) if performance else ()),
            *settings,
            *stand_in(job.schedule, layout.pipeline, layout.run_micro_batches),
            *_foreign_schedule(question, loaded.format),
            *measured,
            *(performance.measured if performance else ()),
            *(routing_assumptions(job, memory) if memory else ()),
        ),
        unmodelled=(*unmodelled, *unknown, *speed.unknown),
        memory=memory and replace(memory, activations=saved_activations(job, layout)),
        performance=performance,
    )


def _elsewhere(  # noqa: PLR0913, PLR0917 - the question, what it became, and what was measured
    question: Question,
    loaded: LoadedConfiguration,
    engine: TimeEngine,
    unmodelled: tuple[Unmodelled, ...],
    calibration: Calibration | None,
    target: Target,
) -> tuple[Layout, PerformanceProjection, Verdict | None]:
    """The answer on another cluster than the target: layout, time and, where memory is asked for, verdict."""
    job, layout = _laid_out(asked_job(loaded.job, question), target, engine.unclocked)
    performance = engine.project(job, target, layout, compares=False)
    if not question.memory:
        return layout, performance, None
    job, _ = _allocator(question, loaded, job, layout, engine.unclocked)
    memory, _ = _memory(question, job, layout, engine.unclocked, unmodelled, calibration=calibration)
    return layout, performance, memory.verdict


def _in_own_words(error: InputError, spelling: Mapping[str, str]) -> InputError:
    """The error with its place as the file spells it."""
    return type(error)(error.message, place=spelling.get(error.place, error.place), expected=error.expected)


def halves(
    job: TrainingJob, target: Target, *, replay: bool = True, rates: MeasuredRates | None = None
) -> tuple[MemoryProjection, PerformanceProjection]:
    """Memory and time of a job on a target, with measured `rates` where there are any; raises `InputError`."""
    from projector.performance import project_performance  # noqa: PLC0415 - memory alone does not need it

    device = catalog.device(target.device)
    job, layout = _laid_out(job, target, device)
    performance = project_performance(job, target, layout, device, rates=rates)
    return project_memory(job, layout, device, replay=replay), performance


def _laid_out(job: TrainingJob, target: Target, device: Device) -> tuple[TrainingJob, Layout]:
    """The job with everything decided that device and layout string decide, and its layout."""
    layout = resolve(job, target)
    parallelism = replace(job.parallelism, virtual_pipeline=layout.virtual_pipeline)
    return replace(with_device_defaults(job, device), parallelism=parallelism), layout


def load(question: Question) -> LoadedConfiguration:
    """What the reader makes of the question's configuration, before any target is considered."""
    return read(
        question.text,
        name=question.name,
        format=question.format,
        variables=question.variables,
        overrides=overrides_from_pairs(question.overrides.items()),
        primus_root=question.primus_root,
        root=question.directory,
        companions=question.companions,
    )


def effective(question: Question) -> LoadedConfiguration:
    """What was read, under the schedule and with the cluster that the question itself states."""
    loaded = load(question)
    return replace(
        loaded,
        job=asked_job(loaded.job, question),
        nodes=loaded.nodes if question.nodes is None else question.nodes,
        devices_per_node=loaded.devices_per_node if question.devices_per_node is None else question.devices_per_node,
    )


def with_device_defaults(job: TrainingJob, device: Device) -> TrainingJob:
    """The job with framework choices that the device decides: which kernel family runs attention."""
    if job.software.attention_backend is not None:
        return job
    software = job.software
    repeats = software.deterministic and software.attention_dropout > 0
    flash = (*_FLASH_ARCHITECTURES, *(_NO_REPEATED_DROPOUT if repeats else ()))
    cudnn = device.vendor == "NVIDIA" and device.architecture not in flash
    backend = AttentionBackend.CUDNN if cudnn else AttentionBackend.FLASH
    return replace(job, software=replace(software, attention_backend=backend))


def _device(question: Question) -> Device:
    """The GPU that is asked for, else the one that a file describes, else the default."""
    own = read_gpu_files(question.gpu_files)
    if question.device is None and len(own) == 1 and len(question.gpu_files) == 1:
        return own[0]
    return named_device(question.device or DEFAULT_DEVICE, own)


def _target(question: Question, loaded: LoadedConfiguration, job: TrainingJob, device: Device) -> Target:
    per_node = _first(question.devices_per_node, loaded.devices_per_node, DEFAULT_DEVICES_PER_NODE)
    nodes = _first(question.nodes, loaded.nodes, minimum_nodes(job, max(1, per_node)))
    return Target(device=device.name, nodes=nodes, devices_per_node=per_node, scaling=question.scaling)


def _first(*counts: int | None) -> int:
    """The first count that somebody states."""
    return next(count for count in counts if count is not None)


def _calibration(question: Question, device: Device) -> Calibration | None:
    """What was measured on the machine; raises `ConfigurationError` where that was on another GPU."""
    if question.calibration is None:
        return None
    from projector.config.calibration_file import read_calibration_file  # noqa: PLC0415 - for those who have measured

    found = read_calibration_file(question.calibration)
    try:
        measured = named_device(found.device, read_gpu_files(question.gpu_files))
    except InputError as error:
        raise type(error)(error.message, place="calibration file.device", expected=error.expected) from error
    if measured.name != device.name:
        raise ConfigurationError(
            f"was measured on {measured.name}, and the job is projected on {device.name}",
            place="calibration file.device",
            expected="a file for that GPU, or --gpu-arch",
        )
    return found


def _unused(calibration: Calibration | None) -> tuple[str, ...]:
    """Sections of the calibration file that change nothing."""
    return () if calibration is None else tuple(f"calibration.{key}" for key in calibration.without_effect)


def _unknown_samples(job: TrainingJob) -> tuple[Unmodelled, ...]:
    """What is said of packed samples whose length nothing states; raises `ConfigurationError` for one that is wrong."""
    length, sequence = job.batch.packed_length, job.batch.sequence_length
    if length is not None and not 1 <= length <= sequence:
        expected = f"a number of tokens from 1 to the sequence length, {sequence}"
        raise ConfigurationError(f"{length}", place="packed_length", expected=expected)
    if length is not None or not job.batch.masks_samples:
        return ()
    effect = "attention is counted over whole sequences, the most it can be; say --packed-length or batch.packed_length"
    return (Unmodelled(what="attention inside packed samples", where="packed_length", effect=effect, decides=False),)


def _uncompared(question: Question) -> tuple[str, ...]:
    """The word that compares schedules, where no time is asked for in which they differ."""
    is_idle = question.schedule == "all" and not question.performance
    return ("schedule all (compares times alone; memory is that of the run's own schedule)",) if is_idle else ()


def _allocator(
    question: Question, loaded: LoadedConfiguration, job: TrainingJob, layout: Layout, device: Device
) -> tuple[TrainingJob, tuple[Assumption, ...]]:
    """The job with the allocator's settings that hold, and what is assumed of them where memory is asked for."""
    if not question.memory:
        return job, ()
    own = loaded.values.get("software.expandable_segments")
    states = own is not None and own.source is not Source.DEFAULT
    asked = question.expandable_segments is not None
    stated = asked or states or not loaded.values.keys().isdisjoint(ALLOCATOR_VARIABLES)
    return allocator_settings(job, layout, device, stated=stated, asked=asked)


def _memory(  # noqa: PLR0913 - the question, what it became, and what is known of it
    question: Question,
    job: TrainingJob,
    layout: Layout,
    device: Device,
    unmodelled: tuple[Unmodelled, ...],
    *,
    calibration: Calibration | None,
) -> tuple[MemoryProjection, tuple[Unmodelled, ...]]:
    """The memory half, and the notes.

    What overstates memory decides where the job does not fit, unless what lies there all the time is too much already.
    """
    project = partial(
        project_memory, job, layout, device, safety_margin=question.memory_safety_margin, calibration=calibration
    )
    projection = project(understood=not any(each.decides for each in unmodelled))
    persistent = max(stage.level_bytes(MemoryLevel.PERSISTENT) for stage in projection.stages)
    open_ = any(each.overstates for each in unmodelled) and persistent < projection.device_capacity_bytes
    if projection.verdict is not Verdict.DOES_NOT_FIT or not open_:
        return projection, unmodelled
    deciding = tuple(replace(each, decides=each.decides or each.overstates) for each in unmodelled)
    return project(understood=False), deciding


def _resolved(layout: Layout) -> ResolvedLayout:
    return ResolvedLayout(
        tensor=layout.tensor,
        pipeline=layout.pipeline,
        virtual_pipeline=layout.virtual_pipeline,
        expert=layout.expert,
        expert_tensor=layout.expert_tensor,
        context=layout.context,
        data=layout.data,
        sequence_parallel=layout.sequence_parallel,
        shard=layout.sharding.value,
    )


def stand_in(schedule: Schedule | None, stages: int, micro_batches: int) -> tuple[Assumption, ...]:
    """The schedule whose order is used where it is not the one that was asked for."""
    planned = schedule and planned_schedule(schedule, stages, micro_batches)
    if schedule is None or planned is None or planned is schedule:
        return ()
    why = "an integer program is solved for few passes alone, and where scipy is installed"
    return (Assumption(what=f"the order of {planned.value} for {schedule.value}", why=why),)


def _foreign_schedule(question: Question, format_: str) -> tuple[Assumption, ...]:
    """That Megatron-LM itself has no such schedule as the question asks for."""
    asked = named_schedule(question.schedule)
    if asked is None or format_ != "megatron" or asked in _OF_STOCK_MEGATRON:
        return ()
    why = "asked for; Megatron-LM has 1F1B and its interleaved form alone, Primus's patches and forks have others"
    return (Assumption(what=f"a Megatron-LM with the schedule {asked.value}", why=why),)


def _sorted(values: Mapping[str, ConfigValue]) -> tuple[ConfigValue, ...]:
    return tuple(values[key] for key in sorted(values))


def _assumed(question: Question, loaded: LoadedConfiguration, target: Target) -> tuple[Assumption, ...]:
    own = []
    if question.device is None:
        only = "the only one that a file describes" if question.gpu_files else "nothing names one"
        own.append(Assumption(what=f"GPU {target.device}", why=f"{only}; say --gpu-arch or target.device"))
    if question.nodes is None and loaded.nodes is None:
        hint = f", since {loaded.cluster_hint}" if loaded.cluster_hint else ""
        own.append(
            Assumption(
                what=f"{target.nodes} node(s) of {target.devices_per_node} GPUs",
                why=f"the fewest that hold one copy of the model{hint}; say --target-nodes or target.nodes",
            )
        )
    if loaded.cluster_hint and question.devices_per_node is None and loaded.devices_per_node is None:
        own.append(Assumption(what=f"{target.devices_per_node} GPUs per node", why=loaded.cluster_hint))
    return (*loaded.assumed, *own)
