"""Memory of every pipeline stage: persistent, allocated at the peak, reserved by the allocator, seen by the device."""

from projector.memory.parameters import count_parameters
from projector.memory.project import project_memory
from projector.memory.unmodelled import unmodelled_layers

__all__ = ["count_parameters", "project_memory", "unmodelled_layers"]
