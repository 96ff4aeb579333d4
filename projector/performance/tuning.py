"""What stated figures (`projector.job.Tuning`) make of a layer's operations before they are costed.

Works keep their kernels, so that the host that starts them stays as it is; what they move, and how fast, changes.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from projector.catalog import Device
from projector.costs.figures import figure
from projector.job import Attention, DecoderLayer, MixtureOfExperts, Tuning
from projector.layers import Shapes
from projector.layers.hyper_connections import NAME as HYPER_CONNECTION
from projector.operations import AttentionKernel, ElementWise, Operation, StatedSpeed, Work

_ANCHOR_BYTES_PER_SECOND = 8e12
"""Memory bandwidth of the GPU for which an expert's fixed time is stated: MI355X (AMD-AGI/Primus moe_mlp.py)."""
_HEAD_PASSES = (3, 4)
"""Passes over attention's heads, forward and backward, for rotary embedding and norms (attention.py)."""
_CHOICE = frozenset(
    {
        "choose",
        "compress",
        "compress_backward",
        "gather_keys",
        "indexer_loss",
        "indexer_loss_backward",
        "scatter_keys",
        "quantize",
    }
)
"""Element-wise work of compressed attention beside that between its projections."""
_STREAMS = frozenset({"mix_streams", "mix_streams_backward"})
"""Hyper-connections' work at the end of a half of a layer."""
_AT_ONCE = StatedSpeed(launch_seconds=0.0)
"""Work that other work stands for."""

_Change = Callable[[Operation, ElementWise, bool], ElementWise]
"""A work of an operation, and whether it is of a backward pass, to what stands for it."""


def tuned(
    operations: tuple[Operation, ...], layer: DecoderLayer, shapes: Shapes, tuning: Tuning | None, device: Device
) -> tuple[Operation, ...]:
    """The operations of a layer at the stated figures; as they are where there are none."""
    if tuning is None:
        return operations
    if isinstance(layer.feed_forward, MixtureOfExperts):
        operations = _tuned_experts(operations, layer.feed_forward, shapes, tuning, device)
    if is_compressed(layer):
        assert isinstance(layer.mixer, Attention)  # noqa: S101 - for the type checker
        operations = _tuned_attention(operations, layer.mixer, shapes, tuning)
    return operations


def is_compressed(layer: DecoderLayer) -> bool:
    """Whether a layer attends as DeepSeek-V4's do."""
    return isinstance(layer.mixer, Attention) and layer.mixer.shared_key_value


def _changed(operations: Iterable[Operation], change: _Change) -> tuple[Operation, ...]:
    def works(operation: Operation, works_: tuple[Work, ...], *, backward: bool) -> tuple[Work, ...]:
        return tuple(change(operation, work, backward) if isinstance(work, ElementWise) else work for work in works_)

    return tuple(
        replace(
            operation,
            forward=works(operation, operation.forward, backward=False),
            backward_input=works(operation, operation.backward_input, backward=True),
            backward_weight=works(operation, operation.backward_weight, backward=True),
        )
        for operation in operations
    )


def _idle(work: ElementWise) -> ElementWise:
    return replace(work, bytes_read=0, bytes_written=0, speed=_AT_ONCE)


def _tuned_experts(
    operations: tuple[Operation, ...], experts: MixtureOfExperts, shapes: Shapes, tuning: Tuning, device: Device
) -> tuple[Operation, ...]:
    fixed = tuning.expert_forward_seconds, tuning.expert_backward_seconds
    is_fixed = fixed != (None, None)

    def change(operation: Operation, work: ElementWise, backward: bool) -> ElementWise:  # noqa: FBT001 - a callback
        if work.name == "permute":
            return _permutation(operation, work, experts, shapes, tuning, backward=backward)
        if operation.component != "experts":
            return work
        is_cast = work.name == "quantize"
        if is_cast and is_fixed:
            return _idle(work)
        efficiency = tuning.expert_cast_efficiency if is_cast else None
        return _at(work, efficiency=efficiency, launch=tuning.expert_launch_seconds)

    changed = _changed(operations, change)
    if not is_fixed:
        return changed
    scale = _ANCHOR_BYTES_PER_SECOND / figure(device, "memory_bandwidth_bytes_per_second")
    local = experts.experts // shapes.expert * scale
    first = next(operation for operation in changed if operation.component == "experts")
    slowed = replace(
        first,
        forward=(*first.forward, _fixed("expert_overhead", (fixed[0] or 0.0) * local)),
        backward_input=(*first.backward_input, _fixed("expert_overhead_backward", (fixed[1] or 0.0) * local)),
    )
    return tuple(slowed if operation is first else operation for operation in changed)


