"""Layers as lists of operations: architecture and layout in, work, weights and saved tensors out.

One description serves both answers: `projector.costs` and `projector.performance` read the work, `projector.memory` the
weights, saved tensors and scratch.
"""

from projector.layers.adapters import COMPONENT as ADAPTERS
from projector.layers.decoder import layer_operations, unmodelled_blocks
from projector.layers.ends import embedding_operations, output_operations
from projector.layers.offload import OFFLOAD_MODULES, offloaded_names, with_offload
from projector.layers.recompute import (
    is_recomputed,
    kept_outputs,
    recomputed_layers,
    recomputed_modules,
    repeated_work,
    uniform_group,
)
from projector.layers.shapes import Shapes, padded_vocabulary, shapes_of

__all__ = [
    "ADAPTERS",
    "OFFLOAD_MODULES",
    "Shapes",
    "embedding_operations",
    "is_recomputed",
    "kept_outputs",
    "layer_operations",
    "offloaded_names",
    "output_operations",
    "padded_vocabulary",
    "recomputed_layers",
    "recomputed_modules",
    "repeated_work",
    "shapes_of",
    "uniform_group",
    "unmodelled_blocks",
    "with_offload",
]
