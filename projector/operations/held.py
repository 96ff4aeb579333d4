"""How many parameters a device holds for some operations, before data parallelism divides them."""

from collections.abc import Iterable
from dataclasses import dataclass

from projector.job import ParameterClass
from projector.operations.operation import Operation, Weight


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """Parameters of one device, by the ranks that hold the same ones."""

    dense: int = 0
    """Elements replicated over the data group."""
    expert: int = 0
    """Elements replicated over the expert-data group."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.dense + self.expert

    def plus(self, other: "Held") -> "Held":
        """These and others."""
        return Held(dense=self.dense + other.dense, expert=self.expert + other.expert)


NO_PARAMETERS = Held()
"""What a block without weights holds."""


def held_by(operations: Iterable[Operation], *, frozen: bool = False) -> Held:
    """Parameters of operations that are trained, or those that are `frozen`.

    Tensors that another operation owns are not counted again.
    """
    dense = expert = 0
    for operation in operations:
        for weight in operation.weights:
            if weight.shared or not weight.trainable or weight.frozen is not frozen:
                continue
            if weight.expert:
                expert += weight.elements
            else:
                dense += weight.elements
    return Held(dense=dense, expert=expert)


def parameter_class(operation: Operation, weight: Weight) -> ParameterClass:
    """How optimizers tell parameters apart (Megatron-LM optimizer `is_embedding_or_output_parameter`, dimensions)."""
    if len(weight.shape) == 1:
        return ParameterClass.VECTOR
    if operation.component == "embedding":
        return ParameterClass.EMBEDDING
    return ParameterClass.OUTPUT if operation.name == "output_layer" else ParameterClass.MATRIX
