"""The keys of the project's own format, made from the fields of the job's dataclasses.

A section is a field of `TrainingJob`, a key of it a field of that section. `model` has the keys of the catalog's model
files instead of a list of layers, or names one of its models.
"""

from collections.abc import Container, Iterator, Mapping
from dataclasses import MISSING, dataclass, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from projector.catalog.model_file import FEED_FORWARDS, MIXERS, POST_NORMS
from projector.catalog.record import Slot, slots
from projector.job import ModelArchitecture, TrainingJob

VERSION = 1
"""Version of the format; changes when a key changes its meaning or goes away."""
MARK = "projector"
"""The key that holds the version, and by which the format is recognised."""
CATALOG = "catalog"
"""The key of `model` that names a model of the catalog."""
BLOCKS: Mapping[str, Mapping[str, type]] = {"mixers": MIXERS, "feed_forwards": FEED_FORWARDS}
"""The two maps of blocks of `model`, with their kinds."""
NOTES = ("unmodelled", "assumed")
"""Sections with what the reader of another dialect had to say."""

SPELLING: Mapping[str, str] = {
    "micro_batch_size": "batch.micro",
    "global_batch_size": "batch.global",
    "seq_length": "batch.sequence_length",
    "tensor_model_parallel_size": "parallelism.tensor",
    "pipeline_model_parallel_size": "parallelism.pipeline",
    "virtual_pipeline_model_parallel_size": "parallelism.virtual_pipeline",
    "expert_model_parallel_size": "parallelism.expert",
    "expert_tensor_parallel_size": "parallelism.expert_tensor",
    "context_parallel_size": "parallelism.context",
    "sequence_parallel": "parallelism.sequence_parallel",
    "cp_comm_type": "parallelism.context_communication",
    "decoder_first_pipeline_num_layers": "parallelism.first_stage_layers",
    "decoder_last_pipeline_num_layers": "parallelism.last_stage_layers",
    "pipeline_model_parallel_layout": "parallelism.pipeline_layout",
    "account_for_embedding_in_pipeline_split": "parallelism.embedding_counts_as_layer",
    "account_for_loss_in_pipeline_split": "parallelism.loss_counts_as_layer",
    "data_parallel_shard_degree": "parallelism.shard_degree",
    "recompute_granularity": "recompute.granularity",
    "recompute_method": "recompute.method",
    "recompute_num_layers": "recompute.layers",
    "recompute_layer_ids": "recompute.layer_ids",
    "recompute_modules": "recompute.modules",
    "hidden_size": "model.hidden",
    "vocab_size": "model.vocabulary",
    "mtp_num_layers": "model.multi_token_prediction_layers",
    "make_vocab_size_divisible_by": "software.vocabulary_divisible_by",
}
"""The format's own key for each name that options, requests and people use."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """The machine that the job is meant for; a question's own counts win."""

    nodes: int | None = None
    """Hosts."""
    devices_per_node: int | None = None
    """GPUs of one host."""


@cache
def sections() -> dict[str, type]:
    """The dataclass of each section, in the order of the file."""
    found = {slot.key: slot.kind for slot in slots(TrainingJob) if is_dataclass(slot.kind)}
    return {**found, "cluster": Cluster}


def plain_keys(section: str) -> Iterator[Slot]:
    """The keys of a section that hold one value or a list."""
    blocks = {"layers"} if sections()[section] is ModelArchitecture else set()
    return (slot for slot in slots(sections()[section]) if slot.key not in blocks)


def defaults(stated: Container[str]) -> dict[str, Any]:
    """What holds where no file states it, section by section, as a file would state it.

    A section that may be absent has values only where it is one of the `stated` ones.
    """
    absent = {slot.key: None for slot in slots(TrainingJob) if slot.default is None and slot.key not in stated}
    found: dict[str, Any] = {
        section: {slot.key: plain(slot.default) for slot in plain_keys(section) if slot.default is not MISSING}
        for section in sections()
    }
    found["model"][POST_NORMS] = False
    return found | absent


def known_keys(blocks: Mapping[str, Mapping[str, str]]) -> set[str]:
    """Every dotted key of a file whose maps of blocks hold these names, each with its kind."""
    keys = {MARK, "schedule", f"model.{CATALOG}", "model.layers", f"model.{POST_NORMS}"}
    keys |= {f"model.{group}" for group in BLOCKS}
    for section in sections():
        keys |= {section, *(f"{section}.{slot.key}" for slot in plain_keys(section))}
    for group, named in blocks.items():
        for name, kind in named.items():
            # A kind that is none is another complaint than a key that is none.
            kinds = [BLOCKS[group][kind]] if kind in BLOCKS[group] else BLOCKS[group].values()
            fields = (slot.key for each in kinds for slot in slots(each))
            keys |= {f"model.{group}.{name}", *(f"model.{group}.{name}.{key}" for key in ("kind", *fields))}
    return keys


def plain(value: object) -> Any:  # noqa: ANN401 - a YAML value
    """A field's value as a file holds it: enumerations by their text, tuples as lists."""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value.value if isinstance(value, StrEnum) else value
