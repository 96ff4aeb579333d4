"""Lists of operations are told apart by identity: equal layers share one (`projector.layers.decoder`)."""

from projector.identity import remembered
from projector.operations import Operation

__all__ = ["Operations", "remembered"]

Operations = tuple[Operation, ...]
"""A part of a model chunk: a layer, or what stands before the first or behind the last."""
