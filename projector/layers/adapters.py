"""Frozen weights, and the low-rank adapters that are trained beside them (LoRA, arXiv 2106.09685).

What runs, what is kept and what tensor parallelism divides follow Megatron-Bridge's `ParallelLinearAdapter`
(NVIDIA-NeMo/Megatron-Bridge 2afd2d34 peft/utils.py, peft/lora_layers.py; the same in NeMo 2 and Primus): two linear
layers of Megatron's own in 16 bit, whatever the format of the layer beside them. A frozen layer keeps no input for a
weight gradient (Transformer Engine `Linear`, Megatron-LM `linear_with_frozen_weight`).
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from projector.errors import LayoutImpossible
from projector.job import LowRankAdapters
from projector.layers.blocks import weight_gradient
from projector.layers.shapes import Shapes
from projector.operations import (
    Collective,
    CollectiveKind,
    ElementWise,
    Gemm,
    GemmLayout,
    Group,
    LinearShape,
    Operation,
    SavedTensor,
    Split,
    Weight,
    Work,
)

COMPONENT = "adapters"
"""Row of the component tree that adapters belong to."""
MASK_BYTES = 1
"""torch keeps a dropout mask as booleans."""


def with_adapters(operations: Iterable[Operation], shapes: Shapes) -> tuple[Operation, ...]:
    """The operations with frozen weights, and the job's adapters beside their targets; unchanged without adapters."""
    if shapes.adapters is None:
        return tuple(operations)
    return tuple(each for operation in operations for each in _adapted(operation, shapes.adapters, shapes))


def _targeted(operation: Operation, adapters: LowRankAdapters) -> tuple[tuple[str, int], ...]:
    """Names and output columns on this device of what gets an adapter: the layer itself, or layers packed into it."""
    if operation.linear is None:
        return ()
    name = operation.name.rpartition(".")[2]
    if name in adapters.targets:
        return ((name, operation.linear.outputs),)
    return tuple(part for part in operation.linear.parts if part[0] in adapters.targets)


def _adapted(operation: Operation, adapters: LowRankAdapters, shapes: Shapes) -> tuple[Operation, ...]:
    frozen = replace(
        operation,
        backward_weight=(),
        weights=tuple(replace(weight, frozen=True) for weight in operation.weights),
        saves=tuple(tensor for tensor in operation.saves if not tensor.only_for_weights),
        scratch_backward_bytes=operation.scratch_backward_bytes - operation.weight_scratch_bytes,
        weight_scratch_bytes=0,
    )
    found = _targeted(operation, adapters)
    if operation.linear is None or not found:
        return (frozen,)
    # The adapters' gradient of the input waits for the layer's own.
    waiting = shapes.element * operation.linear.rows * operation.linear.inputs
    beside = [
        _Adapter(
            name=f"{operation.name}.adapter" + ("" if len(found) == 1 else f".{part}"),
            base=frozen,
            linear=replace(operation.linear, outputs=outputs, input_kept=operation.linear.input_kept or index > 0),
            options=adapters,
            shapes=shapes,
        )
        for index, (part, outputs) in enumerate(found)
    ]
    return (
        replace(frozen, scratch_backward_bytes=frozen.scratch_backward_bytes + waiting),
        *(half for adapter in beside for half in (adapter.first(), adapter.second())),
    )


