"""The allocations of a part of the model: a tape to play forward, and one to play backward.

Tapes are cut from the same operations that give time and saved bytes. Where in time a tensor starts to live is its
operation's place in the list; when it ends follows how Megatron-LM 23e00ed0 runs a layer (`forward`, `backward`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from projector.memory.allocator.caching import Block, CachingAllocator

Step: TypeAlias = tuple[int, int, int]
"""Slot, bytes and stream of an allocation; 0 bytes free the slot, if it is in use."""

INPUT, OUTPUT, GRADIENT, INPUT_GRADIENT = range(4)
"""Slots in which parts hand over the residual stream, and its gradient on the way back."""
HANDED_OVER = 4
"""Slots that every tape has."""
MAIN, EXCHANGE = 0, 1
"""Streams: the one that computes, and the one on which Transformer Engine finishes the exchange of heads under context
parallelism. Tensors made on a stream live in its own pool."""
LEAST_BYTES = 1 << 20
"""Smaller tensors are left out: they share segments of 2 MiB and add up to a few of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tape:
    """What a part allocates and frees for one micro batch."""

    forward: tuple[Step, ...]
    """From the input in its slot to the output in its slot."""
    backward: tuple[Step, ...]
    """From the output's gradient to the input's."""
    slots: int
    """Slots in use, those handed over included."""


def play_steps(allocator: CachingAllocator, steps: Sequence[Step], blocks: list[Block | None]) -> None:
    """Play steps on an allocator; `blocks` holds what is in each slot."""
    allocate, free = allocator.allocate, allocator.free
    for slot, size, stream in steps:
        block = blocks[slot]
        if block is not None:
            free(block)
        blocks[slot] = allocate(size, stream) if size else None


class Recorder:
    """Notes what is allocated and freed."""

    def __init__(self, slots: int) -> None:
        self.steps: list[Step] = []
        self.slots = slots

    def new(self, size: int, stream: int = MAIN) -> int:
        """A tensor in a slot of its own."""
        slot = self.slots
        self.slots += 1
        self.fill(slot, size, stream)
        return slot

    def fill(self, slot: int, size: int, stream: int = MAIN) -> None:
        """A tensor in a slot; small ones leave it empty."""
        if size >= LEAST_BYTES:
            self.steps.append((slot, size, stream))

    def free(self, slots: Iterable[int]) -> None:
        """The end of tensors."""
        self.steps += ((slot, 0, MAIN) for slot in slots)

    def passing(self, *sizes: int) -> None:
        """Tensors that live side by side while an operation runs."""
        self.free([self.new(size) for size in sizes])


def recomputed(layers: Sequence[Tape]) -> Tape:
    """One tape for layers that keep the input of the first and run again in backward.

    The first time nothing is kept: a layer's tensors are gone when it ends.
    """
    ahead: list[Step] = []
    again: list[Step] = []
    back: list[Step] = []
    base = HANDED_OVER
    source = INPUT
    for number, layer in enumerate(layers, start=1):
        target = OUTPUT if number == len(layers) else base + layer.slots
        placed = {INPUT: source, OUTPUT: target}
        forward = _moved(layer.forward, base, placed)
        ahead += forward
        ahead += [(slot, 0, MAIN) for slot, size, _ in forward if size and slot != target]
        if source != INPUT:
            ahead.append((source, 0, MAIN))
        again += forward
        source, base = target, base + layer.slots + 1
    again.append((OUTPUT, 0, MAIN))
    gradient, base = GRADIENT, HANDED_OVER
    bases = []
    for layer in layers:
        bases.append(base)
        base += layer.slots + 1
    for number in reversed(range(len(layers))):
        layer = layers[number]
        own = bases[number]
        result = INPUT_GRADIENT if number == 0 else own + INPUT_GRADIENT
        entered = INPUT if number == 0 else bases[number - 1] + layers[number - 1].slots
        back += _moved(layer.backward, own, {INPUT: entered, GRADIENT: gradient, INPUT_GRADIENT: result})
        gradient = result
    return Tape(forward=tuple(ahead), backward=(*again, *back), slots=base)


def _moved(steps: Iterable[Step], base: int, placed: dict[int, int]) -> list[Step]:
    """Steps with their slots behind `base`, but for those that are `placed`."""
    return [(placed.get(slot, base + slot), size, stream) for slot, size, stream in steps]
