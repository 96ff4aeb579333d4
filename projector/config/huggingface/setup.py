"""What the files beside a config.json decide about a run, whoever wrote them: DeepSpeed, accelerate, the Trainer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from projector import catalog
from projector.catalog.facts import read_mapping
from projector.config.element_types import ELEMENT_BYTES
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
    """Its ZeRO stages, or its plain data parallelism."""
    FSDP = "FSDP"
    """PyTorch's fully sharded data parallelism, of either version."""
    DDP = "PyTorch's DistributedDataParallel"
    """Whole copies of the model, whose gradients are reduced in buckets."""
    MEGATRON = "Megatron-LM"
    """Megatron-LM, which accelerate starts with its own arguments."""


class Kind(StrEnum):
    """Kinds of files that may lie beside a config.json; the data name them in lower case."""

    DEEPSPEED = "DeepSpeed"
    ACCELERATE = "accelerate"
    FSDP = "FSDP"


class Compute(StrEnum):
    """Type of weights and activations in a forward pass."""

    BF16 = "bf16"
    """Brain floating point, 2 bytes."""
    FP16 = "fp16"
    """IEEE half precision, 2 bytes."""
    FP32 = "fp32"
    """Single precision, 4 bytes: no mixed precision."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Buckets:
    """DeepSpeed's buffers in which gradients are collected to be reduced (deepspeed/runtime/zero/config.py)."""

    elements: int | None = 500_000_000
    """Gradients that one holds; None for the square of the model's width, which the Trainer puts for `auto`."""
    overlapped: bool | None = None
    """Reduction runs beside backward; None for what the ZeRO stage does by itself."""
    contiguous: bool = True
    """There are such buffers at all."""
    element_type: Compute | None = None
    """Type that gradients are reduced in; None for that of a forward pass."""

    def overlaps(self, sharding: Sharding) -> bool:
        """Whether reduction runs beside backward; ZeRO-3 does so by itself (`overlap_comm_valid`)."""
        return sharding is Sharding.PARAMETERS if self.overlapped is None else self.overlapped

    def size_bytes(self, sharding: Sharding, compute: Compute, *, width: int) -> int:
        """Bytes of all buffers: ZeRO-1 and 2 have a second one to overlap, ZeRO-3 one for good.

        Source: deepspeed/runtime/zero/stage_1_and_2.py (backward) and stage3.py (_setup_for_real_optimizer).
        """
        if sharding is Sharding.NONE or not self.contiguous:
            return 0
        count = 2 if self.overlaps(sharding) and sharding is not Sharding.PARAMETERS else 1
        elements = width * width if self.elements is None else self.elements
        return count * elements * ELEMENT_BYTES[self.element_type or compute]


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
    offload_shards: bool | None = None
    """Shards of weights, gradients and optimizer state are in host memory."""
    offload_gradients: bool | None = None
    """DeepSpeed keeps its shards of gradients in host memory, with the optimizer state."""
    step_elements: int | None = None
    """Parameters that a step of DeepSpeed's ZeRO-3 takes at a time."""
    buckets: Buckets | None = None
    """DeepSpeed's buffers of gradients."""
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
    decides: frozenset[str] = frozenset()
    """Keys that the reader maps to the run."""
    filled: frozenset[str] = frozenset()
    """Keys that may be `auto`, since the Trainer fills them."""

    @property
    def known(self) -> frozenset[str]:
        """Every key that the data name."""
        return self.ignored.union(self.decides, self.filled, (each.key for each in self.unmodelled))


def rest(keys: Keys, facts: FileFacts, notes: Notes, *, name: str) -> list[str]:
    """Keys of a file without influence, once its others are read; switches and unknown keys are noted."""
    note_switches(keys, notes, facts.unmodelled)
    return left_over(keys, notes, known=facts.known, file=name)


def plain(keys: Keys) -> dict[str, ConfigValue]:
    """The values with truth as truth: accelerate and the Trainer read `"false"` as they read false."""
    truths = {"true": True, "false": False}
    return {
        key: replace(value, value=truths[value.value.lower()])
        if isinstance(value.value, str) and value.value.lower() in truths
        else value
        for key, value in keys.values.items()
    }


@cache
def file_facts(kind: Kind) -> FileFacts:
    """Facts about the files of a kind."""
    content = _content()[kind.lower()]
    return FileFacts(
        ignored=frozenset(content["ignored"].split()),
        unmodelled=tuple(switch(item) for item in content["unmodelled"]),
        decides=frozenset(content["decides"].split()),
        filled=frozenset(content.get("filled", "").split()),
    )


@cache
def _content() -> Mapping[str, Any]:
    # The file ships with the package; the tests hold it to this shape.
    return read_mapping(Path(catalog.__file__).parent / FILE)


def merged(setups: Sequence[tuple[str, Setup]]) -> Setup:
    """All that several files state, by name; raises `ConfigurationError` where two contradict each other."""
    result = Setup()
    stated: dict[str, str] = {}
    for name, setup in setups:
        new: dict[str, Any] = {}
        for item in fields(Setup):
            mine, theirs = getattr(result, item.name), getattr(setup, item.name)
            if isinstance(mine, Mapping):
                new[item.name] = {**mine, **theirs}
            elif mine is not None and theirs is not None and mine != theirs:
                message = f"says {theirs}, and {stated[item.name]} says {mine}"
                place = setup.places.get(item.name, name)
                raise ConfigurationError(message, place=place, expected="make the two agree")
            elif theirs is not None:
                new[item.name] = theirs
                stated[item.name] = setup.places.get(item.name, name)
        result = replace(result, **new)
    return result
