"""Small objects to decide about: requests as the API server serves them, and answers as the engine gives them."""

from typing import Any

from projection_operator.api.spec import Request, parse_request
from projector.job import Target
from projector.projection import (
    ChunkDurations,
    CommunicationTotal,
    Confidence,
    MemoryComponent,
    MemoryLevel,
    MemoryProjection,
    ParameterCounts,
    PerformanceProjection,
    PipelinePhase,
    Projection,
    ResolvedLayout,
    ScheduleResult,
    StageMemory,
    StageTime,
    TimeUncertainty,
    Verdict,
    WaterfallStep,
)
from projector.provenance import Assumption, Unmodelled

GIB = 1 << 30


def request_body(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of any type
    """A request as the API server serves it; `changes` replace fields of the spec, `status` and `metadata` theirs."""
    status, metadata = changes.pop("status", {}), changes.pop("metadata", {})
    spec = {
        "training": {"inline": "modules: {}\n"},
        "target": {"nodes": 8, "devicesPerNode": 8, "device": "MI300X", "scaling": "Strong"},
        "projections": ["Memory", "Performance"],
        "profiling": {"mode": "Simulate"},
        "pipelineSchedule": "Auto",
        **changes,
    }
    return {
        "metadata": {
            "namespace": "team",
            "name": "llama",
            "uid": "6d2c1a52-0b3c-4a36-a8c4-9c0a2f1b7f11",
            "generation": 1,
            "resourceVersion": "100",
            **metadata,
        },
        "spec": spec,
        "status": status,
    }


def request(**changes: Any) -> Request:  # noqa: ANN401 - fields of any type
    """The same, parsed."""
    return parse_request(request_body(**changes))


def stage(number: int = 0, *, weights: int = 100, activations: int = 50, device: int = 10) -> StageMemory:
    """One stage; sizes in GiB."""
    total = weights + activations + device
    return StageMemory(
        stage=number,
        layers=tuple(range(number * 4, number * 4 + 4)),
        parameters=10**9,
        components=(
            MemoryComponent(name="weights", level=MemoryLevel.PERSISTENT, size_bytes=weights * GIB),
            MemoryComponent(name="saved activations", level=MemoryLevel.ALLOCATED, size_bytes=activations * GIB),
            MemoryComponent(name="fragmentation", level=MemoryLevel.RESERVED, size_bytes=0),
            MemoryComponent(name="communicators", level=MemoryLevel.DEVICE, size_bytes=device * GIB),
        ),
        device_bytes_lower=(total - 5) * GIB,
        device_bytes_upper=(total + 5) * GIB,
        peak_cause="backward of the output layer",
    )


def memory(verdict: Verdict = Verdict.FITS, stages: tuple[StageMemory, ...] = ()) -> MemoryProjection:
    """The memory half of an answer."""
    return MemoryProjection(
        verdict=verdict, confidence=Confidence.MEDIUM, device_capacity_bytes=192 * GIB, stages=stages or (stage(),)
    )


def performance() -> PerformanceProjection:
    """The time half of an answer."""
    return PerformanceProjection(
        iteration_seconds=22.67,
        tokens_per_second_per_device=1084.4,
        tflops_per_device=498.6,
        mfu=0.381,
        mfu_base_tflops=1307.4,
        waterfall=(WaterfallStep(name="compute", seconds=20.0), WaterfallStep(name="optimizer step", seconds=2.67)),
        communication=(
            CommunicationTotal(
                group="data", collective="all_gather", message_bytes=10**9, seconds=0.5, exposed_seconds=0.1
            ),
        ),
        schedule=ScheduleResult(
            name="1f1b",
            stages=(StageTime(stage=0, busy_seconds=20.0, bubble_seconds=0.0, peak_in_flight=1.0),),
            phase=PipelinePhase(
                chunks=((ChunkDurations(forward=5.0, backward_input=10.0, backward_weight=5.0),),),
                micro_batches=1,
                transfer_seconds=(0.0,),
            ),
        ),
        uncertainties=(TimeUncertainty(name="measured runs", below_seconds=2.0, above_seconds=3.0),),
        confidence=Confidence.MEDIUM,
        confidence_reasons=("attention kernels not stated",),
    )


def projection(**changes: Any) -> Projection:  # noqa: ANN401 - fields of any type
    """An answer."""
    fields: dict[str, Any] = {
        "model": "llama3.1_70B",
        "format": "primus",
        "target": Target(device="MI300X", nodes=8, devices_per_node=8),
        "layout": ResolvedLayout(
            tensor=1,
            pipeline=1,
            virtual_pipeline=1,
            expert=1,
            expert_tensor=1,
            context=1,
            data=64,
            sequence_parallel=False,
            shard="parameters",
        ),
        "micro_batch": 3,
        "global_batch": 192,
        "sequence_length": 8192,
        "micro_batches": 1,
        "parameters": ParameterCounts(
            total=70553706496,
            vocabulary_padding=0,
            multi_token_prediction=0,
            active=69503033344,
            per_device_max=70553706496,
            components=(),
        ),
        "values": (),
        "ignored": (),
        "assumed": (Assumption(what="runtime context 1 GiB", why="no measurement for this driver"),),
        "unmodelled": (Unmodelled(what="moe_router_fusion", where="overrides", effect="none", decides=False),),
        "memory": memory(),
        "performance": performance(),
    }
    return Projection(**{**fields, **changes})
