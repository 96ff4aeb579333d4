"""The answer: memory and speed of a job on a target, as values. `to_dict` gives the published JSON shape."""

from projector.projection.memory import (
    SAVED,
    Confidence,
    LayerActivations,
    MemoryComponent,
    MemoryLevel,
    MemoryProjection,
    SavedActivations,
    StageMemory,
    Uncertainty,
    Verdict,
)
from projector.projection.parameters import ComponentParameters, ParameterCounts, StageComponent, component_tree
from projector.projection.performance import (
    TIME,
    ChunkPart,
    ChunkTime,
    CommunicationTotal,
    ComparedSchedule,
    LayerTime,
    PerformanceProjection,
    ScheduleResult,
    StageTime,
    WaterfallStep,
)
from projector.projection.pipeline import ChunkDurations, PipelinePhase
from projector.projection.scaling import (
    LayoutDifference,
    ScaledTime,
    ScalingRow,
    ScalingTable,
    SmallestLayout,
)
from projector.projection.whole import SCHEMA_VERSION, Projection, ResolvedLayout, Suggestion

__all__ = [
    "SAVED",
    "SCHEMA_VERSION",
    "TIME",
    "ChunkDurations",
    "ChunkPart",
    "ChunkTime",
    "CommunicationTotal",
    "ComparedSchedule",
    "ComponentParameters",
    "Confidence",
    "LayerActivations",
    "LayerTime",
    "LayoutDifference",
    "MemoryComponent",
    "MemoryLevel",
    "MemoryProjection",
    "ParameterCounts",
    "PerformanceProjection",
    "PipelinePhase",
    "Projection",
    "ResolvedLayout",
    "SavedActivations",
    "ScaledTime",
    "ScalingRow",
    "ScalingTable",
    "ScheduleResult",
    "SmallestLayout",
    "StageComponent",
    "StageMemory",
    "StageTime",
    "Suggestion",
    "Uncertainty",
    "Verdict",
    "WaterfallStep",
    "component_tree",
]