class _Adapter(NamedTuple):
    """One adapter, and the linear layer that it stands beside."""

    name: str
    """Name of its operations, which the two factors end."""
    base: Operation
    """The frozen linear layer's operation."""
    linear: LinearShape
    """The frozen linear layer's shape on a device."""
    options: LowRankAdapters
    """Rank and dropout."""
    shapes: Shapes
    """Sizes of the job on a device."""

    def first(self) -> Operation:
        """Inputs x rank. Tensor parallelism divides the rank beside a column-parallel layer, else the inputs.

        Raises `LayoutImpossible` when the rank does not divide.
        """
        linear, shapes, rank = self.linear, self.shapes, self.options.rank
        column = linear.split is Split.COLUMN
        if column and rank % linear.degree:
            raise LayoutImpossible(
                f"adapters of rank {rank} on {self.base.name} do not divide over tensor parallel {linear.degree}",
                place="tensor_model_parallel_size",
                expected=f"a divisor of {rank}, or another rank",
            )
        local = rank // linear.degree if column else rank
        hidden = shapes.element * linear.rows * rank
        kept, dropped = self._kept_input()
        after: tuple[Work, ...] = ()
        if linear.degree > 1:
            after = (self._call(CollectiveKind.ALL_GATHER if column else CollectiveKind.ALL_REDUCE, hidden),)
        return Operation(
            name=f"{self.name}.linear_in",
            component=COMPONENT,
            forward=(*dropped, *self._gathers_input(), Gemm(m=linear.rows, n=local, k=linear.inputs), *after),
            backward_input=(
                Gemm(m=linear.rows, n=linear.inputs, k=local, layout=GemmLayout.NN),
                *self._input_gradient(),
                *dropped,
            ),
            backward_weight=weight_gradient(local, linear.inputs, linear.rows, None, shapes),
            weights=(self._weight("linear_in", (local, linear.inputs)),),
            saves=kept,
            scratch_forward_bytes=hidden + self.base.scratch_forward_bytes,
            scratch_backward_bytes=self.base.scratch_backward_bytes,
            recompute_module=self.base.recompute_module,
        )

    def second(self) -> Operation:
        """Rank x outputs, scaled and added to the layer's result. Tensor parallelism divides the outputs."""
        linear, shapes, rank = self.linear, self.shapes, self.options.rank
        row = linear.split is Split.ROW
        local = linear.outputs // linear.degree if row else linear.outputs
        hidden = shapes.element * linear.rows * rank
        ahead, back = self._result_travels(local)
        reduced = (self._call(CollectiveKind.ALL_REDUCE, hidden),) if linear.degree > 1 else ()
        size = self._result_bytes()
        mask, dropped = self._dropped(size) if not self.options.dropout_on_input else ((), ())
        added = ElementWise(name="add_adapter", bytes_read=3 * size, bytes_written=2 * size, kernels=2)
        scaled = ElementWise(name="scale_adapter", bytes_read=size, bytes_written=size)
        return Operation(
            name=f"{self.name}.linear_out",
            component=COMPONENT,
            forward=(Gemm(m=linear.rows, n=local, k=rank), *ahead, *dropped, added),
            backward_input=(
                *dropped,
                scaled,
                *back,
                Gemm(m=linear.rows, n=rank, k=local, layout=GemmLayout.NN),
                *reduced,
            ),
            backward_weight=weight_gradient(local, rank, linear.rows, None, shapes),
            weights=(self._weight("linear_out", (local, rank)),),
            saves=(SavedTensor(name="hidden", size_bytes=hidden), *mask),
            scratch_forward_bytes=self.base.scratch_forward_bytes
            + 2 * size
            + sum(call.message_bytes for call in ahead),
            scratch_backward_bytes=self.base.scratch_backward_bytes + size,
            recompute_module=self.base.recompute_module,
        )

    def _call(self, kind: CollectiveKind, message_bytes: int) -> Collective:
        return Collective(kind=kind, group=self.linear.group, message_bytes=message_bytes)

    def _weight(self, name: str, shape: tuple[int, int]) -> Weight:
        """A matrix; local experts share one adapter, so that the model has one per expert-parallel rank."""
        expert = self.linear.group is Group.EXPERT_TENSOR
        return Weight(
            name=f"{self.name.removeprefix('self_attention.')}.{name}.weight",
            shape=shape,
            full_elements=shape[0] * shape[1] * self.linear.degree,
            full_copies=self.linear.expert_ranks if expert else 1,
            expert=expert,
        )

    @property
    def _sequence_parallel(self) -> bool:
        """The layer's input or result is divided along the sequence; what experts receive never is."""
        return self.shapes.sequence_parallel and self.linear.group is Group.TENSOR and self.linear.degree > 1

    def _gathers_input(self) -> tuple[Work, ...]:
        """A column-parallel layer hands its gathered input over, unless it gathers piece by piece (user buffers)."""
        overlapped = self.shapes.software.overlap_tensor_parallel
        if self.linear.split is not Split.COLUMN or not (self._sequence_parallel and overlapped):
            return ()
        return (self._call(CollectiveKind.ALL_GATHER, self.shapes.element * self.linear.rows * self.linear.inputs),)

    def _input_gradient(self) -> tuple[Work, ...]:
        """Reduction of the input's gradient, where it does not ride with the layer's own; its addition to that."""
        size = self.shapes.element * self.linear.rows * self.linear.inputs
        added = ElementWise(name="add_gradient", bytes_read=2 * size, bytes_written=size)
        if self.linear.split is not Split.COLUMN or self.linear.degree == 1:
            return (added,)
        if self._sequence_parallel:
            return (added, self._call(CollectiveKind.REDUCE_SCATTER, size)) if self._gathers_input() else (added,)
        return (self._call(CollectiveKind.ALL_REDUCE, size), added)

    def _kept_input(self) -> tuple[tuple[SavedTensor, ...], tuple[Work, ...]]:
        """The 16-bit input of the first matrix, gathered as it is multiplied, and the dropout in front of it."""
        size = self.shapes.element * self.linear.rows * self.linear.inputs
        kept = SavedTensor(name="input", size_bytes=size)
        if self.options.dropout_on_input and self.options.dropout > 0:
            mask, dropped = self._dropped(size)
            return (kept, *mask), dropped
        return (() if self.linear.input_kept else (kept,)), ()

    def _dropped(self, size_bytes: int) -> tuple[tuple[SavedTensor, ...], tuple[Work, ...]]:
        """Mask and work of dropout over a tensor; nothing without dropout."""
        if not self.options.dropout:
            return (), ()
        mask = MASK_BYTES * size_bytes // self.shapes.element
        work = ElementWise(name="dropout", bytes_read=size_bytes + mask, bytes_written=size_bytes)
        return (SavedTensor(name="dropout_mask", size_bytes=mask),), (work,)

    def _result_travels(self, local: int) -> tuple[tuple[Collective, ...], tuple[Collective, ...]]:
        """Collectives that make the result of a row-parallel layer's adapter whole, and those of its gradient."""
        linear, element = self.linear, self.shapes.element
        if linear.split is not Split.ROW or linear.degree == 1:
            return (), ()
        gather = (self._call(CollectiveKind.ALL_GATHER, element * linear.rows * linear.outputs),)
        if not self._sequence_parallel:
            return gather, ()
        if self.options.all_to_all:
            exchange = (self._call(CollectiveKind.ALL_TO_ALL, element * linear.rows * local),)
            return exchange, exchange
        return gather, gather

    def _result_bytes(self) -> int:
        """Bytes of the layer's result on this device."""
        row_divided = self._sequence_parallel and self.linear.split is Split.ROW
        rows = self.linear.rows // (self.linear.degree if row_divided else 1)
        return self.shapes.element * rows * self.linear.outputs
