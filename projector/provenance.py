"""A configuration value that remembers where it came from, and what a reader hands on.

Every reader produces `LoadedConfiguration`; reports show its values with their sources, so that nobody has to guess
which of five files decided a number.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from projector.job import TrainingJob


class Source(StrEnum):
    """Who decided a value; later ones win."""

    DEFAULT = "default"
    MODULE_PRESET = "module preset"
    MODEL_PRESET = "model preset"
    CATALOG = "catalog"
    EXPERIMENT = "experiment file"
    VARIABLE = "variable"
    OVERRIDE = "override"
    OPTION = "option"


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigValue:
    """One effective value of the configuration."""

    key: str
    """Dotted name in the dialect of the file, such as `tensor_model_parallel_size`."""
    value: object
    """The value after retyping: None, bool, int, float, str, list or dict."""
    source: Source
    """Who decided it."""
    file: str | None = None
    """The file that holds it, relative to its root; None when no file does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Assumption:
    """A value that nothing stated and that the answer needs."""

    what: str
    """What was assumed, with its value, such as `vocabulary 128256 (tokenizer Llama3Tokenizer)`."""
    why: str
    """Where the assumption comes from and how to state the value instead."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unmodelled:
    """A part of the job that the engine did not understand, or a figure that nobody knows.

    One that `decides` makes the verdict `Unknown`, unless the job does not fit whatever the figure.
    """

    what: str
    """The key, layer kind or device by name."""
    where: str
    """Key, file or layers in which it stands."""
    effect: str
    """What the answer lacks because of it."""
    decides: bool
    """True when memory may be wrong by more than the stated interval, so that nothing may be said to fit."""
    overstates: bool = False
    """The answer counts more memory than the run needs: what fits fits, and what does not fit is left open."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedConfiguration:
    """What a reader made of a file."""

    job: "TrainingJob"
    """The job, complete except for what the target decides."""
    format: str = "projector"
    """Dialect of the file, one of `projector.config.FORMATS`."""
    nodes: int | None = None
    """Hosts that the file's launch command or cluster section states; a question's own count wins."""
    devices_per_node: int | None = None
    """GPUs of one host, likewise."""
    cluster_hint: str = ""
    """What in the file would tell the size of the cluster, where it cannot be resolved."""
    spelling: Mapping[str, str] = field(default_factory=dict)
    """The dialect's own key for each name that options and requests share, such as `micro_batch_size`."""
    values: Mapping[str, ConfigValue] = field(default_factory=dict)
    """Every effective value by key."""
    environment: Mapping[str, ConfigValue] = field(default_factory=dict)
    """Variables of torch's allocator that the file sets for the run, by name."""
    ignored: tuple[str, ...] = ()
    """Keys that were read and do not influence memory or time (logging, checkpoints, ...)."""
    assumed: tuple[Assumption, ...] = ()
    """What nothing stated and the answer needs."""
    unmodelled: tuple[Unmodelled, ...] = ()
    """What was not understood."""
