"""Memory of every pipeline stage: persistent, allocated at the peak, reserved by the allocator, seen by the device."""

from projector.memory.activations import saved_activations
from projector.memory.allocator_settings import allocator_settings
from projector.memory.outside import measured_outside
from projector.memory.parameters import count_parameters
from projector.memory.project import project_memory
from projector.memory.routing import routing_assumptions
from projector.memory.unmodelled import unknown_figures, unmodelled_layers

__all__ = [
    "allocator_settings",
    "count_parameters",
    "measured_outside",
    "project_memory",
    "routing_assumptions",
    "saved_activations",
    "unknown_figures",
    "unmodelled_layers",
]
