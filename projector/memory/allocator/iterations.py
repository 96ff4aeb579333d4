"""Two iterations of a pipeline rank, played on torch's caching allocator.

The second iteration is the higher one: the first step's optimizer state has settled in what activations left free, and
activations have to find room anew. Later iterations repeat it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from projector.memory.allocator.caching import Block, CachingAllocator
from projector.memory.allocator.startup import Startup
from projector.memory.allocator.tape import GRADIENT, INPUT, INPUT_GRADIENT, OUTPUT, Tape, play_steps
from projector.schedule import Event, Kind

ITERATIONS = 2
"""From the third on nothing changes where every pass allocates the same."""


TURN = (5**0.5 - 1) / 2
"""Share of a round by which turns advance: multiples of the golden ratio spread evenly (Weyl's sequence)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Passes:
    """What a rank runs in an iteration."""

    events: Sequence[Event]
    """Its passes in order."""
    chunks: Sequence[Sequence[Sequence[Tape]]]
    """Parts of each of its model chunks, each in the variants that take turns from pass to pass."""
    receives: Sequence[bool]
    """Of each chunk, whether its input comes from elsewhere."""
    sends: Sequence[bool]
    """Of each chunk, whether its output goes elsewhere."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Peaks:
    """What the allocator shows in the end."""

    allocated_bytes: int
    """Most bytes allocated at a time."""
    reserved_bytes: int
    """Bytes reserved, which never fall."""
    first_reserved_bytes: int
    """Bytes reserved when the first iteration is over."""

    @property
    def slack_bytes(self) -> int:
        """Reserved beyond what is allocated at the peak."""
        return self.reserved_bytes - self.allocated_bytes


def play(  # noqa: PLR0913 - what is there, what runs, and how memory is handed out
    start: Startup,
    passes: Passes,
    *,
    caches: Sequence[int],
    placeholders: Sequence[int],
    boundary_bytes: int,
    allocator: CachingAllocator,
    iterations: int = ITERATIONS,
) -> Peaks:
    """Play startup and iterations on an empty `allocator`.

    `caches` are there from the first pass on, `placeholders` from the first backward pass; tensors of `boundary_bytes`
    travel between stages.
    """
    player = _Player(allocator, passes, boundary_bytes, placeholders)
    start.play(allocator)
    for size in caches:
        allocator.allocate(size)
    player.iteration()
    start.step(allocator)
    first = allocator.reserved_bytes
    for _ in range(iterations - 1):
        player.iteration()
        start.repeat(allocator)
    return Peaks(
        allocated_bytes=allocator.peak_allocated_bytes,
        reserved_bytes=allocator.reserved_bytes,
        first_reserved_bytes=first,
    )


class _Player:
    """Plays the tapes of a rank's passes."""

    def __init__(
        self, allocator: CachingAllocator, passes: Passes, boundary_bytes: int, placeholders: Sequence[int]
    ) -> None:
        self._allocator = allocator
        self._passes = passes
        self._boundary_bytes = boundary_bytes
        self._missing = list(placeholders)
        self._alive: dict[tuple[int, int], list[tuple[Tape, list[Block | None]]]] = {}
        self._turns = 0
        self._sent: list[Block] = []

    def iteration(self) -> None:
        """All passes of an iteration."""
        for kind, chunk, micro_batch in self._passes.events:
            if kind is Kind.F:
                self._alive[chunk, micro_batch] = self._forward(chunk)
            elif kind is Kind.B:
                for size in self._missing:
                    self._allocator.allocate(size)
                self._missing = []
                self._backward(chunk, self._alive.pop((chunk, micro_batch)))

    def _variant(self, variants: Sequence[Tape]) -> Tape:
        """The variant whose turn it is; turns follow no pattern that passes have."""
        if len(variants) == 1:
            return variants[0]
        self._turns += 1
        return variants[int(self._turns * TURN % 1 * len(variants))]

    def _forward(self, chunk: int) -> list[tuple[Tape, list[Block | None]]]:
        carried: Block | None = None
        if self._passes.receives[chunk]:
            carried = self._allocator.allocate(self._boundary_bytes)
        tensors = []
        for variants in self._passes.chunks[chunk]:
            part = self._variant(variants)
            blocks: list[Block | None] = [None] * part.slots
            blocks[INPUT] = carried
            play_steps(self._allocator, part.forward, blocks)
            carried, blocks[OUTPUT] = blocks[OUTPUT], None
            tensors.append((part, blocks))
        if carried is not None:
            # Once sent, an output's memory is given up (Megatron-LM `deallocate_pipeline_outputs`).
            self._allocator.free(carried)
        return tensors

    def _backward(self, chunk: int, tensors: list[tuple[Tape, list[Block | None]]]) -> None:
        gradient: Block | None = None
        if self._passes.sends[chunk]:
            gradient = self._allocator.allocate(self._boundary_bytes)
        for part, blocks in reversed(tensors):
            blocks[GRADIENT] = gradient
            play_steps(self._allocator, part.backward, blocks)
            gradient, blocks[INPUT_GRADIENT] = blocks[INPUT_GRADIENT], None
        if gradient is not None:
            self._sent.append(gradient)
        # The loop refers to the gradient it sent last until the next one is made.
        while len(self._sent) > 1:
            self._allocator.free(self._sent.pop(0))
