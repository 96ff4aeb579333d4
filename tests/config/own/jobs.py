"""Any job that the dataclasses allow, and small files of the project's own format."""

from dataclasses import MISSING, is_dataclass
from enum import StrEnum
from typing import Any

from hypothesis import strategies as st

from projector.catalog.model_file import FEED_FORWARDS, MIXERS
from projector.catalog.record import Slot, slots
from projector.config import LoadedConfiguration, parse_overrides, read
from projector.job import DecoderLayer, TrainingJob
from projector.provenance import Assumption, Unmodelled
from tests.config.builders import flat_text

TEXTS = st.text(min_size=1, max_size=30).filter(lambda text: "${" not in text)

SMALL = """\
projector: 1
model: {catalog: llama3.1-8b}
batch: {micro: 1, global: 8, sequence_length: 4096}
"""

WHOLE = """\
projector: 1
model:
  name: two kinds
  hidden: 1024
  vocabulary: 32000
  mixers:
    full: {kind: attention, heads: 16, key_value_heads: 4, head_dim: 64}
    sliding: {kind: attention, heads: 16, key_value_heads: 4, head_dim: 64, window: 512}
  feed_forwards:
    dense: {kind: dense, ffn: 4096}
    experts: {kind: experts, experts: 8, top_k: 2, expert_ffn: 512}
  layers:
  - [1, [full, dense]]
  - [3, [sliding, experts], [full, experts]]
parallelism: {tensor: 2, sharding: parameters}
batch: {micro: 2, micro_batches: 4, sequence_length: 2048}
precision: {low_precision: mxfp8}
recompute: {granularity: selective, modules: [core_attn, moe]}
schedule: zerobubble
cluster: {nodes: 2, devices_per_node: 4}
"""

_BATCH = ("micro_batch_size=1", "global_batch_size=8", "seq_length=1024")
_MEGATRON = """\
--num-layers 4 --hidden-size 512 --num-attention-heads 8 --vocab-size 32000 --max-position-embeddings 1024
--seq-length 1024 --micro-batch-size 1 --global-batch-size 8 --bf16
"""
_TORCHTITAN = """\
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 8
seq_len = 4096
[parallelism]
pipeline_parallel_degree = 2
"""
_HUGGING_FACE = """\
{"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
 "intermediate_size": 2048, "vocab_size": 32000}
"""
DIALECTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "primus": (flat_text(), ()),
    "megatron": (_MEGATRON, ()),
    "torchtitan": (_TORCHTITAN, ()),
    "huggingface": (_HUGGING_FACE, _BATCH),
    "huggingface, by name": ('{"model": "llama3.1-8b"}', _BATCH),
    "projector": (SMALL, ()),
}
"""A small configuration of every dialect, with the overrides that complete it."""


def load(text: str, *arguments: str, **variables: str) -> LoadedConfiguration:
    """Read a text with overrides as typed on a command line."""
    return read(text, name="job.yaml", overrides=parse_overrides(arguments), variables=variables)


def jobs() -> st.SearchStrategy[TrainingJob]:
    """Jobs with every field of every kind, whether or not any cluster could run them."""
    return _records(TrainingJob)


def notes() -> st.SearchStrategy[LoadedConfiguration]:
    """What a reader hands on: a job and what it had to say."""
    counts = st.none() | st.integers(1, 10**6)
    return st.builds(
        LoadedConfiguration,
        job=jobs(),
        nodes=counts,
        devices_per_node=counts,
        ignored=st.lists(TEXTS, max_size=3).map(tuple),
        assumed=st.lists(_records(Assumption), max_size=3).map(tuple),
        unmodelled=st.lists(_records(Unmodelled), max_size=3).map(tuple),
    )


def _records(cls: type) -> st.SearchStrategy[Any]:
    fields = {slot.name: _values(slot) for slot in slots(cls) if slot.name != "layers" or slot.kind is int}
    if "hidden" in fields:
        fields["layers"] = _layers()
    return st.builds(cls, **fields)


def _layers() -> st.SearchStrategy[tuple[DecoderLayer, ...]]:
    mixers = st.none() | st.one_of(*map(_records, MIXERS.values()))
    feed_forwards = st.none() | st.one_of(*map(_records, FEED_FORWARDS.values()))
    layer = st.builds(DecoderLayer, mixer=mixers, feed_forward=feed_forwards, post_norms=st.booleans())
    kinds = st.lists(layer, min_size=1, max_size=3)
    return kinds.flatmap(lambda some: st.lists(st.sampled_from(some), min_size=1, max_size=12)).map(tuple)


def _values(slot: Slot) -> st.SearchStrategy[Any]:
    one = _one(slot)
    several = st.lists(one, max_size=3).map(tuple) if slot.listed else one
    return st.none() | several if slot.nullable and slot.default in {None, MISSING} else several


def _one(slot: Slot) -> st.SearchStrategy[Any]:
    if slot.key == "context_communication":
        return st.sampled_from(["p2p", "all_gather", "a2a", "a2a+p2p"])
    if slot.key == "routing_imbalance":
        return st.floats(1, 64)
    if slot.key.endswith(("bandwidth_share", "efficiency")):
        return st.floats(0.01, 1)
    if is_dataclass(slot.kind):
        return _records(slot.kind)
    if issubclass(slot.kind, StrEnum):
        return st.sampled_from(list(slot.kind))
    strategies: dict[type, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        int: st.integers(slot.minimum, 4096),
        float: st.floats(0, 1),
        str: TEXTS,
    }
    return strategies[slot.kind]
