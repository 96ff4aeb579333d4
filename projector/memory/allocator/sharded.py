"""Two iterations of fully sharded training (FSDP2) on torch's caching allocator.

What is made when, on which stream, follows torch 2.6 torch/distributed/fsdp/_fully_shard (`_fsdp_collectives.py`,
`_fsdp_param_group.py`): flat results of gathering live in the pool of the gathering stream, one beside the next; whole
weights in the computing stream's; inputs of reduction there too, two at a time; sharded gradients in the reducing
stream's until the next iteration begins. The root group (token table, output layer) stays whole to the end of backward,
the last layer from forward to its backward.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from projector.memory.allocator.caching import Block, CachingAllocator
from projector.memory.allocator.iterations import Peaks
from projector.memory.allocator.tape import GRADIENT, INPUT, INPUT_GRADIENT, MAIN, OUTPUT, Tape, play_steps

GATHER, REDUCE = 2, 3
"""Streams of all-gather and reduce-scatter."""
REDUCE_INPUTS = 2
"""Inputs of reduce-scatter that are alive at a time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Widths:
    """Bytes of an element of a weight in its several places."""

    shard: int
    """As a shard."""
    gathered: int
    """Whole."""
    reduced: int
    """Of its gradient on the way between ranks."""
    gradient: int
    """Of its sharded gradient."""
    moments: tuple[float, ...]
    """Of each moment of the optimizer."""


class ShardedWeight(NamedTuple):
    """A weight and who shares it."""

    elements: int
    """Elements on a device before sharding."""
    ranks: int
    """Ranks that share one copy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """Weights that are gathered together, and what runs while they are whole."""

    weights: tuple[ShardedWeight, ...]
    """What is gathered."""
    tape: Tape
    """Activations of a micro batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardedModel:
    """A model as FSDP2 runs it."""

    first: Unit
    """Token table."""
    layers: tuple[Unit, ...]
    """Decoder layers."""
    last: Unit
    """Final norm, output layer, loss."""
    widths: Widths
    """Element sizes."""
    micro_batches: int
    """Micro batches of an iteration."""
    reshards: bool
    """Layers give up whole weights after forward."""

    @property
    def units(self) -> tuple[Unit, ...]:
        """All, in order."""
        return (self.first, *self.layers, self.last)


def play_sharded(model: ShardedModel, *, caches: Sequence[int], expandable: bool) -> Peaks:
    """Play startup and two iterations; `caches` are there from the first pass on."""
    allocator = CachingAllocator(expandable=expandable)
    player = _Player(allocator, model)
    shards = [elements / ranks for unit in model.units for elements, ranks in unit.weights]
    for elements in shards:
        allocator.allocate(round(model.widths.shard * elements))
    for size in caches:
        allocator.allocate(size)
    player.iteration()
    for elements in shards:
        for width in model.widths.moments:
            allocator.allocate(round(width * elements))
    first = allocator.reserved_bytes
    player.iteration()
    return Peaks(
        allocated_bytes=allocator.peak_allocated_bytes,
        reserved_bytes=allocator.reserved_bytes,
        first_reserved_bytes=first,
    )


class _Player:
    """Plays the iterations of a rank."""

    def __init__(self, allocator: CachingAllocator, model: ShardedModel) -> None:
        self._allocator = allocator
        self._model = model
        self._gathered: Block | None = None
        self._whole: dict[int, list[Block]] = {}
        self._inputs: list[Block] = []
        self._gradients: list[Block] = []

    def iteration(self) -> None:
        """All micro batches; sharded gradients of the one before are given up first."""
        self._release(self._gradients)
        for _ in range(self._model.micro_batches):
            self._micro_batch()
        self._release(self._inputs)

    def _micro_batch(self) -> None:
        model = self._model
        root = len(model.layers)
        self._gather(root, [*model.first.weights, *model.last.weights])
        units = model.units
        tensors: list[list[Block | None]] = []
        carried: Block | None = None
        for number, unit in enumerate(units):
            layer = number - 1
            inside = 0 <= layer < root
            if inside:
                self._gather(layer, unit.weights)
            blocks: list[Block | None] = [None] * unit.tape.slots
            blocks[INPUT] = carried
            play_steps(self._allocator, unit.tape.forward, blocks)
            carried, blocks[OUTPUT] = blocks[OUTPUT], None
            tensors.append(blocks)
            if inside and model.reshards and layer < root - 1:
                self._release(self._whole.pop(layer))
        self._drop_gathered()
        self._backward(tensors)

    def _backward(self, tensors: list[list[Block | None]]) -> None:
        model = self._model
        root = len(model.layers)
        units = model.units
        gradient: Block | None = None
        for number in reversed(range(len(units))):
            unit, blocks, layer = units[number], tensors[number], number - 1
            inside = 0 <= layer < root
            if inside and layer not in self._whole:
                self._gather(layer, unit.weights)
                self._drop_gathered()
            blocks[GRADIENT] = gradient
            play_steps(self._allocator, unit.tape.backward, blocks)
            gradient, blocks[INPUT_GRADIENT] = blocks[INPUT_GRADIENT], None
            if inside:
                self._reduce(unit.weights, layer)
        if gradient is not None:
            self._allocator.free(gradient)
        self._reduce([*model.first.weights, *model.last.weights], root)

    def _gather(self, group: int, weights: Sequence[ShardedWeight]) -> None:
        """Cast the shards, gather them flat, and lay the whole weights out."""
        widths = self._model.widths
        casts = []
        if widths.shard != widths.gathered:
            casts = [self._allocator.allocate(widths.gathered * size // ranks, GATHER) for size, ranks in weights]
        flat = self._allocator.allocate(widths.gathered * sum(size for size, _ in weights), GATHER)
        self._release(casts)
        self._drop_gathered()
        self._gathered = flat
        self._whole[group] = [self._allocator.allocate(widths.gathered * size) for size, _ in weights]

    def _drop_gathered(self) -> None:
        if self._gathered is not None:
            self._allocator.free(self._gathered)
            self._gathered = None

    def _reduce(self, weights: Sequence[ShardedWeight], group: int) -> None:
        """Gradients, whole, become one input of reduction, and its result their shards."""
        widths = self._model.widths
        whole = [self._allocator.allocate(widths.gathered * size) for size, _ in weights]
        while len(self._inputs) >= REDUCE_INPUTS:
            self._allocator.free(self._inputs.pop(0))
        self._inputs.append(self._allocator.allocate(widths.reduced * sum(size for size, _ in weights)))
        shards = round(sum(size / ranks for size, ranks in weights))
        self._gradients.append(self._allocator.allocate(widths.gradient * shards, REDUCE))
        self._release(whole)
        self._release(self._whole.pop(group))

    def _release(self, blocks: list[Block]) -> None:
        for block in blocks:
            self._allocator.free(block)
        blocks.clear()


def checkpointed(tape: Tape, kept: Sequence[int], output_bytes: int) -> Tape:
    """A layer that runs again in backward, but for the tensors of `kept` bytes, which stay from its forward pass."""
    slots = range(tape.slots, tape.slots + len(kept))
    stay = tuple((slot, size, MAIN) for slot, size in zip(slots, kept, strict=True) if size)
    inside = [step for step in tape.forward if step[0] != OUTPUT]
    gone = tuple((slot, 0, MAIN) for slot, size, _ in inside if size)
    return Tape(
        forward=(*inside, *stay, (OUTPUT, output_bytes, MAIN), *gone),
        backward=(*inside, *tape.backward, *((slot, 0, MAIN) for slot in slots)),
        slots=tape.slots + len(kept),
    )
