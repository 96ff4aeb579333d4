"""Hand-made answers with numbers that a reader can check in the head."""

from dataclasses import replace

from projector.job import Scaling, Target
from projector.projection import (
    ChunkDurations,
    ChunkPart,
    ChunkTime,
    CommunicationTotal,
    ComparedSchedule,
    ComponentParameters,
    Confidence,
    LayerActivations,
    LayerTime,
    LayoutDifference,
    MemoryComponent,
    MemoryLevel,
    MemoryProjection,
    ParameterCounts,
    PerformanceProjection,
    PipelinePhase,
    Projection,
    ResolvedLayout,
    SavedActivations,
    ScaledTime,
    ScalingRow,
    ScalingTable,
    ScheduleResult,
    SmallestLayout,
    StageMemory,
    StageTime,
    Suggestion,
    TimeUncertainty,
    Uncertainty,
    Verdict,
    WaterfallStep,
)
from projector.provenance import Assumption, ConfigValue, Source, Unmodelled

GIB = 1 << 30
CAPACITY = round(191.98 * GIB)


def a_stage(stage: int = 0, *, activations_gib: float = 60.0, layers: int = 20) -> StageMemory:
    parts = (
        ("weights", MemoryLevel.PERSISTENT, 10.0),
        ("gradients", MemoryLevel.PERSISTENT, 20.0),
        ("optimizer state", MemoryLevel.PERSISTENT, 30.005),
        ("saved activations: mlp", MemoryLevel.ALLOCATED, activations_gib),
        ("allocator slack", MemoryLevel.RESERVED, 3.333),
        ("runtime context", MemoryLevel.DEVICE, 1.111),
        ("communicators", MemoryLevel.DEVICE, 2.224),
    )
    components = tuple(MemoryComponent(name=n, level=level, size_bytes=round(size * GIB)) for n, level, size in parts)
    total = sum(part.size_bytes for part in components)
    return StageMemory(
        stage=stage,
        layers=tuple(range(stage * layers, (stage + 1) * layers)),
        parameters=2_000_000_000,
        components=components,
        device_bytes_lower=total - 5 * GIB,
        device_bytes_upper=total + 5 * GIB,
        peak_cause="backward of the last layer, with 4 micro batches in flight",
        passes_in_flight=(4,),
        layers_in_flight=4 * layers,
        first_iteration_allocated_bytes=round((60.005 + activations_gib - 7) * GIB),
        uncertainties=(
            Uncertainty(name="caching allocator", level=MemoryLevel.RESERVED, below_bytes=GIB, above_bytes=2 * GIB),
            Uncertainty(
                name="outside the allocator", level=MemoryLevel.DEVICE, below_bytes=4 * GIB, above_bytes=3 * GIB
            ),
        ),
    )


def a_memory(*, stages: int = 1, verdict: Verdict = Verdict.FITS) -> MemoryProjection:
    return MemoryProjection(
        verdict=verdict,
        confidence=Confidence.MEDIUM,
        device_capacity_bytes=CAPACITY,
        stages=tuple(a_stage(rank, activations_gib=60.0 - rank) for rank in range(stages)),
        confidence_reasons=("few runs on GPUs of AMD are published",),
        activations=(
            LayerActivations(
                name="dense_layer",
                count=20 * stages,
                recompute="selective",
                components=(
                    SavedActivations(name="self_attention", size_bytes=5 << 20),
                    SavedActivations(name="mlp", size_bytes=10 << 20),
                ),
            ),
        ),
    )


def a_schedule(*, stages: int = 1) -> ScheduleResult:
    one = ChunkDurations(forward=0.5, backward_input=0.75, backward_weight=0.5)
    return ScheduleResult(
        name="1f1b",
        stages=tuple(
            StageTime(stage=rank, busy_seconds=7.0, bubble_seconds=1.0, peak_in_flight=float(stages - rank))
            for rank in range(stages)
        ),
        phase=PipelinePhase(chunks=((one,),) * stages, micro_batches=4, transfer_seconds=(0.25,) * stages),
    )


def a_chunk(rank: int, stages: int) -> ChunkTime:
    """20 layers of 0.5 s forward and 1.25 s backward in all, with the token table on the first stage."""
    layers = ChunkPart(
        name="dense layer", count=20, forward_seconds=0.5, backward_input_seconds=0.75, backward_weight_seconds=0.5
    )
    table = ChunkPart(
        name="embedding", count=1, forward_seconds=0.1, backward_input_seconds=0.0, backward_weight_seconds=0.2
    )
    return ChunkTime(
        stage=rank,
        chunk=0,
        layer_ids=tuple(range(rank * 20, rank * 20 + 20)),
        parts=(layers, table) if rank == 0 and stages > 1 else (layers,),
    )


def a_scaled_time(micro_batches: int, *, efficiency: float, verdict: Verdict) -> ScaledTime:
    return ScaledTime(
        data=64 // micro_batches,
        micro_batches=micro_batches,
        global_batch=192,
        iteration_seconds=8.0 * micro_batches,
        iteration_seconds_lower=7.0 * micro_batches,
        iteration_seconds_upper=10.0 * micro_batches,
        tokens_per_second_per_device=3072.4,
        efficiency=efficiency,
        verdict=verdict,
    )


