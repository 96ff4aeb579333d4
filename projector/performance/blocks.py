"""Time of one block, a layer or an end of the model, for one micro batch, and of blocks one after the other."""

from collections.abc import Iterable
from typing import NamedTuple

from projector.costs import CostModel
from projector.identity import remembered
from projector.job import Software
from projector.layers import is_recomputed, repeated_work
from projector.operations import NO_PARAMETERS, Collective, ElementWise, Held, Operations, held_by
from projector.performance.combined import LayerParts
from projector.performance.host import NO_STEPS, Clocks, Launches, composed
from projector.performance.muon import NO_MATRICES, Matrices, joined
from projector.performance.passes import HOST, NOTHING, PassTime, pass_time
from projector.schedule import ChunkDurations


class BlockTime(NamedTuple):
    """One micro batch through one layer, or through the model chunk that layers make up."""

    name: str
    """Kind of layer, for the report."""
    counts: bool = True
    """It is a layer or an end of the model, and no exchange behind a pass."""
    forward: PassTime = NOTHING
    """Forward pass."""
    backward_input: PassTime = NOTHING
    """Backward pass towards the input, recomputation included."""
    backward_weight: PassTime = NOTHING
    """Backward pass towards the weights."""
    held: Held = NO_PARAMETERS
    """Trained parameters on the device."""
    matrices: Matrices = NO_MATRICES
    """Of them, the matrices that Muon orthogonalises."""
    forward_flops: float = 0.0
    """Floating-point operations of matrix products and attention in the forward pass, causal ones counted once."""
    forward_clocks: Clocks = NO_STEPS
    """How host and device take turns in the forward pass."""
    backward_clocks: Clocks = NO_STEPS
    """The same in the backward pass."""
    layers: tuple[LayerParts, ...] = ()
    """Parts of its layers, where passes may run beside those of another micro batch."""

    def plus(self, others: Iterable["BlockTime"]) -> "BlockTime":
        """This block and others one after the other, under this block's name."""
        blocks = (self, *others)
        return BlockTime(
            name=self.name,
            forward=NOTHING.plus(*(block.forward for block in blocks)),
            backward_input=NOTHING.plus(*(block.backward_input for block in blocks)),
            backward_weight=NOTHING.plus(*(block.backward_weight for block in blocks)),
            held=Held(
                dense=sum(block.held.dense for block in blocks), expert=sum(block.held.expert for block in blocks)
            ),
            matrices=joined((block.matrices, 1) for block in blocks),
            forward_flops=sum(block.forward_flops for block in blocks),
            forward_clocks=composed(block.forward_clocks for block in blocks),
            backward_clocks=composed(block.backward_clocks for block in reversed(blocks)),
            layers=tuple(layer for block in blocks for layer in block.layers),
        )

    def repeated(self, count: int) -> "BlockTime":
        """`count` such blocks one after the other."""
        if count == 1:
            return self
        return BlockTime(
            name=self.name,
            counts=self.counts,
            forward=self.forward.scaled(count),
            backward_input=self.backward_input.scaled(count),
            backward_weight=self.backward_weight.scaled(count),
            held=Held(dense=self.held.dense * count, expert=self.held.expert * count),
            matrices=joined([(self.matrices, count)]),
            forward_flops=self.forward_flops * count,
            forward_clocks=self.forward_clocks.repeated(count),
            backward_clocks=self.backward_clocks.repeated(count),
            layers=self.layers * count,
        )

    @property
    def backward(self) -> PassTime:
        """The whole backward pass."""
        return self.backward_input.plus(self.backward_weight)

    @property
    def durations(self) -> ChunkDurations:
        """What a schedule needs."""
        return ChunkDurations(
            forward=self.forward.seconds,
            backward_input=self.backward_input.seconds,
            backward_weight=self.backward_weight.seconds,
        )

    def host_bound(self, *, keeps_lead: bool) -> "BlockTime":
        """Lengthened where the device waits for the host."""
        ahead = self.forward_clocks.waiting_seconds(keeps_lead=keeps_lead)
        missing = self.backward_clocks.waiting_seconds(keeps_lead=keeps_lead)
        share = self.backward_input.seconds / (self.backward.seconds or 1.0)
        return self._replace(
            forward=self.forward.lengthened(ahead, HOST),
            backward_input=self.backward_input.lengthened(missing * share, HOST),
            backward_weight=self.backward_weight.lengthened(missing * (1 - share), HOST),
        )


class Again(NamedTuple):
    """What of a block runs a second time before its backward pass."""

    whole: bool = False
    """All operations."""
    modules: frozenset[str] = frozenset()
    """Those of selective recomputation's modules."""
    by_operation: bool = False
    """What checkpointing by operation does not keep."""
    products: bool = False
    """It keeps matrix products."""


def forward_flops(operations: Operations) -> float:
    """Floating-point operations of matrix products and attention in the forward pass."""
    return sum(
        work.flops
        for operation in operations
        for work in operation.forward
        if not isinstance(work, Collective | ElementWise)
    )


@remembered
def timed(operations: Operations, costs: CostModel, software: Software, name: str, again: Again) -> BlockTime:
    """The time of a block on one device, data-parallel communication apart.

    Described and costed alike, blocks of different layouts are one object.
    """
    forwards = [pass_time(operation.forward, costs, software) for operation in operations]
    rerun = [each for each in operations if again.whole or again.by_operation or is_recomputed(each, again.modules)]
    if again.by_operation:
        repeated = repeated_work(operations, products=again.products)
        second = [pass_time(works, costs, software) for works in repeated]
    else:
        second = [pass_time(operation.forward, costs, software) for operation in rerun]
    towards_input = (pass_time(operation.backward_input, costs, software) for operation in operations)
    towards_weights = (pass_time(operation.backward_weight, costs, software) for operation in operations)
    launches = Launches(costs, software)
    return BlockTime(
        name=name,
        forward=NOTHING.plus(*forwards),
        backward_input=NOTHING.plus(*towards_input, *(passed.redone() for passed in second)),
        backward_weight=NOTHING.plus(*towards_weights),
        held=held_by(operations),
        forward_flops=forward_flops(operations),
        forward_clocks=launches.forward(operations),
        backward_clocks=launches.backward(operations, rerun),
    )
