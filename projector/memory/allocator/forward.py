"""The forward pass of a part, as Megatron-LM allocates it.

Tensors that nobody keeps live to the end of their half of the layer, because local names and communication hold them:
gathered inputs, outputs before they are reduced, the packed projection.
"""

from collections.abc import Sequence

from projector.job import CrossEntropy, Dialect
from projector.layers import is_recomputed
from projector.layers.shapes import Shapes
from projector.memory.allocator.tape import EXCHANGE, HANDED_OVER, INPUT, MAIN, OUTPUT, Recorder, Step
from projector.operations import Group, LinearShape, Operation, SavedTensor, Split

WITHOUT_COPY = (CrossEntropy.TRANSFORMER_ENGINE, CrossEntropy.LINEAR_FUSED)
"""Losses that make no tensor of logits beside what the output layer keeps."""
FP32_OVER_BF16 = 2
"""Bytes of fp32 logits over those of the 16-bit ones."""
PACKED = ("query", "key", "value")
"""What attention reads, in the names under which it is kept."""


class Forward(Recorder):
    """The forward pass, and what backward has to know of it."""

    def __init__(self, operations: Sequence[Operation], shapes: Shapes, modules: frozenset[str]) -> None:
        super().__init__(HANDED_OVER)
        self.operations = operations
        self.shapes = shapes
        self.modules = modules
        self.kept: list[list[tuple[int, int, int]]] = [[] for _ in operations]
        """Slot, bytes and stream of what each operation keeps."""
        self.dropped: list[list[tuple[int, int, int]]] = [[] for _ in operations]
        """The same of what it does again."""
        self.exchanges = shapes.context > 1 and shapes.context_communication.startswith("a2a")
        self._held: list[int] = []
        self._residual: int | None = INPUT

    def record(self) -> tuple[Step, ...]:
        """The whole pass."""
        for index, operation in enumerate(self.operations):
            linear = operation.linear
            if gathers(linear, self.shapes):
                self._gather(operation, self._bytes(linear, inputs=True))
            if operation.name.endswith("core_attention") and self.exchanges:
                self._exchange_in()
            copies = [self.new(size) for size in (*self._loss_copies(operation), *operation.passing_forward)]
            for tensor in operation.saves:
                self._keep(index, tensor)
            self.free(copies)
            if operation.name.endswith("core_attention") and self.exchanges:
                self._exchange_out()
            self._result(index)
        self._drop()
        return tuple(self.steps)

    def _bytes(self, linear: LinearShape | None, *, inputs: bool) -> int:
        """Bytes of a linear layer's whole input or output."""
        if linear is None:
            return 0
        return self.shapes.element * linear.rows * (linear.inputs if inputs else linear.outputs)

    def _keep(self, index: int, tensor: SavedTensor) -> None:
        operation = self.operations[index]
        size = tensor.size_bytes
        if tensor.name == "input" and self._residual is not None and size == self.shapes.carried_bytes:
            self.kept[index].append((self._residual, size, MAIN))
            self._residual = None
            return
        leaves_attention = operation.name.endswith("linear_proj") and tensor.name == "input"
        own_stream = self.exchanges and (tensor.name in PACKED or leaves_attention)
        stream = EXCHANGE if own_stream else MAIN
        if self.exchanges and tensor.name in PACKED[:2]:
            self._held.append(self.new(size))
        slot = self.new(size, stream)
        again = is_recomputed(operation, self.modules) and not tensor.checkpoint
        (self.dropped if again else self.kept)[index].append((slot, size, stream))

    def _gather(self, operation: Operation, size: int) -> None:
        """The input along the whole sequence.

        Megatron-LM's output layer gathers into a buffer of its own; other inputs live on in a local name, or, with
        DTensor, as what the layer keeps. DTensor gathers along the batch first and then makes a copy in order.
        """
        if self._distributed_tensors:
            self.passing(*([] if self.symmetric else [size]))
        elif operation.name != "output_layer":
            self._held.append(self.new(size))

    @property
    def _distributed_tensors(self) -> bool:
        """Tensor parallelism through DTensor."""
        return self.shapes.software.dialect is Dialect.TORCHTITAN

    @property
    def symmetric(self) -> bool:
        """Asynchronous tensor parallelism exchanges through symmetric memory, outside the allocator."""
        return self._distributed_tensors and self.shapes.software.overlap_tensor_parallel

    def _loss_copies(self, operation: Operation) -> list[int]:
        """What the loss makes of the logits beside what it keeps, in tensors as large as fp32 logits."""
        if operation.name != "loss":
            return []
        logits = logits_bytes(self.shapes)
        return split(operation.scratch_forward_bytes - logits, FP32_OVER_BF16 * logits)

    def _exchange_in(self) -> None:
        """Each tensor is made contiguous, all first, and received into another before it is put in order."""
        sizes = [size for entries in self.kept for _, size, stream in entries if stream == EXCHANGE]
        copies = [self.new(size) for size in sizes]
        for size in sizes:
            self.passing(size)
        self.free(copies)

    def _exchange_out(self) -> None:
        """The output is copied in the order in which it is sent, and received into another tensor.

        What the projection reads is made of that on the other stream (Transformer Engine `flash_attn_a2a_communicate`).
        """
        output = max(size for entries in self.kept for _, size, stream in entries if stream == EXCHANGE)
        self.passing(output, output)

    def _result(self, index: int) -> None:
        """What an operation hands on where the next one does not keep it."""
        operation = self.operations[index]
        if operation.name.startswith("embedding"):
            self._embedded()
        elif operation.name.endswith("residual"):
            self._half_ends(last=index == len(self.operations) - 1)
        elif operation.linear is not None:
            size = self._bytes(operation.linear, inputs=False)
            if scatters(operation.linear, self.shapes):
                if not self.symmetric:
                    self._held.append(self.new(size))
                    self.passing(*([size] if self._distributed_tensors else []))
                size //= operation.linear.degree
            if not self._next_keeps(index, size):
                self._held.append(self.new(size))
        elif operation.scratch_tensors:
            self._held += [self.new(size) for size in operation.scratch_tensors]

    def _next_keeps(self, index: int, size: int) -> bool:
        if index + 1 == len(self.operations):
            return False
        following = self.operations[index + 1]
        if following.name == "loss":
            return self.shapes.software.cross_entropy in WITHOUT_COPY
        return any(tensor.size_bytes == size and tensor.name in ("input", "query") for tensor in following.saves)

    def _embedded(self) -> None:
        """Rows of the table, summed over ranks where tensor parallelism divides it."""
        whole = self.new(self.shapes.gathered_bytes) if self.shapes.sequence_parallel else None
        self.fill(OUTPUT, self.shapes.carried_bytes)
        if whole is not None:
            self.free([whole])

    def _half_ends(self, *, last: bool) -> None:
        """The residual stream goes on in another tensor, made while what is added to it still lives."""
        *earlier, added = self._held or [OUTPUT]
        self.free(earlier)
        self._held = []
        self._drop()
        if last:
            self.fill(OUTPUT, self.shapes.carried_bytes)
        else:
            self._residual = self.new(self.shapes.carried_bytes)
        self.free([added] if added != OUTPUT else [])

    def _drop(self) -> None:
        self.free(self._held)
        self._held = []
        self.free(slot for entries in self.dropped for slot, _, _ in entries)


def logits_bytes(shapes: Shapes) -> int:
    """Bytes of a device's 16-bit logits."""
    return shapes.element * shapes.tokens * (shapes.padded_vocabulary // shapes.tensor)


def split(size: int, most: int) -> list[int]:
    """A size in pieces of at most `most` bytes; none for nothing."""
    whole, rest = divmod(max(0, size), most)
    return [most] * whole + ([rest] if rest else [])


def gathers(linear: LinearShape | None, shapes: Shapes) -> bool:
    """Whether a column-parallel layer gathers its input along the sequence."""
    return linear is not None and linear.split is Split.COLUMN and _divided(linear, shapes)


def scatters(linear: LinearShape, shapes: Shapes) -> bool:
    """Whether a row-parallel layer reduces and divides its output along the sequence."""
    return linear.split is Split.ROW and _divided(linear, shapes)


def _divided(linear: LinearShape, shapes: Shapes) -> bool:
    return shapes.sequence_parallel and linear.degree > 1 and linear.group is Group.TENSOR