def a_performance(*, stages: int = 1) -> PerformanceProjection:
    return PerformanceProjection(
        iteration_seconds=8.0,
        tokens_per_second_per_device=3072.4,
        tflops_per_device=512.25,
        mfu=0.3918,
        mfu_base_tflops=1307.4,
        waterfall=(
            WaterfallStep(name="compute", seconds=6.0),
            WaterfallStep(name="pipeline bubble", seconds=1.0),
            WaterfallStep(name="exposed data-parallel communication", seconds=0.75),
            WaterfallStep(name="optimizer step", seconds=0.25),
        ),
        communication=(
            CommunicationTotal(
                group="data",
                collective="reduce-scatter",
                purpose="gradients",
                message_bytes=3 << 30,
                seconds=1.5,
                exposed_seconds=0.75,
            ),
        ),
        schedule=a_schedule(stages=stages),
        compared_schedules=(
            ComparedSchedule(result=a_schedule(stages=stages), iteration_seconds=8.0, peak_allocated_bytes=120 * GIB),
        ),
        chunks=tuple(a_chunk(rank, stages) for rank in range(stages)),
        layer_times=(LayerTime(name="dense layer", count=80, forward_seconds=0.0125, backward_seconds=0.0375),),
        scaling=(
            ScalingTable(
                scaling=Scaling.STRONG,
                rows=(
                    ScalingRow(nodes=1, devices=8, time=a_scaled_time(8, efficiency=1.0, verdict=Verdict.AT_RISK)),
                    ScalingRow(nodes=8, devices=64, time=a_scaled_time(1, efficiency=0.96, verdict=Verdict.FITS)),
                    ScalingRow(nodes=16, devices=128, refusal="192 does not divide over 3 x 128 = 384"),
                ),
            ),
        ),
        uncertainties=(
            TimeUncertainty(name="how far measured runs lie", below_seconds=0.5, above_seconds=1.5),
            TimeUncertainty(name="attention kernels, unstated", below_seconds=0.0, above_seconds=0.5),
        ),
        modes=("dense layers on MI300X",),
        confidence=Confidence.MEDIUM,
        confidence_reasons=("attention kernels not stated",),
        warnings=("few micro batches for the stages",),
    )


def some_parameters() -> ParameterCounts:
    rows = (
        ("embedding", 1000),
        ("dense_layer.self_attention", 2000),
        ("dense_layer.mlp", 3000),
        ("output_layer", 1000),
    )
    return ParameterCounts(
        total=7000,
        vocabulary_padding=24,
        multi_token_prediction=0,
        active=6000,
        per_device_max=7024,
        components=tuple(
            ComponentParameters(name=name, parameters=n, parameters_per_device_max=n, activation_bytes=n << 20)
            for name, n in rows
        ),
    )


def a_projection(*, stages: int = 1, verdict: Verdict = Verdict.FITS) -> Projection:
    """A complete answer: every optional part is there."""
    return Projection(
        model="llama3.1-70b",
        format="primus",
        target=Target(device="MI300X", nodes=8, devices_per_node=8, scaling=Scaling.STRONG),
        layout=ResolvedLayout(
            tensor=1,
            pipeline=stages,
            virtual_pipeline=1,
            expert=1,
            expert_tensor=1,
            context=1,
            data=64 // stages,
            sequence_parallel=True,
            shard="parameters",
        ),
        smallest=SmallestLayout(
            nodes=1,
            devices=8,
            data=8,
            micro_batches=8,
            global_batch=192,
            why="whole nodes of 8 GPUs",
            differences=(LayoutDifference(what="nodes", smallest=1, target=8, why="the target"),),
        ),
        micro_batch=3,
        global_batch=192,
        sequence_length=8192,
        micro_batches=stages,
        parameters=some_parameters(),
        values=(
            ConfigValue(key="lr", value=1.0e-5, source=Source.EXPERIMENT, file="job.yaml"),
            ConfigValue(key="moe_layer_freq", value=[0, 1], source=Source.OVERRIDE),
            ConfigValue(key="save", value=None, source=Source.MODULE_PRESET, file="modules/pre_trainer.yaml"),
        ),
        ignored=("lr", "save"),
        assumed=(Assumption(what="device MI300X", why="nothing names a GPU; --gpu-arch states one"),),
        unmodelled=(
            Unmodelled(what="lora_rank", where="lora_rank: 16", effect="frozen weights are counted", decides=True),
        ),
        memory=a_memory(stages=stages, verdict=verdict),
        performance=a_performance(stages=stages),
        suggestions=(
            Suggestion(
                change="micro_batch_size: 2", memory_bytes=90 * GIB, iteration_seconds=9.0, verdict=Verdict.FITS
            ),
        ),
    )


def without_halves(projection: Projection) -> Projection:
    """Neither memory nor performance, and nothing to remark."""
    return replace(
        projection, memory=None, performance=None, ignored=(), assumed=(), unmodelled=(), suggestions=(), values=()
    )
