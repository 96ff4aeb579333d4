"""What is not a decoder layer: token table, final norm, output layer with loss, multi-token prediction."""

from dataclasses import replace
from functools import lru_cache

from projector.job import CrossEntropy, Dialect, PositionKind, TrainingJob
from projector.layers.adapters import with_adapters
from projector.layers.blocks import Linear, kept_input, linear, norm, norm_weight, statistic_bytes
from projector.layers.hyper_connections import head
from projector.layers.modules import as_classes_keep, shared_tables
from projector.layers.shapes import Shapes, shapes_of
from projector.operations import (
    Collective,
    CollectiveKind,
    ElementWise,
    Group,
    Operation,
    SavedTensor,
    Split,
    Weight,
    Work,
)
from projector.parallelism import Layout

EMBEDDING_GRADIENT_BYTES = (6, 6)
"""Bytes read and written per entry of the table: a dense bf16 gradient is zeroed, filled, and added to fp32."""
LOSS_BYTES_FORWARD, LOSS_BYTES_BACKWARD = 8, 4
"""Bytes moved per logit by cross entropy."""
TORCH_LOSS_WORK = {
    "eager": ((10, 8, 3), (16, 10, 3)),
    "parallel": ((26, 16, 8), (26, 22, 6)),
    "compiled": ((4, 0, 2), (2, 2, 1)),
}
"""Bytes read and written per logit, and kernels, forward and backward, of torch's own cross entropy of bf16 logits: in
eager mode (counted under torch 2.15), in eager mode over divided logits (the steps of
torch/distributed/tensor/parallel/loss.py), and compiled, which reads the logits for their maximum and for the sum."""
FP32, BF16 = 4, 2


def embedding_operations(job: TrainingJob, layout: Layout) -> tuple[Operation, ...]:
    """Token table look-up, learned positions, embedding dropout."""
    return shaped_embedding(shapes_of(job, layout))


@lru_cache(maxsize=64)
def shaped_embedding(shapes: Shapes) -> tuple[Operation, ...]:
    """The token table's operations from sizes alone."""
    table = _embedding(shapes)
    if shapes.adapters is None:
        return (table,)
    # No gradient goes below the first layer.
    return with_adapters((replace(table, backward_input=(), scratch_backward_bytes=0),), shapes)


def _embedding(shapes: Shapes) -> Operation:
    table = shapes.padded_vocabulary // shapes.tensor * shapes.hidden
    read, written = EMBEDDING_GRADIENT_BYTES
    size = shapes.gathered_bytes
    forward: list[Work] = [ElementWise(name="embedding", bytes_read=size, bytes_written=size)]
    backward: list[Work] = []
    if shapes.tensor > 1:
        kind = CollectiveKind.REDUCE_SCATTER if shapes.sequence_parallel else CollectiveKind.ALL_REDUCE
        forward.append(Collective(kind=kind, group=Group.TENSOR, message_bytes=size))
        if shapes.sequence_parallel:
            backward.append(Collective(kind=CollectiveKind.ALL_GATHER, group=Group.TENSOR, message_bytes=size))
    masked = shapes.software.hidden_dropout > 0
    mask = (SavedTensor(name="dropout_mask", size_bytes=shapes.local * shapes.hidden),) if masked else ()
    return Operation(
        name="embedding.word_embeddings",
        component="embedding",
        forward=tuple(forward),
        backward_input=tuple(backward),
        backward_weight=(
            ElementWise(name="embedding_gradient", bytes_read=read * table, bytes_written=written * table, kernels=3),
        ),
        weights=(_table(shapes), *_positions(shapes)),
        saves=(*mask, *shared_tables(shapes)),
        scratch_forward_bytes=2 * size,
        scratch_backward_bytes=shapes.element * table + 2 * size,
    )


