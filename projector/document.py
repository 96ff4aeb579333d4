"""The published shape of an answer: `projector both --output json`, and what the operator stores in full.

`projection.schema.json` beside this file is the contract. Ratios are 0-1, times milliseconds, sizes bytes; the half
that was not asked for is null.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, TypeAlias

from projector.projection import (
    SCHEMA_VERSION,
    ChunkPart,
    ChunkTime,
    CommunicationTotal,
    ComparedSchedule,
    MemoryLevel,
    MemoryProjection,
    ParameterCounts,
    PerformanceProjection,
    Projection,
    ScalingRow,
    ScheduleResult,
    SmallestLayout,
    StageComponent,
    StageMemory,
    component_tree,
)

Document: TypeAlias = dict[str, Any]
"""A JSON object."""

_MS = 1e3
"""Milliseconds of a second."""


def document(projection: Projection) -> Document:
    """The answer as JSON values."""
    return {
        "schema_version": SCHEMA_VERSION,
        "job": _job(projection),
        "target": _target(projection),
        "memory": None if projection.memory is None else _memory(projection.memory, projection.parameters),
        "performance": None if projection.performance is None else _performance(projection.performance),
        "parameters": _parameters(projection.parameters),
        "benchmark": None,
        "unmodelled": [
            {"what": each.what, "where": each.where, "effect": each.effect, "decides": each.decides}
            for each in projection.unmodelled
        ],
        "suggestions": [
            {
                "change": each.change,
                "memory_bytes": each.memory_bytes,
                "iteration_time_ms": None if each.iteration_seconds is None else each.iteration_seconds * _MS,
                "verdict": str(each.verdict),
            }
            for each in projection.suggestions
        ],
    }


def _job(projection: Projection) -> Document:
    return {
        "model": projection.model,
        "format": projection.format,
        "values": [
            {"key": each.key, "value": _json(each.value), "source": str(each.source), "file": each.file}
            for each in projection.values
        ],
        "ignored": list(projection.ignored),
        "assumed": [{"what": each.what, "why": each.why} for each in projection.assumed],
    }


def _target(projection: Projection) -> Document:
    target, layout = projection.target, projection.layout
    return {
        "nodes": target.nodes,
        "devices_per_node": target.devices_per_node,
        "devices": target.devices,
        "device": target.device,
        "scaling": str(target.scaling),
        "layout": {
            "tensor": layout.tensor,
            "pipeline": layout.pipeline,
            "virtual_pipeline": layout.virtual_pipeline,
            "expert": layout.expert,
            "expert_tensor": layout.expert_tensor,
            "context": layout.context,
            "data": layout.data,
            "sequence_parallel": layout.sequence_parallel,
            "shard": layout.shard,
        },
        "batch": {
            "micro_batch": projection.micro_batch,
            "global_batch": projection.global_batch,
            "micro_batches": projection.micro_batches,
            "sequence_length": projection.sequence_length,
        },
        "smallest": None if projection.smallest is None else _smallest(projection.smallest),
    }


def _smallest(smallest: SmallestLayout) -> Document:
    return {
        "nodes": smallest.nodes,
        "devices": smallest.devices,
        "data": smallest.data,
        "micro_batches": smallest.micro_batches,
        "global_batch": smallest.global_batch,
        "why": smallest.why,
        "differences": [
            {"what": each.what, "smallest": each.smallest, "target": each.target, "why": each.why}
            for each in smallest.differences
        ],
    }


def _memory(memory: MemoryProjection, counts: ParameterCounts) -> Document:
    trees = counts.stages or ((),) * len(memory.stages)
    return {
        "verdict": str(memory.verdict),
        "confidence": str(memory.confidence),
        "confidence_reasons": list(memory.confidence_reasons),
        "worst_stage": memory.worst.stage,
        "device_capacity_bytes": memory.device_capacity_bytes,
        "activations": [
            {
                "layer": each.name,
                "count": each.count,
                "recompute": each.recompute,
                "bytes": each.size_bytes,
                "components": [{"name": part.name, "bytes": part.size_bytes} for part in each.components],
            }
            for each in memory.activations
        ],
        "stages": [_stage(stage, tree) for stage, tree in zip(memory.stages, trees, strict=True)],
    }


def _stage(stage: StageMemory, tree: Sequence[StageComponent]) -> Document:
    return {
        "stage": stage.stage,
        "layers": list(stage.layers),
        "parameters": stage.parameters,
        "persistent_bytes": stage.level_bytes(MemoryLevel.PERSISTENT),
        "peak_allocated_bytes": stage.level_bytes(MemoryLevel.ALLOCATED),
        "peak_reserved_bytes": stage.level_bytes(MemoryLevel.RESERVED),
        "device_bytes": stage.device_bytes,
        "device_bytes_lower": stage.device_bytes_lower,
        "device_bytes_upper": stage.device_bytes_upper,
        "peak_cause": stage.peak_cause,
        "passes_in_flight": list(stage.passes_in_flight),
        "layers_in_flight": stage.layers_in_flight,
        "first_iteration_allocated_bytes": stage.first_iteration_allocated_bytes,
        "components": [
            {"name": part.name, "level": str(part.level), "bytes": part.size_bytes} for part in stage.components
        ],
        "uncertainties": [
            {
                "name": each.name,
                "level": str(each.level),
                "below_bytes": each.below_bytes,
                "above_bytes": each.above_bytes,
            }
            for each in stage.uncertainties
        ],
        "tree": [
            {"name": name, "parameters": parameters, "saved_bytes": saved}
            for name, parameters, saved in component_tree(stage, tree)
        ],
    }


def _performance(performance: PerformanceProjection) -> Document:
    rate = performance.tokens_per_second_per_device
    return {
        "iteration_time_ms": performance.iteration_seconds * _MS,
        "iteration_time_ms_lower": performance.iteration_seconds_lower * _MS,
        "iteration_time_ms_upper": performance.iteration_seconds_upper * _MS,
        "tokens_per_second_per_device": rate,
        "tokens_per_second_per_device_lower": performance.at_least(rate),
        "tokens_per_second_per_device_upper": performance.at_most(rate),
        "confidence": str(performance.confidence),
        "confidence_reasons": list(performance.confidence_reasons),
        "tflops_per_device": performance.tflops_per_device,
        "mfu": performance.mfu,
        "mfu_base_tflops": performance.mfu_base_tflops,
        "bubble_ratio": performance.bubble_ratio,
        "waterfall": [{"name": step.name, "ms": step.seconds * _MS} for step in performance.waterfall],
        "uncertainties": [
            {"name": each.name, "below_ms": each.below_seconds * _MS, "above_ms": each.above_seconds * _MS}
            for each in performance.uncertainties
        ],
        "communication": [_calls(each) for each in performance.communication],
        "schedule": schedule_document(performance.schedule),
        "chunks": [_chunk(chunk) for chunk in performance.chunks],
        "compared_schedules": [_compared(each) for each in performance.compared_schedules],
        "scaling": [
            {"scaling": str(table.scaling), "rows": [_scaled(row) for row in table.rows]}
            for table in performance.scaling
        ],
        "warnings": list(performance.warnings),
        "layers": [
            {
                "name": each.name,
                "count": each.count,
                "forward_ms": each.forward_seconds * _MS,
                "backward_ms": each.backward_seconds * _MS,
            }
            for each in performance.layer_times
        ],
    }


def _calls(total: CommunicationTotal) -> Document:
    return {
        "group": total.group,
        "collective": total.collective,
        "purpose": total.purpose,
        "bytes": total.message_bytes,
        "ms": total.seconds * _MS,
        "hidden_ms": total.hidden_seconds * _MS,
        "exposed_ms": total.exposed_seconds * _MS,
        "repeated_ms": total.repeated_seconds * _MS,
    }


def _compared(schedule: ComparedSchedule) -> Document:
    return {
        "name": schedule.name,
        "iteration_time_ms": schedule.iteration_seconds * _MS,
        "bubble_ratio": schedule.bubble_ratio,
        "peak_in_flight": schedule.result.peak_in_flight,
        "peak_allocated_bytes": schedule.peak_allocated_bytes,
    }


def _chunk(chunk: ChunkTime) -> Document:
    return {
        "stage": chunk.stage,
        "chunk": chunk.chunk,
        "layers": list(chunk.layer_ids),
        **_passes(chunk),
        "parts": [{"name": part.name, "count": part.count, **_passes(part)} for part in chunk.parts],
    }


def _passes(timed: ChunkTime | ChunkPart) -> Document:
    return {
        "forward_ms": timed.forward_seconds * _MS,
        "backward_input_ms": timed.backward_input_seconds * _MS,
        "backward_weight_ms": timed.backward_weight_seconds * _MS,
    }


def _scaled(row: ScalingRow) -> Document:
    time = row.time
    return {
        "nodes": row.nodes,
        "devices": row.devices,
        "refusal": row.refusal or None,
        "data": None if time is None else time.data,
        "micro_batches": None if time is None else time.micro_batches,
        "global_batch": None if time is None else time.global_batch,
        "iteration_time_ms": None if time is None else time.iteration_seconds * _MS,
        "iteration_time_ms_lower": None if time is None else time.iteration_seconds_lower * _MS,
        "iteration_time_ms_upper": None if time is None else time.iteration_seconds_upper * _MS,
        "tokens_per_second": None if time is None else row.tokens_per_second,
        "tokens_per_second_per_device": None if time is None else time.tokens_per_second_per_device,
        "efficiency": None if time is None else time.efficiency,
        "verdict": None if time is None or time.verdict is None else str(time.verdict),
    }


def schedule_document(schedule: ScheduleResult) -> Document:
    """A schedule, what every stage does under it, and the model chunks that it was computed from."""
    return {
        "name": schedule.name,
        "time_ms": schedule.seconds * _MS,
        "stages": [
            {
                "stage": each.stage,
                "busy_ms": each.busy_seconds * _MS,
                "sending_ms": each.sending_seconds * _MS,
                "bubble_ms": each.bubble_seconds * _MS,
                "peak_in_flight": each.peak_in_flight,
                "transfer_ms": transfer * _MS,
                "chunks": [
                    {
                        "forward_ms": chunk.forward * _MS,
                        "backward_input_ms": chunk.backward_input * _MS,
                        "backward_weight_ms": chunk.backward_weight * _MS,
                    }
                    for chunk in chunks
                ],
            }
            for each, transfer, chunks in zip(
                schedule.stages, schedule.phase.transfer_seconds, schedule.phase.chunks, strict=True
            )
        ],
    }


def _parameters(counts: ParameterCounts) -> Document:
    return {
        "total": counts.total,
        "vocabulary_padding": counts.vocabulary_padding,
        "multi_token_prediction": counts.multi_token_prediction,
        "active": counts.active,
        "per_device_max": counts.per_device_max,
        "components": [
            {
                "name": each.name,
                "parameters": each.parameters,
                "per_device_max": each.parameters_per_device_max,
                "activation_bytes": each.activation_bytes,
            }
            for each in counts.components
        ],
        "stages": [
            {
                "stage": stage,
                "parameters": sum(each.parameters for each in tree),
                "components": [{"name": each.name, "parameters": each.parameters} for each in tree],
            }
            for stage, tree in enumerate(counts.stages)
        ],
    }


def _json(value: object) -> Any:  # noqa: ANN401 - JSON is recursive and untyped
    """A configuration value as JSON holds it: YAML's dates, non-finite numbers and other strangers become text."""
    if isinstance(value, Enum):
        return _json(value.value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, Mapping):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_json(item) for item in value]
    return str(value)
