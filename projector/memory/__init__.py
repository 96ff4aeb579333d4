"""Memory of every pipeline stage: persistent, allocated at the peak, reserved by the allocator, seen by the device."""

from projector.memory.outside import memory_assumptions
from projector.memory.parameters import count_parameters
from projector.memory.project import project_memory
from projector.memory.unmodelled import unknown_figures, unmodelled_layers

__all__ = ["count_parameters", "memory_assumptions", "project_memory", "unknown_figures", "unmodelled_layers"]
