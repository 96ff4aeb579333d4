"""Attention kernels, element-wise work and the optimizer step."""

from collections.abc import Callable, Iterator
from math import ceil

from projector.catalog import Device
from projector.costs.figures import TERA, figure, kernel_gap, training_factor
from projector.job import AttentionBackend
from projector.operations import AttentionKernel, ElementWise, Gemm, GemmLayout, StatedSpeed

_QUERY_TILE = 128
"""Queries of one workgroup (FlashAttention-2, arXiv 2307.08691, section 3.3)."""
_HALF_FULL_WORKGROUPS = 0.5
"""Workgroups per compute unit at which attention reaches half its rate: w / (w + 0.5) follows the waves of a kernel
whose tail overlaps with the next one's head (prior)."""
_ORDERED_BYTES = 8
"""Bytes that pass memory for each element of a copy of the queries' gradients in fp32: it is zeroed, and read when all
copies are added up."""
_REFERENCE_HEAD = 128
"""Head width at which the catalog's attention rates were measured."""
_HEAD_EXPONENT = 0.5
"""Narrow heads do less arithmetic per softmax. A prior: FlashAttention-2 forward reaches 329 TFLOP/s at width 64 on
MI300X (Azure/AI-benchmarking-guide) against about 530 at 128."""
ADAM_BYTES = 28
"""Bytes per parameter that Adam moves in fp32: it reads weight, gradient and two moments and writes three of them."""
_ADAM_STATE_BYTES = 12
"""Bytes per parameter of the state behind that: fp32 master weight and two fp32 moments."""
_NORM_AND_CLIP_BYTES = 12
"""Bytes per parameter of a shard of an fp32 gradient that is read for its norm, and read and written by clipping."""
_COPY_BYTES = 6
"""Bytes per parameter of a shard of writing the 16-bit weight from the 32-bit one."""
_ZERO_PASSES, _PRESCALE_PASSES = 1, 2
"""Passes over the main gradients: zeroing writes, scaling reads and writes."""


def attention_seconds(work: AttentionKernel, device: Device, dense: Callable[[Gemm], float]) -> float:
    """Seconds of one attention kernel; `dense` costs the matrix products of unfused attention."""
    if not work.flash:
        return sum(dense(product) for product in _unfused_products(work))
    rate = _attention_rate(work, device)
    if work.query_key_dim != work.value_dim:
        if work.backward and device.latent_attention_backward_tflops is not None:
            rate = device.latent_attention_backward_tflops * TERA * training_factor(device)
        else:
            rate *= 1.0 if device.latent_attention_factor is None else device.latent_attention_factor
    elif work.value_dim < _REFERENCE_HEAD:
        rate *= (work.value_dim / _REFERENCE_HEAD) ** _HEAD_EXPONENT
    workgroups = work.batch * work.heads * max(1.0, work.query_length / _QUERY_TILE) / figure(device, "compute_units")
    seconds = work.flops / (rate * workgroups / (workgroups + _HALF_FULL_WORKGROUPS)) + kernel_gap(device)
    return seconds + _ordered_seconds(work, device)


def _ordered_seconds(work: AttentionKernel, device: Device) -> float:
    """What a fixed order of additions takes beyond atomic ones, of which published rates contain the traffic.

    Backward adds each block of keys' share of the queries' gradients into fp32 by atomics. A fixed order gives each of
    the workgroups that share a sequence and head a copy of its own: compute units / (sequences x heads) of them
    (flash-attention 2.x csrc/flash_attn/flash_api.cpp, `mha_bwd`, `nsplits`).
    """
    if not (work.backward and work.deterministic and work.backend == AttentionBackend.FLASH):
        return 0.0
    copies = ceil(figure(device, "compute_units") / (work.batch * work.heads))
    elements = work.batch * work.heads * work.query_length * work.query_key_dim
    moved = (copies - 1) * _ORDERED_BYTES * elements
    return moved / figure(device, "elementwise_bytes_per_second")


def _attention_rate(work: AttentionKernel, device: Device) -> float:
    """FLOP/s at the reference head width: of the kernel family where the device's differ, else of its usual one."""
    direction = "backward" if work.backward else "forward"
    family = device.attention_backend_tflops.get(f"{work.backend}-{direction}")
    tflops = figure(device, f"attention_{direction}_tflops") if family is None else family
    return tflops * TERA * training_factor(device)


def _unfused_products(work: AttentionKernel) -> Iterator[Gemm]:
    """Batched products over the full square; layers state the softmax between them as element-wise work."""
    queries, keys, batch = work.query_length, work.key_length, work.batch * work.heads
    if not work.backward:
        yield Gemm(m=queries, n=keys, k=work.query_key_dim, batch=batch)
        yield Gemm(m=queries, n=work.value_dim, k=keys, batch=batch, layout=GemmLayout.NN)
        return
    yield Gemm(m=queries, n=keys, k=work.value_dim, batch=batch)
    yield Gemm(m=keys, n=work.value_dim, k=queries, batch=batch, layout=GemmLayout.NT)
    yield Gemm(m=queries, n=work.query_key_dim, k=keys, batch=batch, layout=GemmLayout.NN)
    yield Gemm(m=keys, n=work.query_key_dim, k=queries, batch=batch, layout=GemmLayout.NT)


def elementwise_seconds(work: ElementWise, device: Device, bytes_per_second: float | None = None) -> float:
    """Bytes over what large kernels achieve, of all kinds or of this one if stated, plus the gaps between kernels.

    Casts to low precision count like any other: the slower rates of published tables hold for inference kernels that
    scale per token.
    """
    moved, stated = work.bytes_read + work.bytes_written, work.speed or StatedSpeed()
    rate = bytes_per_second if stated.bandwidth_share is None else None
    rate = rate or _rate(device, stated.bandwidth_share)
    gap = kernel_gap(device) if stated.launch_seconds is None else stated.launch_seconds
    return moved / (rate * stated.efficiency) + work.kernels * gap + stated.fixed_seconds


def _rate(device: Device, share: float | None) -> float:
    """Bytes per second of what large kernels achieve, or at a stated share of the peak of memory bandwidth."""
    if share is None:
        return figure(device, "elementwise_bytes_per_second")
    return share * figure(device, "memory_bandwidth_bytes_per_second")


def optimizer_step_seconds(
    shard_elements: float, state_bytes: float, device: Device, *, share: float | None = None
) -> float:
    """Update of the parameters that this device owns: `state_bytes` per parameter of master weight and moments.

    The state of plain Adam moves its full traffic; leaner states move proportionally less. `share` is a stated one of
    the peak of memory bandwidth.
    """
    traffic = _NORM_AND_CLIP_BYTES + ADAM_BYTES * state_bytes / _ADAM_STATE_BYTES + _COPY_BYTES
    return shard_elements * traffic / _rate(device, share)


def gradient_buffer_seconds(
    elements: float, gradient_bytes: int, device: Device, *, share: float | None = None
) -> float:
    """Zeroing the main gradients of this device before the step and scaling them before they are reduced."""
    passes = _ZERO_PASSES + _PRESCALE_PASSES
    return elements * gradient_bytes * passes / _rate(device, share)