def _table(shapes: Shapes, *, full_copies: int = 1) -> Weight:
    return Weight(
        name="word_embeddings.weight",
        shape=(shapes.padded_vocabulary // shapes.tensor, shapes.hidden),
        full_elements=shapes.vocabulary * shapes.hidden,
        full_copies=full_copies,
        padding_elements=(shapes.padded_vocabulary - shapes.vocabulary) * shapes.hidden * full_copies,
        active_copies=0,
    )


def _positions(shapes: Shapes) -> tuple[Weight, ...]:
    if shapes.position is not PositionKind.LEARNED:
        return ()
    elements = shapes.max_position * shapes.hidden
    return (
        Weight(
            name="position_embeddings.weight",
            shape=(shapes.max_position, shapes.hidden),
            full_elements=elements,
            active_copies=0,
        ),
    )


def output_operations(job: TrainingJob, layout: Layout) -> tuple[Operation, ...]:
    """Final norm, output layer and loss of the last stage."""
    return shaped_output(shapes_of(job, layout), tied_elsewhere=layout.tied_across_stages)


@lru_cache(maxsize=64)
def shaped_output(shapes: Shapes, *, tied_elsewhere: bool) -> tuple[Operation, ...]:
    """The same from sizes alone; `tied_elsewhere` where the token table that it reuses sits on another stage."""
    operations = (
        *(() if shapes.streams == 1 else (head("final_norm", shapes),)),
        norm("decoder.final_layernorm", shapes, component="final_norm", keeps_output=False),
        *_head(shapes, tied_elsewhere=tied_elsewhere),
    )
    return with_adapters(as_classes_keep(operations, None, shapes), shapes)


def _head(shapes: Shapes, *, tied_elsewhere: bool, repeated: bool = False) -> tuple[Operation, ...]:
    """Output layer and loss; `repeated` for another pass over a head that the device already has."""
    columns = shapes.padded_vocabulary // shapes.tensor
    kept = shapes.element * shapes.column_input_tokens * shapes.hidden
    output = linear(
        Linear(
            name="output_layer",
            component="output_layer",
            outputs=columns,
            inputs=shapes.hidden,
            full_elements=shapes.vocabulary * shapes.hidden,
            split=Split.COLUMN,
            saves=(
                SavedTensor(name="input", size_bytes=kept, only_for_weights=True),
                *_logits_in_place(shapes),
            ),
            low_precision=False,
        ),
        shapes,
    )
    # Megatron's own column-parallel layer gathers its input into a buffer that it keeps: persistent memory.
    buffered = shapes.gathered_bytes - kept if shapes.sequence_parallel else 0
    finished = replace(
        output,
        weights=(_head_weight(shapes, tied_elsewhere=tied_elsewhere, repeated=repeated),),
        scratch_forward_bytes=0,
        scratch_backward_bytes=_head_scratch(output, shapes) - buffered,
        weight_scratch_bytes=output.weight_scratch_bytes - buffered,
    )
    return finished, _loss(shapes)


def _logits_bytes(shapes: Shapes) -> int:
    """Bytes of the logits of this device in the activation's format."""
    return shapes.element * shapes.tokens * (shapes.padded_vocabulary // shapes.tensor)


def _logits_in_place(shapes: Shapes) -> tuple[SavedTensor, ...]:
    """Transformer Engine's kernel turns logits into their gradient in place: they live until the layer's backward."""
    if shapes.software.cross_entropy is not CrossEntropy.TRANSFORMER_ENGINE:
        return ()
    return (SavedTensor(name="logits", size_bytes=_logits_bytes(shapes)),)


def _head_scratch(output: Operation, shapes: Shapes) -> int:
    """Backward scratch of the output layer, without logits that are kept already or never whole."""
    scratch = output.scratch_backward_bytes
    if shapes.software.cross_entropy in (CrossEntropy.TRANSFORMER_ENGINE, CrossEntropy.LINEAR_FUSED):
        scratch -= _logits_bytes(shapes)
    return scratch


def _head_weight(shapes: Shapes, *, tied_elsewhere: bool, repeated: bool) -> Weight:
    """A weight that knows whether it is its own, a copy of the token table, or used before."""
    reused = repeated or (shapes.tied_embeddings and not tied_elsewhere)
    owned = not shapes.tied_embeddings and not repeated
    return Weight(
        name="output_layer.weight",
        shape=(shapes.padded_vocabulary // shapes.tensor, shapes.hidden),
        full_elements=shapes.vocabulary * shapes.hidden,
        full_copies=1 if owned else 0,
        padding_elements=(shapes.padded_vocabulary - shapes.vocabulary) * shapes.hidden if owned else 0,
        active_copies=0 if repeated else 1,
        shared=reused,
    )


def _loss(shapes: Shapes) -> Operation:
    """Vocabulary-parallel cross entropy over the logits of this device.

    Transformer Engine's kernel works on the logits that the output layer keeps; without it an fp32 copy is kept beside
    the bf16 gradient; Megatron's own fusion makes one fp32 copy more.
    """
    logits = shapes.tokens * (shapes.padded_vocabulary // shapes.tensor)
    kept, forward, backward = _loss_bytes(shapes)
    reduce: tuple[Work, ...] = ()
    if shapes.tensor > 1:
        scalar = Collective(kind=CollectiveKind.ALL_REDUCE, group=Group.TENSOR, message_bytes=FP32 * shapes.tokens)
        reduce = (scalar, scalar, scalar)
    ahead, back = _loss_work(logits, shapes)
    return Operation(
        name="loss",
        component="loss",
        forward=(ahead, *reduce),
        backward_input=(back,),
        saves=(SavedTensor(name="logits", size_bytes=kept * logits),) if kept else (),
        scratch_forward_bytes=forward * logits,
        scratch_backward_bytes=backward * logits,
    )


def _torch_loss(shapes: Shapes) -> bool:
    """Whether it is torch's own cross entropy of a logits tensor."""
    software = shapes.software
    return software.dialect is Dialect.TORCHTITAN and software.cross_entropy is CrossEntropy.UNFUSED


def _loss_work(logits: int, shapes: Shapes) -> tuple[ElementWise, ElementWise]:
    """Element-wise work of both directions."""
    if _torch_loss(shapes):
        kind = "compiled" if shapes.software.compiled_loss else "parallel" if shapes.tensor > 1 else "eager"
        forward, backward = TORCH_LOSS_WORK[kind]
    else:
        kernels = 2 if shapes.software.cross_entropy is CrossEntropy.TRANSFORMER_ENGINE else 8
        each, again = LOSS_BYTES_FORWARD // 2, LOSS_BYTES_BACKWARD // 2
        forward, backward = (each, each, kernels), (again, again, max(1, kernels // 4))
    names = "cross_entropy", "cross_entropy_backward"
    ahead, back = (
        ElementWise(name=name, bytes_read=read * logits, bytes_written=written * logits, kernels=kernels)
        for name, (read, written, kernels) in zip(names, (forward, backward), strict=True)
    )
    return ahead, back


def _loss_bytes(shapes: Shapes) -> tuple[int, int, int]:
    """Bytes per logit: kept for backward, more during forward, more during backward.

    torch's own loss, which TorchTitan runs eagerly, keeps the fp32 log-softmax and holds bf16 and fp32 logits and their
    gradients beside it: 12 in all. Over logits that tensor parallelism divides it is a chain of fp32 operations
    (torch/distributed/tensor/parallel/loss.py): beside the kept one, three fp32 tensors are alive in backward, and
    logits in bf16 and fp32 and one more in forward. Compiled, it keeps the bf16 logits with two statistics a row, and
    turns them into a bf16 gradient.
    """
    software = shapes.software
    match software.cross_entropy:
        case CrossEntropy.NATIVE_FUSED:
            return FP32, BF16 + FP32, BF16 + FP32
        case CrossEntropy.TRANSFORMER_ENGINE | CrossEntropy.LINEAR_FUSED:
            return 0, 0, 0
        case _ if not _torch_loss(shapes):
            return FP32, BF16, BF16
        case _ if software.compiled_loss:
            return BF16, 0, BF16
        case _ if shapes.tensor > 1:
            return FP32, BF16 + 2 * FP32, 3 * FP32
        case _:
            return FP32, BF16 + FP32, 2 * BF16 + FP32


def prediction_head(shapes: Shapes) -> tuple[Operation, ...]:
    """Final norm, shared output layer and loss of a multi-token-prediction layer."""
    return (
        norm("mtp.final_layernorm", shapes, component="multi_token_prediction", keeps_output=False),
        *_head(shapes, tied_elsewhere=False, repeated=True),
    )


def prediction_input(shapes: Shapes) -> tuple[Operation, ...]:
    """Norms of the next token's embedding and of the hidden state, their concatenation and projection."""
    width, size = shapes.hidden, shapes.residual_bytes
    join = linear(
        Linear(
            name="mtp.eh_proj",
            component="multi_token_prediction",
            outputs=width // shapes.tensor,
            inputs=2 * width,
            full_elements=2 * width * width,
            split=Split.COLUMN,
            saves=(kept_input(shapes, 2 * shapes.local * width),),
            gradient_above_bytes=size,
        ),
        shapes,
    )
    return _prediction_norm("enorm", shapes), _prediction_norm("hnorm", shapes), join


def _prediction_norm(name: str, shapes: Shapes) -> Operation:
    size = shapes.residual_bytes
    return Operation(
        name=f"mtp.{name}",
        component="multi_token_prediction",
        forward=(ElementWise(name=f"{shapes.norm.value}_norm", bytes_read=size, bytes_written=size),),
        backward_input=(
            ElementWise(name=f"{shapes.norm.value}_norm_backward", bytes_read=2 * size, bytes_written=size, kernels=2),
        ),
        weights=norm_weight(name, shapes.hidden, shapes),
        saves=(
            SavedTensor(name="input", size_bytes=size),
            SavedTensor(name="statistics", size_bytes=statistic_bytes(shapes) * shapes.local),
        ),
        scratch_forward_bytes=2 * size,
        scratch_backward_bytes=3 * size,
    )
