"""The backward pass of a part, as autograd allocates it.

A gradient lives until the operation before it has its own, and kept tensors until their operation is done.
"""

from collections.abc import Sequence

from projector.layers import is_recomputed
from projector.layers.shapes import Shapes
from projector.memory.allocator.forward import (
    FP32_OVER_BF16,
    PACKED,
    Forward,
    gathers,
    logits_bytes,
    scatters,
    split,
)
from projector.memory.allocator.tape import EXCHANGE, GRADIENT, INPUT, INPUT_GRADIENT, OUTPUT, Recorder, Step, Tape
from projector.operations import LinearShape, Operation

HALVES = ("input_layernorm", "pre_mlp_layernorm")
"""Norms that begin a half of a layer: their gradient is added to that of the residual stream."""
MIX, MIXED = "hyper_connection", ("self_attention", "mlp")
"""What begins a half instead where there are several streams, and the components it does so for."""


def record(operations: Sequence[Operation], shapes: Shapes, modules: frozenset[str] = frozenset()) -> Tape:
    """The tape of the token table, a decoder layer, or the end of the model.

    `modules` are those that selective recomputation does again.
    """
    forward = Forward(operations, shapes, modules)
    steps = forward.record()
    backward = Backward(forward)
    return Tape(forward=steps, backward=backward.record(), slots=backward.slots)


