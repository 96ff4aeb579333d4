"""What the files beside a config.json decide about a run, whoever wrote them: DeepSpeed, accelerate, the Trainer."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from projector import catalog
from projector.catalog.facts import read_mapping
from projector.config.keys import Keys
from projector.config.notes import Notes
from projector.config.switches import Switch, left_over, note_switches, switch
from projector.errors import ConfigurationError
from projector.job import Sharding
from projector.provenance import ConfigValue

FILE = Path("frameworks") / "huggingface-run.yaml"
"""The data file, relative to the catalog's folder."""


class Engine(StrEnum):
    """Who divides the run over its GPUs."""

    DEEPSPEED = "DeepSpeed"
    FSDP = "FSDP"
    DDP = "PyTorch's DistributedDataParallel"
    MEGATRON = "Megatron-LM"


class Compute(StrEnum):
    """Type of weights and activations in a forward pass."""

    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """What a file states; None where it states nothing."""

    engine: Engine | None = None
    """Who divides the run."""
    sharding: Sharding | None = None
    """What data parallelism divides."""
    within_node: bool | None = None
    """Sharded state is divided over the GPUs of a node alone."""
    shard_degree: int | None = None
    """Ranks that share one sharded copy."""
    compute: Compute | None = None
    """Type of weights and activations in a forward pass."""
    gradient_compute: Compute | None = None
    """Type in which gradients are accumulated."""
    micro_batch: int | None = None
    """Sequences per micro batch and GPU."""
    accumulation: int | None = None
    """Micro batches per iteration."""
    global_batch: int | None = None
    """Sequences per iteration."""
    offload_fraction: float | None = None
    """Share of the optimizer state in host memory."""
    checkpointing: bool | None = None
    """Whether layers are computed again in backward."""
    optimizer: str | None = None
    """Name of the optimizer."""
    tensor: int | None = None
    """Tensor-parallel degree."""
    context: int | None = None
    """Context-parallel degree."""
    nodes: int | None = None
    """Hosts."""
    devices_per_node: int | None = None
    """GPUs of one host."""
    deepspeed_file: str | None = None
    """A DeepSpeed configuration that the file refers to."""
    megatron: Mapping[str, ConfigValue] = field(default_factory=dict)
    """Megatron-LM's arguments that the file states."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Key and file that decide a field, for messages."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileFacts:
    """What is known of the keys of one kind of file."""

    ignored: frozenset[str]
    """Keys, and sections by their name, without influence on memory or time."""
    unmodelled: tuple[Switch, ...]
    """Keys with an influence that the engine does not model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerFacts:
    """What an optimizer keeps of each parameter beside its fp32 weight."""

    first_moment_bytes: int
    """Bytes of the first moment."""
    second_moment_bytes: int
    """Bytes of the second moment."""
    kind: str
    """The update rule, by the names of the job."""


def rest(keys: Keys, facts: FileFacts, notes: Notes, *, name: str) -> list[str]:
    """Keys of a file without influence, once its others are read; switches and unknown keys are noted."""
    note_switches(keys, notes, facts.unmodelled)
    known = facts.ignored.union(each.key for each in facts.unmodelled)
    return left_over(keys, notes, known=known, file=name)


@cache
def file_facts(kind: str) -> FileFacts:
    """Facts about the files of `deepspeed`, `accelerate` or `fsdp`."""
    content = _content()[kind]
    return FileFacts(
        ignored=frozenset(content["ignored"].split()),
        unmodelled=tuple(switch(item) for item in content["unmodelled"]),
    )


@cache
def optimizers() -> Mapping[str, OptimizerFacts]:
    """What each optimizer keeps, by every name of it, in lower case."""
    facts = {}
    for item in _content()["optimizers"].values():
        kept = OptimizerFacts(
            first_moment_bytes=item["first"], second_moment_bytes=item["second"], kind=item.get("kind", "adam")
        )
        facts.update(dict.fromkeys(item["names"], kept))
    return facts


@cache
def _content() -> Mapping[str, Any]:
    # The file ships with the package; the tests hold it to this shape.
    return read_mapping(Path(catalog.__file__).parent / FILE)


def merged(setups: list[Setup]) -> Setup:
    """All that several files state; raises `ConfigurationError` where two contradict each other."""
    result = Setup()
    for setup in setups:
        new: dict[str, Any] = {}
        for item in fields(Setup):
            mine, theirs = getattr(result, item.name), getattr(setup, item.name)
            if isinstance(mine, Mapping):
                new[item.name] = {**mine, **theirs}
            elif mine is not None and theirs is not None and mine != theirs:
                first, second = result.places.get(item.name, "one file"), setup.places.get(item.name, "another")
                message = f"says {theirs}, and {first} says {mine}"
                raise ConfigurationError(message, place=second, expected="make the two agree")
            elif theirs is not None:
                new[item.name] = theirs
        result = replace(result, **new)
    return result
