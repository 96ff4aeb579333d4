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
from projector.memory.gathered import REDUCE_INPUTS

GATHER, REDUCE = 2, 3
"""Streams of all-gather and reduce-scatter."""


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
    unsummed: int = 0
    """Bytes of an element of gradients that wait, whole, for the last micro batch; 0 where each one is reduced."""

    @property
    def units(self) -> tuple[Unit, ...]:
        """All, in order."""
        return (self.first, *self.layers, self.last)


def play_sharded(model: ShardedModel, *, caches: Sequence[int], allocator: CachingAllocator) -> Peaks:
    """Play startup and two iterations on an empty `allocator`; `caches` are there from the first pass on."""
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
        self._waiting: dict[int, list[Block]] = {}
        self._number = 0

    def iteration(self) -> None:
        """All micro batches; sharded gradients of the one before are given up first."""
        self._release(self._gradients)
        for number in range(self._model.micro_batches):
            self._number = number
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
        ends: list[Block] = []
        for number in reversed(range(len(units))):
            unit, blocks, layer = units[number], tensors[number], number - 1
            if 0 <= layer < root and layer not in self._whole:
                self._lay_out(layer, unit.weights)
                self._drop_gathered()
            if 0 < layer < root and layer - 1 not in self._whole:
                self._collect(units[number - 1].weights)
            blocks[GRADIENT] = gradient
            play_steps(self._allocator, unit.tape.backward, blocks)
            gradient, blocks[INPUT_GRADIENT] = blocks[INPUT_GRADIENT], None
            if 0 <= layer < root:
                self._finish(unit.weights, layer, self._computed(unit.weights))
            else:
                ends += self._computed(unit.weights)
        if gradient is not None:
            self._allocator.free(gradient)
        self._finish([*model.first.weights, *model.last.weights], root, ends)

    def _gather(self, group: int, weights: Sequence[ShardedWeight]) -> None:
        """Gather weights and lay them out whole."""
        self._collect(weights)
        self._lay_out(group, weights)

    def _collect(self, weights: Sequence[ShardedWeight]) -> None:
        """Cast the shards and gather them flat, which backward does a layer ahead."""
        widths = self._model.widths
        casts = []
        if widths.shard != widths.gathered:
            casts = [self._allocator.allocate(widths.gathered * size // ranks, GATHER) for size, ranks in weights]
        flat = self._allocator.allocate(widths.gathered * sum(size for size, _ in weights), GATHER)
        self._release(casts)
        self._drop_gathered()
        self._gathered = flat

    def _lay_out(self, group: int, weights: Sequence[ShardedWeight]) -> None:
        self._whole[group] = self._whole_tensors(weights)

    def _drop_gathered(self) -> None:
        if self._gathered is not None:
            self._allocator.free(self._gathered)
            self._gathered = None

    def _whole_tensors(self, weights: Sequence[ShardedWeight]) -> list[Block]:
        return [self._allocator.allocate(self._model.widths.gathered * size) for size, _ in weights]

    def _computed(self, weights: Sequence[ShardedWeight]) -> list[Block]:
        """Gradients of a part; each is added at once to one of its type that waits."""
        if not self._waits or self._number == 0 or self._model.unsummed != self._model.widths.gathered:
            return self._whole_tensors(weights)
        for weight in weights:
            self._release(self._whole_tensors([weight]))
        return []

    def _finish(self, weights: Sequence[ShardedWeight], group: int, whole: list[Block]) -> None:
        """Gradients, `whole`, of a group are done: they wait, or become the input of reduction."""
        if not self._waits:
            self._reduce(weights, whole)
        elif self._number == 0:
            width = self._model.unsummed
            if width != self._model.widths.gathered:
                wide = [self._allocator.allocate(width * size) for size, _ in weights]
                self._release(whole)
                whole = wide
            self._waiting[group] = list(whole)
            whole.clear()
        elif self._number == self._model.micro_batches - 1:
            self._release(whole)
            self._reduce(weights, self._waiting.pop(group))
        self._release(whole)
        self._release(self._whole.pop(group))

    @property
    def _waits(self) -> bool:
        return self._model.unsummed > 0 and self._model.micro_batches > 1

    def _reduce(self, weights: Sequence[ShardedWeight], whole: list[Block]) -> None:
        """Whole gradients become one input of reduction; its result is kept, or added to what is there."""
        widths = self._model.widths
        while len(self._inputs) >= REDUCE_INPUTS:
            self._allocator.free(self._inputs.pop(0))
        self._inputs.append(self._allocator.allocate(widths.reduced * sum(size for size, _ in weights)))
        shards = round(sum(size / ranks for size, ranks in weights))
        reduced = self._allocator.allocate(widths.gradient * shards, REDUCE)
        if self._waits or self._number == 0:
            self._gradients.append(reduced)
        else:
            self._allocator.free(reduced)
        self._release(whole)

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