class Backward(Recorder):
    """The backward pass behind a forward pass."""

    def __init__(self, forward: Forward) -> None:
        super().__init__(forward.slots)
        self._forward = forward
        self._shapes = forward.shapes
        self._gradients = [GRADIENT]
        self._waiting: int | None = None
        self._held: list[int] = []
        self._restored: str | None = None

    def record(self) -> tuple[Step, ...]:
        """The whole pass."""
        for index in range(len(self._forward.operations) - 1, -1, -1):
            self._restore(index)
            self._undo(index)
        waiting = [] if self._waiting is None else [self._waiting]
        self.free([*self._gradients, *self._held, *waiting, INPUT, OUTPUT])
        return tuple(self.steps)

    def _restore(self, index: int) -> None:
        """What recomputation drops comes back before the module's last operation."""
        forward = self._forward
        operation = forward.operations[index]
        module = operation.recompute_module
        if not is_recomputed(operation, forward.modules) or module == self._restored:
            return
        self._restored = module
        for other, entries in zip(forward.operations[: index + 1], forward.dropped, strict=False):
            if other.recompute_module == module:
                self.steps += entries

    def _undo(self, index: int) -> None:
        operation = self._forward.operations[index]
        name = operation.name.rpartition(".")[2]
        kept = [slot for slot, _, _ in (*self._forward.kept[index], *self._forward.dropped[index])]
        if operation.name.startswith("embedding"):
            self._table_gradient(operation)
        elif name == "residual":
            self._half_begins(kept)
        elif operation.linear is not None:
            self._linear(operation, operation.linear, kept)
        elif name == "core_attention":
            self._attention(index, kept)
        elif name == "loss":
            self._loss(operation, kept)
        elif self._ends_half(index, name):
            self._half_ends(index, kept)
        else:
            self._other(index, kept)

    def _move_on(self, gradients: list[int], kept: list[int]) -> None:
        """Gradients take the place of those they come from; what the operation kept is done with."""
        self.free([*self._gradients, *kept])
        self._gradients = gradients

    def _linear(self, operation: Operation, linear: LinearShape, kept: list[int]) -> None:
        shapes = self._shapes
        size = shapes.element * linear.rows * linear.inputs
        again = []
        if scatters(linear, shapes) and not self._forward.symmetric:
            self._held.append(self.new(shapes.element * linear.rows * linear.outputs))
        if gathers(linear, shapes) and shapes.column_input_tokens != shapes.tokens and operation.name != "output_layer":
            again.append(self.new(size))
        gradient = self.new(size)
        if operation.backward_weight and not shapes.software.gradient_accumulation_fusion:
            self.passing(operation.weights[0].elements * shapes.element)
        if gathers(linear, shapes):
            reduced = self.new(size // linear.degree)
            self.free([gradient])
            gradient = reduced
        self._move_on([gradient], [*kept, *again])

    def _packed(self, index: int) -> list[tuple[int, int, int]]:
        """Queries, keys and values as the operation before attention keeps them."""
        entries = (*self._forward.kept[index - 1], *self._forward.dropped[index - 1])
        saved = self._forward.operations[index - 1].saves
        return [entry for entry, tensor in zip(entries, saved, strict=False) if tensor.name in PACKED]

    def _attention(self, index: int, kept: list[int]) -> None:
        packed = self._packed(index)
        sizes = [size for _, size, _ in packed]
        output = max(sizes, default=0)
        if not self._forward.exchanges:
            travelling = [self.new(size) for size in self._forward.operations[index].passing_backward]
            self._move_on([self.new(size) for size in sizes], kept)
            self.free(travelling)
            return
        self.passing(output, output)
        arrived = self.new(output, EXCHANGE)
        raw = [self.new(size) for size in sizes]
        copies: list[int] = []
        gradients = []
        for size in sizes:
            copies += (self.new(size), self.new(size))
            gradients.append(self.new(size, EXCHANGE))
        self.free([*copies, *raw, arrived])
        self._move_on(gradients, kept)

    def _loss(self, operation: Operation, kept: list[int]) -> None:
        """Gradients of what the loss made, back to that of the 16-bit logits."""
        logits = logits_bytes(self._shapes)
        sizes = split(operation.scratch_backward_bytes, FP32_OVER_BF16 * logits)
        gradients = [self.new(size) for size in sizes]
        self.free([*gradients[:-1], *kept])
        gradients = gradients[-1:]
        if sizes and sizes != [logits]:
            gradients.append(self.new(logits))
            self.free([gradients.pop(0)])
        self._move_on(gradients, [])

    def _half_begins(self, kept: list[int]) -> None:
        """The gradient of the residual stream is that of the block too; mixed streams have one of their own."""
        if self._shapes.streams > 1:
            streams, block = self.new(self._shapes.carried_bytes), self.new(self._shapes.residual_bytes)
            self._move_on([block], kept)
            self._waiting = streams
            return
        self._waiting = self._gradients[0] if self._gradients else None
        self._gradients = []

    def _ends_half(self, index: int, name: str) -> bool:
        if self._shapes.streams == 1:
            return name in HALVES
        return name == MIX and self._forward.operations[index].component in MIXED

    def _half_ends(self, index: int, kept: list[int]) -> None:
        """The gradient that came through the half is added to the one that waited."""
        size = self._shapes.carried_bytes
        self.passing(*self._forward.operations[index].passing_backward)
        through = self.new(size)
        self._move_on([], kept)
        total = INPUT_GRADIENT if index == 0 else self.slots
        if index == 0:
            self.fill(INPUT_GRADIENT, size)
        else:
            total = self.new(size)
        self.free([through, *([] if self._waiting is None else [self._waiting]), *self._held])
        self._held, self._waiting = [], None
        self._gradients = [] if index == 0 else [total]

    def _other(self, index: int, kept: list[int]) -> None:
        """Element-wise work: a gradient as large as what it read, and whatever else it needs while it runs."""
        operation = self._forward.operations[index]
        self.passing(*operation.passing_backward)
        inputs = [tensor.size_bytes for tensor in operation.saves if tensor.name == "input"]
        packed = [tensor.size_bytes for tensor in operation.saves if tensor.name in PACKED]
        if packed:
            rotated = [self.new(size) for size in packed[:2]]
            gradients = [self.new(sum(packed))]
            self.free(rotated)
        elif operation.component == "final_norm" and index == 0:
            gradients = []
            self.fill(INPUT_GRADIENT, self._shapes.carried_bytes)
        elif inputs:
            gradients = [self.new(inputs[0])]
        elif operation.scratch_tensors:
            gradients = [self.new(max(operation.scratch_tensors))]
        elif operation.scratch_backward_bytes:
            gradients = [self.new(operation.scratch_backward_bytes)]
        else:
            gradients, self._gradients = self._gradients, []
        self._move_on(gradients, kept)

    def _table_gradient(self, operation: Operation) -> None:
        """A dense gradient of the whole table, which is then added to the main gradient."""
        table = operation.weights[0]
        gathered = [self._shapes.gathered_bytes] if self._shapes.sequence_parallel else []
        whole = [self.new(size) for size in gathered]
        gradient = [] if table.frozen else [self.new(self._shapes.element * table.elements)]
        self.free([GRADIENT, *whole, *gradient])
        self._gradients = []
