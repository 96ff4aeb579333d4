"""Pipeline schedules as partial orders: what every rank does in which order, how long it takes, what is alive when.

A schedule is one total order of events per pipeline rank; data dependencies between ranks add the rest. Its time is the
longest path through that partial order (`longest_path`), its memory the most activations alive on a rank
(`in_flight`); `phase` is the door for whoever has model chunks with their times. Nothing here knows what a forward pass
is or costs; `projector.performance` supplies durations, `projector.memory` bytes.
"""

from projector.projection import ChunkDurations
from projector.schedule.bubble import TooFew, too_few_micro_batches
from projector.schedule.events import WHOLE, Event, Kind, Order, Passes
from projector.schedule.in_flight import InFlight, in_flight
from projector.schedule.order import (
    ADAPTIVE,
    ALL_AT_ONCE,
    AVAILABLE,
    COMBINED,
    OF_MEGATRON,
    OF_PYTORCH,
    framework_schedule,
    named_schedule,
    order,
    planned_schedule,
    suits,
)
from projector.schedule.phase import Replay, grouped, phase_time, replay, replayed_micro_batches, scheduled, short_order
from projector.schedule.timeline import PipelineTime, Timeline, longest_path, pipeline_time

__all__ = [
    "ADAPTIVE",
    "ALL_AT_ONCE",
    "AVAILABLE",
    "COMBINED",
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
    "Replay",
    "Timeline",
    "TooFew",
    "framework_schedule",
    "grouped",
    "in_flight",
    "longest_path",
    "named_schedule",
    "order",
    "phase_time",
    "pipeline_time",
    "planned_schedule",
    "replay",
    "replayed_micro_batches",
    "scheduled",
    "short_order",
    "suits",
    "too_few_micro_batches",
]
