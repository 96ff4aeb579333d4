"""Who holds what: the layout of a job on a cluster, resolved and checked.

`resolve` turns the degrees that a person states into stages, model chunks, group sizes and their placement on nodes.
Everything that divides a weight, a token or a batch asks the `Layout`; nothing else does that arithmetic.
"""

from projector.parallelism.batch import minimum_nodes
from projector.parallelism.layout import Chunk, LayerGroups, Layout, Placement, Stage
from projector.parallelism.resolve import resolve

__all__ = ["Chunk", "LayerGroups", "Layout", "Placement", "Stage", "minimum_nodes", "resolve"]
