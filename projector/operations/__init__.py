"""The vocabulary in which a layer says what it does: work for the device, weights, and tensors kept for backward.

`projector.layers` turns architecture and layout into ordered lists of `Operation`. Two readers consume the same list:
`projector.costs` turns each piece of work into seconds, `projector.memory` replays what each operation keeps. So
memory and time cannot disagree about what the job does.

All shapes are those of one device and one micro batch. Backward is stated apart for inputs and weights, because
pipeline schedules may separate the two.
"""

from projector.operations.held import NO_PARAMETERS, Held, held_by, parameter_class
from projector.operations.operation import LinearShape, Operation, SavedTensor, Split, Weight
from projector.operations.work import (
    AttentionKernel,
    Collective,
    CollectiveKind,
    ElementWise,
    Gemm,
    GemmLayout,
    Group,
    GroupedGemm,
    StatedSpeed,
    TokenVisits,
    Work,
)

Operations = tuple[Operation, ...]
"""A part of a model chunk: a layer, or what stands before the first or behind the last. Equal layers share one list
(`projector.layers.decoder`), so that what is derived of a list is remembered by its identity."""

__all__ = [
    "NO_PARAMETERS",
    "AttentionKernel",
    "Collective",
    "CollectiveKind",
    "ElementWise",
    "Gemm",
    "GemmLayout",
    "Group",
    "GroupedGemm",
    "Held",
    "LinearShape",
    "Operation",
    "Operations",
    "SavedTensor",
    "Split",
    "StatedSpeed",
    "TokenVisits",
    "Weight",
    "Work",
    "held_by",
    "parameter_class",
]
