"""Pipeline schedules as partial orders: what every rank does in which order, how long it takes, what is alive when.

A schedule is one total order of events per pipeline rank; data dependencies between ranks add the rest. Its time is the
longest path through that partial order (`longest_path`), its memory the most activations alive on a rank
(`in_flight`). Nothing here knows what a forward pass is or costs; `projector.performance` supplies durations,
`projector.memory` bytes.
"""

from projector.schedule.events import WHOLE, Event, Kind, Order, Passes
from projector.schedule.in_flight import InFlight, in_flight
from projector.schedule.order import (
    ADAPTIVE,
    ALL_AT_ONCE,
    AVAILABLE,
    OF_MEGATRON,
    OF_PYTORCH,
    framework_schedule,
    named_schedule,
    order,
    planned_schedule,
)
from projector.schedule.timeline import ChunkDurations, PipelineTime, Timeline, longest_path, pipeline_time

__all__ = [
    "ADAPTIVE",
    "ALL_AT_ONCE",
    "AVAILABLE",
    "OF_MEGATRON",
    "OF_PYTORCH",
    "WHOLE",
    "ChunkDurations",
    "Event",
    "InFlight",
    "Kind",
    "Order",
    "Passes",
    "PipelineTime",
    "Timeline",
    "framework_schedule",
    "in_flight",
    "longest_path",
    "named_schedule",
    "order",
    "pipeline_time",
    "planned_schedule",
]
