"""What a TorchTitan run is started with, whoever states it: a file or a command line."""

from dataclasses import dataclass

from projector.config.tree import Tree
from projector.provenance import Assumption


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """Values of a run and the cluster it is told of."""

    tree: Tree
    """Values: of the file, or of the file or entry of the registry that a command names, with its own on top."""
    assumed: tuple[Assumption, ...] = ()
    """What had to be assumed about the entry."""
    registry: bool = False
    """It is of the generation that has a Python registry."""
    nodes: int | None = None
    """Hosts that torchrun is told of."""
    devices: int | None = None
    """Processes on each."""