def _fixed(name: str, seconds: float) -> ElementWise:
    return ElementWise(name=name, bytes_read=0, bytes_written=0, kernels=0, speed=StatedSpeed(fixed_seconds=seconds))


def _at(work: ElementWise, *, efficiency: float | None = None, launch: float | None = None) -> ElementWise:
    if efficiency is None and launch is None:
        return work
    return replace(work, speed=StatedSpeed(efficiency=efficiency or 1.0, launch_seconds=launch))


def _permutation(  # noqa: PLR0913 - one of two permutations in one of two directions
    operation: Operation,
    work: ElementWise,
    experts: MixtureOfExperts,
    shapes: Shapes,
    tuning: Tuning,
    *,
    backward: bool,
) -> ElementWise:
    if tuning.permutation_bandwidth_share is None:
        return _at(work, efficiency=tuning.permutation_efficiency, launch=tuning.permutation_launch_seconds)
    if backward is operation.name.endswith("dispatch"):
        return _idle(work)
    token, copies = shapes.residual_bytes, shapes.residual_bytes * experts.top_k
    speed = StatedSpeed(bandwidth_share=tuning.permutation_bandwidth_share, launch_seconds=0.0)
    return replace(work, bytes_read=token, bytes_written=copies, speed=speed)


def _tuned_attention(
    operations: tuple[Operation, ...], mixer: Attention, shapes: Shapes, tuning: Tuning
) -> tuple[Operation, ...]:
    passes = (tuning.attention_forward_passes, tuning.attention_backward_passes)
    stands_in = passes != (None, None)
    share = tuning.attention_bandwidth_share

    def change(operation: Operation, work: ElementWise, backward: bool) -> ElementWise:  # noqa: ARG001, FBT001 - a callback
        if work.name == "scatter_keys" and tuning.key_scatter_bandwidth_share and not shapes.software.gathered_keys:
            return replace(work, speed=StatedSpeed(bandwidth_share=tuning.key_scatter_bandwidth_share))
        attends = operation.component == "self_attention" and work.name not in _CHOICE
        if attends and stands_in:
            return _idle(work)
        connects = operation.name.endswith(HYPER_CONNECTION) or work.name in _STREAMS
        if share is not None and (attends or connects):
            return replace(work, speed=StatedSpeed(bandwidth_share=share))
        return work

    changed = _changed(operations, change)
    return tuple(
        _tuned_core(operation, mixer, shapes, tuning) if operation.name.endswith("core_attention") else operation
        for operation in changed
    )


def _tuned_core(operation: Operation, mixer: Attention, shapes: Shapes, tuning: Tuning) -> Operation:
    """The kernel with the stated share of its window, and the passes that stand for the work around it."""
    forward, backward = (
        tuple(_narrowed(work, tuning.sliding_window_share) for work in works)
        for works in (operation.forward, operation.backward_input)
    )
    counts = (tuning.attention_forward_passes, tuning.attention_backward_passes)
    if counts != (None, None):
        heads = shapes.element * shapes.tokens * mixer.heads // shapes.tensor * mixer.head_dim
        share = tuning.attention_pass_bandwidth_share
        extra = [
            (_passes("head_passes", number * heads, 1.0), _passes("stream_passes", (count or 0.0) * stream, share))
            for number, count, stream in zip(_HEAD_PASSES, counts, (shapes.residual_bytes,) * 2, strict=True)
        ]
        forward, backward = (*forward, *extra[0]), (*backward, *extra[1])
    return replace(operation, forward=forward, backward_input=backward)


def _passes(name: str, size_bytes: float, share: float | None) -> ElementWise:
    speed = StatedSpeed(bandwidth_share=share, launch_seconds=0.0)
    return ElementWise(name=name, bytes_read=round(size_bytes), bytes_written=0, kernels=0, speed=speed)


def _narrowed(work: Work, share: float | None) -> Work:
    if share is None or not isinstance(work, AttentionKernel) or work.window is None:
        return work
    left_out = (1 - share) * min(work.window, work.key_length)
    return replace(work, further_keys=work.further_keys - left_out)
