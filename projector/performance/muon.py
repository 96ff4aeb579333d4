"""The time of Muon's orthogonalisation: Newton-Schulz iterations over each matrix of a device.

An iteration of a matrix X of a rows and b columns (a <= b, else it is turned) multiplies it with its transpose, the
square with itself, and their sum with X: 4 a a b + 2 a a a operations (Jordan et al. 2024, "Muon"; Liu et al.,
arXiv 2502.16982). Megatron-LM runs them in 16 bits (`muon_fp32_matmul_prec` medium), one matrix after the other, on the
block that a tensor-parallel rank holds (`muon_tp_mode` blockwise), queries, keys and values apart (`muon_split_qkv`;
megatron/core/optimizer/emerging_optimizers.py in megatron-core 0.19.2).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from projector.costs import CostModel
from projector.job import Optimizer, OptimizerKind, Sharding, TrainingJob, Tuning
from projector.operations import Gemm, Operation, Weight, parameter_class
from projector.parallelism import Layout

_PACKED = "self_attention.linear_qkv"
"""The layer whose weight holds several matrices."""
_RESULT_BYTES = 2
"""Bytes of an element of the iterations."""


class Matrix(NamedTuple):
    """The shape of a weight that is orthogonalised."""

    rows: int
    """Outputs on this device."""
    columns: int
    """Inputs on this device."""
    expert: bool
    """It belongs to routed experts, which other ranks replicate."""


Matrices = Mapping[Matrix, int]
"""How many there are of each shape."""
NO_MATRICES: Matrices = MappingProxyType({})


def matrices_of(operations: Iterable[Operation], optimizer: Optimizer) -> Matrices:
    """The matrices of operations that the optimizer orthogonalises; none unless it is Muon."""
    if optimizer.kind is not OptimizerKind.MUON:
        return NO_MATRICES
    found: Counter[Matrix] = Counter()
    for operation in operations:
        for weight in operation.weights:
            trained = weight.trainable and not weight.frozen and not weight.shared
            if trained and len(weight.shape) > 1 and parameter_class(operation, weight) not in optimizer.exempt_classes:
                for rows, columns in _parts(operation, weight):
                    found[Matrix(rows, columns, weight.expert)] += weight.copies
    return found


def joined(several: Iterable[tuple[Matrices, int]]) -> Matrices:
    """All of them, each set so many times."""
    total: Counter[Matrix] = Counter()
    for matrices, times in several:
        for matrix, count in matrices.items():
            total[matrix] += count * times
    return total or NO_MATRICES


def newton_schulz_seconds(matrices: Matrices, job: TrainingJob, layout: Layout, costs: CostModel) -> float:
    """Seconds of a step's iterations on the fullest rank.

    Ranks that divide the optimizer's state take whole matrices each, and no rank less than the largest one; others all
    do the same. A stated time stands for all of it.
    """
    tuning = job.tuning or Tuning()
    if matrices and tuning.newton_schulz_seconds is not None:
        return tuning.newton_schulz_seconds
    steps = tuning.newton_schulz_steps or job.optimizer.muon_newton_schulz_steps
    divides = layout.sharding is not Sharding.NONE
    total = largest = 0.0
    for matrix, count in matrices.items():
        seconds = sum(costs.seconds(product) for product in products(matrix)) * steps
        ranks = (layout.expert_shard if matrix.expert else layout.shard) if divides else 1
        total += seconds * count / ranks
        largest = max(largest, seconds)
    return max(total, largest)


def products(matrix: Matrix) -> tuple[Gemm, Gemm, Gemm]:
    """The three of one iteration."""
    small, large = sorted((matrix.rows, matrix.columns))
    return (
        Gemm(m=small, n=small, k=large, output_bytes=_RESULT_BYTES),
        Gemm(m=small, n=small, k=small, output_bytes=_RESULT_BYTES),
        Gemm(m=small, n=large, k=small, output_bytes=_RESULT_BYTES),
    )


def _parts(operation: Operation, weight: Weight) -> Iterator[tuple[int, int]]:
    """Rows and columns of each matrix in a weight."""
    rows, columns = weight.shape[-2:]
    packed = operation.linear.parts if operation.name == _PACKED and operation.linear is not None else ()
    if sum(part for _, part in packed) == rows:
        yield from ((part, columns) for _, part in packed)
    else:
        yield rows, columns
