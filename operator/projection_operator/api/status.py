"""The answer as it stands in `status`: sizes as quantities, everything else as integers with the unit in the name.

What is too long for an object goes into the report (`reconcile.report`); here are the figures that people look at.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from projection_operator.api.conditions import (
    ConditionStatus,
    ConditionType,
    condition_of,
    timestamp,
    truncated,
)
from projection_operator.api.quantity import quantity
from projector.projection import MemoryLevel, MemoryProjection, PerformanceProjection, Projection, StageMemory

COMPONENTS_MAX = 64
STAGES_MAX = 256
NOTES_MAX = 64
REASONS_MAX = 16
"""Lengths of lists in the schema (`crds/projectionrequests.yaml`)."""


class DeviceSource(StrEnum):
    """Where the GPU model is from."""

    SPEC = "Spec"
    NODE_LABELS = "NodeLabels"


def answer_fields(projection: Projection, *, device_source: DeviceSource, tokens: int | None) -> dict[str, Any]:
    """The fields of `status` that depend on the projection alone."""
    target = projection.target
    fields: dict[str, Any] = {
        "model": truncated(projection.model, 253),
        "hardware": {
            "device": truncated(target.device, 128),
            "devices": target.devices,
            "nodes": target.nodes,
            "source": str(device_source),
        },
        "unmodelled": [
            {
                "what": truncated(item.what, 512),
                "where": truncated(item.where, 512),
                "effect": truncated(item.effect, 1024),
            }
            for item in projection.unmodelled[:NOTES_MAX]
        ],
        "assumed": [truncated(f"{item.what}: {item.why}", 512) for item in projection.assumed[:NOTES_MAX]],
        "warnings": [truncated(warning, 512) for warning in _warnings(projection)[:NOTES_MAX]],
    }
    if projection.memory is not None:
        fields["verdict"] = str(projection.memory.verdict)
        fields["confidence"] = str(projection.memory.confidence)
        reasons = projection.memory.confidence_reasons[:REASONS_MAX]
        fields["confidenceReasons"] = [truncated(reason, 512) for reason in reasons]
        fields["memory"] = _memory(projection.memory)
    if projection.performance is not None:
        fields["throughput"] = _throughput(projection.performance, devices=target.devices, tokens=tokens)
    return fields


def _warnings(projection: Projection) -> tuple[str, ...]:
    return () if projection.performance is None else projection.performance.warnings


def progress_fields(stored: Mapping[str, Any], conditions: list[dict[str, Any]], *, now: datetime) -> dict[str, Any]:
    """Conditions and `completionTime`, which is when Completed last became true."""
    fields: dict[str, Any] = {"conditions": conditions}
    completed = condition_of(fields, ConditionType.COMPLETED)
    if completed.get("status") == ConditionStatus.TRUE:
        was = condition_of(stored, ConditionType.COMPLETED).get("status") == ConditionStatus.TRUE
        fields["completionTime"] = stored["completionTime"] if was and "completionTime" in stored else timestamp(now)
    return fields


def _memory(memory: MemoryProjection) -> dict[str, Any]:
    worst = memory.worst
    return {
        "perDevice": {
            "expected": quantity(worst.device_bytes),
            "lowerBound": quantity(worst.device_bytes_lower),
            "upperBound": quantity(worst.device_bytes_upper),
            "available": quantity(memory.device_capacity_bytes),
        },
        "worstStage": worst.stage,
        "components": _components(worst),
        "stages": [_stage(stage) for stage in memory.stages[:STAGES_MAX]],
    }


def _components(stage: StageMemory) -> list[dict[str, str]]:
    """One entry a name, in the engine's order; what is beyond the schema's limit is added up at the end."""
    sizes: dict[str, int] = {}
    for part in stage.components:
        name = truncated(part.name, 128)
        sizes[name] = sizes.get(name, 0) + part.size_bytes
    if len(sizes) > COMPONENTS_MAX:
        names = list(sizes)
        rest = sum(sizes.pop(name) for name in names[COMPONENTS_MAX - 1 :])
        sizes["further parts"] = rest
    return [{"name": name, "size": quantity(size)} for name, size in sizes.items()]


def _stage(stage: StageMemory) -> dict[str, Any]:
    return {
        "stage": stage.stage,
        "layers": len(stage.layers),
        "persistent": quantity(stage.level_bytes(MemoryLevel.PERSISTENT)),
        "peakAllocated": quantity(stage.level_bytes(MemoryLevel.ALLOCATED)),
        "peakReserved": quantity(stage.level_bytes(MemoryLevel.RESERVED)),
        "device": quantity(stage.device_bytes),
        "peakCause": truncated(stage.peak_cause, 512),
    }


def _throughput(performance: PerformanceProjection, *, devices: int, tokens: int | None) -> dict[str, Any]:
    reasons = performance.confidence_reasons[:REASONS_MAX]
    fields: dict[str, Any] = {
        "tokensPerSecondPerDevice": round(performance.tokens_per_second_per_device),
        "iterationTimeMilliseconds": round(performance.iteration_seconds * 1000),
        "iterationTimeLowerBoundMilliseconds": round(performance.iteration_seconds_lower * 1000),
        "iterationTimeUpperBoundMilliseconds": round(performance.iteration_seconds_upper * 1000),
        "confidence": str(performance.confidence),
        "confidenceReasons": [truncated(reason, 512) for reason in reasons],
        "teraflopsPerDevice": round(performance.tflops_per_device),
        "modelFlopsUtilizationPercent": round(performance.mfu * 100),
    }
    cluster_rate = performance.tokens_per_second_per_device * devices
    if tokens is not None and cluster_rate > 0:
        fields["trainingTimeSeconds"] = round(tokens / cluster_rate)
    return fields
