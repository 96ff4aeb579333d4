"""What a TorchTitan run is started with, whoever states it: a file or a command line."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from projector.config.cluster import Cluster
from projector.config.tree import Tree
from projector.provenance import Assumption, ConfigValue


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """Values of a run and the cluster it is told of."""

    tree: Tree
    """Values: of the file, or of the file or entry of the registry that a command names, with its own on top."""
    assumed: tuple[Assumption, ...] = ()
    """What had to be assumed about the entry, and about the script that names it."""
    registry: bool = False
    """It is of the generation that has a Python registry."""
    cluster: Cluster = field(default_factory=Cluster)
    """What the launcher says."""
    environment: Mapping[str, ConfigValue] = field(default_factory=dict)
    """Variables of torch's allocator that the command is started with."""
