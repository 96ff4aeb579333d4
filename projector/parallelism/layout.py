"""The resolved layout: degrees, stages, and where the ranks of a group sit.

Ranks are numbered as Megatron-LM numbers them by default, order `tp-cp-ep-dp-pp` (megatron/core/parallel_state.py):
tensor-parallel neighbours first, pipeline stages last. Expert groups have their own numbering over the same ranks,
`etp-ep-edp-pp`. With `--use-tp-pp-dp-mapping` pipeline stages come before data parallelism in both.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import NamedTuple

from projector.job import Sharding
from projector.operations import Group


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """A run of consecutive layers that one pipeline rank executes in one go (a virtual pipeline stage)."""

    index: int
    """Number of the model chunk on its rank, from 0."""
    virtual_stage: int
    """Place in the order in which a micro batch passes the chunks of all ranks, from 0."""
    layer_ids: tuple[int, ...]
    """Global indices of its decoder layers."""
    embedding: bool
    """It starts with the token table."""
    output: bool
    """It ends with the final norm, output layer and loss."""
    mtp_layers: int
    """Multi-token-prediction layers in it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """What the devices of one pipeline rank hold."""

    rank: int
    """Pipeline rank, from 0."""
    chunks: tuple[Chunk, ...]
    """Its model chunks, by index."""

    @property
    def layer_ids(self) -> tuple[int, ...]:
        """Decoder layers of all chunks, by chunk."""
        return tuple(chain.from_iterable(chunk.layer_ids for chunk in self.chunks))


class Placement(NamedTuple):
    """How the ranks of one process group spread over nodes."""

    size: int
    """Ranks of the group."""
    ranks_per_node: int
    """Most ranks of the group on one node."""
    nodes: int
    """Nodes that the group touches."""
    extent: int = 0
    """Devices from the group's first to its last in the global numbering; 0 for as many as its nodes have."""


class _Ranks(NamedTuple):
    """The devices of one group, from its first on, and where groups of its kind start."""

    inner: int
    """Ranks at the same distance from each other."""
    stride: int
    """That distance."""
    outer: int = 1
    """Runs of so many ranks."""
    outer_stride: int = 0
    """Distance of the first ranks of two runs."""
    firsts: int = 1
    """Devices in a row with which groups start."""
    period: int = 1
    """Distance after which that repeats."""
    repeats: int | None = None
    """Times that it does; None for as long as there are devices."""

    @property
    def size(self) -> int:
        """Ranks of the group."""
        return self.inner * self.outer

    @property
    def offsets(self) -> list[int]:
        """Devices from the first on."""
        starts = range(0, self.outer * (self.outer_stride or 1), self.outer_stride or 1)
        return [start + self.stride * index for start in starts for index in range(self.inner)]

    def part(self, ranks: int, every: int) -> "_Ranks":
        """So many of them, one after the other, or one in `every`."""
        if self.outer == 1:
            stride = self.stride * every
            return _Ranks(ranks, stride, firsts=stride, period=ranks * stride)
        if ranks * every <= self.inner:
            return self._replace(inner=ranks, stride=self.stride * every, outer=1)
        inner = max(1, self.inner // every)
        step = max(1, every // self.inner)
        return self._replace(
            inner=inner, stride=self.stride * every, outer=ranks // inner, outer_stride=self.outer_stride * step
        )


_OF_LAYERS = (
    Group.TENSOR,
    Group.CONTEXT,
    Group.CONTEXT_INNER,
    Group.CONTEXT_OUTER,
    Group.EXPERT,
    Group.EXPERT_TENSOR,
)


class LayerGroups(NamedTuple):
    """Where the groups sit that layers communicate over; equal for layouts whose layers cost the same."""

    devices_per_node: int
    """Devices of one host."""
    placements: tuple[Placement, ...]
    """Tensor, context (whole, and its two levels) and expert-parallel ranks, and those that divide one expert."""

    def placement(self, group: Group) -> Placement:
        """How a group spreads over nodes."""
        return self.placements[_OF_LAYERS.index(group)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Every degree resolved and checked against model and cluster."""

    world: int
    """Devices of the cluster."""
    devices_per_node: int
    """Devices of one host."""
    tensor: int
    """Tensor-parallel degree."""
    pipeline: int
    """Pipeline stages."""
    virtual_pipeline: int
    """Model chunks per stage."""
    micro_batch_group: int
    """Consecutive micro batches that a model chunk takes before the next one's turn."""
    pending_micro_batches: int
    """Micro batches whose activations an automatic zero-bubble schedule may keep on a rank."""
    expert: int
    """Expert-parallel degree."""
    expert_tensor: int
    """Tensor-parallel degree inside experts."""
    context: int
    """Context-parallel degree."""
    context_exchange: int
    """Context-parallel ranks that exchange heads, where a ring runs between such groups; else 1."""
    data: int
    """Data-parallel degree: world / (tensor x pipeline x context)."""
    expert_data: int
    """Copies of an expert: world / (expert_tensor x expert x pipeline)."""
    sequence_parallel: bool
    """Norms and residuals divided along the sequence; always False at tensor 1."""
    sharding: Sharding
    """What data parallelism divides."""
    shard: int
    """Ranks that share one copy of dense sharded state; context-parallel ranks count."""
    expert_shard: int
    """Ranks that share one copy of experts' sharded state."""
    micro_batch: int
    """Sequences per micro batch."""
    global_batch: int
    """Sequences per iteration over the cluster, after scaling."""
    micro_batches: int
    """Micro batches per iteration and data-parallel rank."""
    pipeline_runs: int
    """Runs of the pipeline in an iteration, each with its share of the micro batches; it drains in between."""
    stages: tuple[Stage, ...]
    """Per pipeline rank, in order."""
    pipeline_before_data: bool
    """Ranks of the next pipeline stage follow those of a model's tensor and context parallelism, and data-parallel ones
    come last."""
    tied_across_stages: bool
    """First and last stage each hold the one token table and reduce its gradient together."""

    @property
    def run_micro_batches(self) -> int:
        """Micro batches of one run of the pipeline."""
        return self.micro_batches // self.pipeline_runs

    def size(self, group: Group) -> int:
        """Ranks of a process group."""
        return self._ranks(group).size

    def placement(self, group: Group, *, ranks: int | None = None, every: int = 1) -> Placement:
        """How the group that spreads over most nodes does so, since the others wait for it.

        Only `ranks` neighbours of the group, if asked, or `every` so many-th.
        """
        found = self._ranks(group)
        if ranks is not None or every > 1:
            found = found.part(found.size if ranks is None else ranks, every)
        return _placed(found, self.devices_per_node)

    def following(self, rank: int) -> Iterator[tuple[int, int]]:
        """Devices of a pipeline rank, each with the one of the next rank that it sends to."""
        stride, period = self._stage_stride, self._stage_stride * self.pipeline
        ahead = stride if rank + 1 < self.pipeline else stride - period
        for block in range(0, self.world, period):
            start = block + rank * stride
            yield from ((device, device + ahead) for device in range(start, start + stride))

    @property
    def layer_groups(self) -> LayerGroups:
        """Where the groups sit that layers communicate over."""
        return LayerGroups(self.devices_per_node, tuple(map(self.placement, _OF_LAYERS)))

    @property
    def _stage_stride(self) -> int:
        """Distance of neighbouring pipeline ranks in the global numbering."""
        return self.tensor * self.context if self.pipeline_before_data else self.world // self.pipeline

    def _ranks(self, group: Group) -> _Ranks:
        """Ranks of a group and the distance between neighbours in the global numbering."""
        stage, model = self._stage_stride, self.tensor * self.context
        apart = self.pipeline if self.pipeline_before_data else 1
        if group is Group.EMBEDDING:
            ends = 2 if self.tied_across_stages else 1
            return _Ranks(ends, stage * (self.pipeline - 1) or 1, firsts=stage, period=stage * self.pipeline)
        if group is Group.DATA and apart > 1 and self.context > 1:
            outer = (self.data, model * apart)
            return _Ranks(self.context, self.tensor, *outer, firsts=self.tensor, period=model, repeats=apart)
        found = {
            Group.TENSOR: (self.tensor, 1),
            Group.CONTEXT: (self.context, self.tensor),
            Group.CONTEXT_INNER: (self.context_exchange, self.tensor),
            Group.CONTEXT_OUTER: (self.context // self.context_exchange, self.tensor * self.context_exchange),
            Group.DATA: (self.data * self.context, self.tensor * apart),
            Group.EXPERT_TENSOR: (self.expert_tensor, 1),
            Group.EXPERT: (self.expert, self.expert_tensor),
            Group.EXPERT_DATA: (self.expert_data, self.expert_tensor * self.expert * apart),
            Group.PIPELINE: (self.pipeline, stage),
        }
        size, stride = found[group]
        return _Ranks(size, stride, firsts=stride, period=size * stride)


@cache
def _placed(ranks: _Ranks, devices_per_node: int) -> Placement:
    """How the ranks of the group spread that touches most nodes."""
    size, stride = ranks.size, ranks.stride
    if ranks.outer == 1 and stride >= devices_per_node:
        return Placement(size=size, ranks_per_node=1, nodes=size, extent=(size - 1) * stride + 1)
    aligned = ranks.period % devices_per_node == 0 and devices_per_node % stride == 0
    if ranks.outer == 1 and aligned and ranks.firsts <= stride:
        most, extent = min(size, devices_per_node // stride), (size - 1) * stride + 1
        return Placement(size=size, ranks_per_node=most, nodes=(extent - 1) // devices_per_node + 1, extent=extent)
    starts = {
        (again + first) % devices_per_node
        for again in range(0, ranks.period * (ranks.repeats or devices_per_node), ranks.period)
        for first in range(min(ranks.firsts, devices_per_node))
    }
    offsets = ranks.offsets
    spread = [Counter((start + offset) // devices_per_node for offset in offsets) for start in sorted(starts)]
    widest = max(spread, key=lambda nodes: (len(nodes), -max(nodes.values())))
    return Placement(size=size, ranks_per_node=max(widest.values()), nodes=len(widest), extent=offsets[-1] + 1)
