"""What bringing tokens to their experts and back keeps and holds in memory, by dispatcher.

The lifetimes are those of Megatron-LM's moe_layer.py `custom_forward`: its local names hold the permuted tokens and
what arrived until the layer ends, so that both are alive beside the experts' output and its copy in the order of
arrival (moe_layer.py and token_dispatcher.py of Megatron-LM 23e00ed0 and megatron-core 0.16.1).
"""

from math import ceil
from typing import NamedTuple

from projector.job import Dialect, ExpertBackend, ExpertDispatch, MixtureOfExperts, Software
from projector.layers.shapes import Shapes
from projector.operations import SavedTensor, TokenVisits

PROBABILITY_BYTES = 4
"""Kept per row that an expert receives: its probability, on the way and sorted by expert."""
INDEX_BYTES = 8
"""A row's place in the order of experts, which unfused permutation keeps (torch `index_select`)."""
MAP_BYTES = 4
"""An entry of the row map of Transformer Engine's fused permutation, of which there are 2 experts + 1 a token."""
MASK_BYTES = 1
"""An entry of a mask of tokens and experts."""
FP32_BYTES = 4
STATIC_ARRIVALS_STAGE, STATIC_ROWS_STAGE = 2, 3
"""Sync-free stages from which DeepEP's buffer, and the experts' rows, have a static size: `num_worst_tokens`, tokens x
ranks, and `permute_max_token_num`, that x top_k (AMD-AGI/Primus primus_turbo.py `PrimusTurboDeepEPTokenDispatcher`)."""


class Scratch(NamedTuple):
    """Bytes that are alive for a moment, beside what is kept."""

    forward: int
    """In the forward pass."""
    backward: int
    """In the backward pass."""


def expert_rows(moe: MixtureOfExperts, shapes: Shapes) -> int:
    """Rows for which the experts of one device hold memory per micro batch.

    Experts that never ask the host how many rows arrived hold as many as there can be.
    """
    if has_static_rows(shapes.software, shapes.expert):
        return gathered_rows(shapes) * moe.top_k
    return computed_rows(moe, shapes)


def computed_rows(moe: MixtureOfExperts, shapes: Shapes) -> int:
    """Rows that the experts of one device compute.

    With a capacity and padding, every expert computes its capacity, filled or not; without padding, at most that.
    """
    software = shapes.software
    capacity = software.expert_capacity_factor
    if capacity is not None and software.expert_capacity_padded:
        return _padded_rows(moe, shapes, capacity) * shapes.expert_tensor
    factor = shapes.routing_factor if capacity is None else min(capacity, shapes.routing_factor)
    return round(shapes.local * moe.top_k * factor) * shapes.expert_tensor


def has_static_rows(software: Software, ranks: int) -> bool:
    """Whether experts hold as many rows as there can be, whatever the router decides."""
    return _static_stage(software, ranks) >= STATIC_ROWS_STAGE


def has_static_arrivals(software: Software, ranks: int) -> bool:
    """Whether what arrives lies in a buffer for all tokens of all ranks."""
    return _static_stage(software, ranks) >= STATIC_ARRIVALS_STAGE


def _static_stage(software: Software, ranks: int) -> int:
    """The sync-free stage, where DeepEP exchanges tokens; 0 elsewhere."""
    exchanged = ranks > 1 and software.expert_dispatch.sends_once
    return software.sync_free_stage if exchanged else 0


def sent_rows(moe: MixtureOfExperts, shapes: Shapes) -> int:
    """Copies of its tokens that one device sends to experts; routing decides where they go, not how many they are."""
    software = shapes.software
    if software.expert_capacity_factor is None:
        return shapes.local * moe.top_k
    if software.expert_capacity_padded:
        return _padded_rows(moe, shapes, software.expert_capacity_factor)
    return round(shapes.local * moe.top_k * min(1.0, software.expert_capacity_factor))


def _padded_rows(moe: MixtureOfExperts, shapes: Shapes, capacity: float) -> int:
    return moe.experts * ceil(shapes.local * moe.top_k * capacity / moe.experts)


def gathered_rows(shapes: Shapes) -> int:
    """Tokens of all devices that share the experts of a layer, which the all-gather dispatcher brings together."""
    return shapes.local * shapes.expert * shapes.expert_tensor


def gather_buffer_bytes(shapes: Shapes) -> int:
    """Buffer that the all-gather dispatcher fills in every layer and never gives back; 0 for other dispatchers.

    It is the one that tensor parallelism gathers into as well (Megatron-LM `use_global_buffer`).
    """
    alone = shapes.expert * shapes.expert_tensor == 1
    if alone or not _gathers(shapes):
        return 0
    return shapes.element * shapes.hidden * gathered_rows(shapes)


def _gathers(shapes: Shapes) -> bool:
    megatron = shapes.software.dialect is not Dialect.TORCHTITAN
    return megatron and shapes.software.expert_dispatch is ExpertDispatch.ALL_GATHER


def _sends_once(shapes: Shapes) -> bool:
    return shapes.expert > 1 and shapes.software.expert_dispatch.sends_once


def _unique_rows(moe: MixtureOfExperts, shapes: Shapes) -> int:
    """Tokens that arrive where a token goes once to each device that needs it, on average.

    DeepEP's dispatch, before its copies are made; a buffer of a static size holds all tokens of all devices.
    """
    if has_static_arrivals(shapes.software, shapes.expert):
        return gathered_rows(shapes)
    ranks = shapes.expert * shapes.expert_tensor
    share = token_visits(moe, shapes.residual_bytes).places(shapes.expert) / shapes.expert * shapes.routing_factor
    return round(shapes.local * ranks * min(1.0, share))


def token_visits(moe: MixtureOfExperts, token_bytes: int) -> TokenVisits:
    """Where the tokens of one device go, each place that needs a token getting it once."""
    return TokenVisits(
        token_bytes=token_bytes,
        top_k=moe.top_k,
        experts=moe.experts,
        groups=moe.expert_groups,
        chosen_groups=moe.chosen_groups,
    )


def dispatch_saves(moe: MixtureOfExperts, rows: int, shapes: Shapes) -> tuple[SavedTensor, ...]:
    """Maps of the permutation and the probabilities of the experts' rows.

    What is permuted are a device's own tokens for all experts, or gathered or arrived tokens for the local experts. An
    unfused permutation keeps each row's index and a mask of bytes instead of the fused one's map.
    """
    local = moe.experts // shapes.expert
    if _gathers(shapes):
        tokens, experts, more = gathered_rows(shapes), local, 0
    elif _sends_once(shapes):
        tokens, experts = _unique_rows(moe, shapes), local
        more = (FP32_BYTES + MASK_BYTES) * tokens * local + (INDEX_BYTES + FP32_BYTES) * shapes.local * moe.top_k
    else:
        tokens, experts, more = shapes.local, moe.experts, 0
    if shapes.software.permute_fusion:
        row_map = MAP_BYTES * tokens * (2 * experts + 1)
    else:
        row_map = INDEX_BYTES * rows + MASK_BYTES * tokens * experts
    return (
        SavedTensor(name="row_map", size_bytes=row_map + more),
        SavedTensor(name="probabilities", size_bytes=PROBABILITY_BYTES * rows),
    )


def dispatch_scratch(moe: MixtureOfExperts, rows: int, shapes: Shapes) -> Scratch:
    """While tokens travel to the experts: the permuted tokens, what arrives, and its copy in the order of experts."""
    row = shapes.element * shapes.hidden
    residual = shapes.residual_bytes
    sent, received = row * sent_rows(moe, shapes), row * rows
    if _gathers(shapes):
        return Scratch(forward=received, backward=2 * residual + row * gathered_rows(shapes) + received)
    if _sends_once(shapes):
        arrived = row * _unique_rows(moe, shapes)
        return Scratch(forward=arrived + received, backward=2 * residual + arrived + received)
    return Scratch(forward=sent + 2 * received, backward=2 * residual + sent + 2 * received)


def dispatched_tensors(moe: MixtureOfExperts, rows: int, shapes: Shapes) -> tuple[int, ...]:
    """Bytes of what dispatch leaves alive until the layer ends, tensor by tensor: what was sent and what arrived."""
    row = shapes.element * shapes.hidden
    if _gathers(shapes):
        return ()
    if _sends_once(shapes):
        return (row * _unique_rows(moe, shapes),)
    return (row * sent_rows(moe, shapes), *((row * rows,) if shapes.expert > 1 else ()))


def combined_tensors(moe: MixtureOfExperts, rows: int, shapes: Shapes) -> tuple[int, ...]:
    """The same of combine, beside the experts' output: its copy in the order of arrival, a shared expert's output."""
    several = moe.experts // shapes.expert > 1
    copy = (shapes.element * shapes.hidden * rows,) if several and not _gathers(shapes) else ()
    return (*copy, *((shapes.residual_bytes,) if moe.shared_ffn else ()))


def combine_scratch(moe: MixtureOfExperts, rows: int, shapes: Shapes) -> Scratch:
    """While outputs travel back: the highest moment of most jobs with experts.

    The output of the layer is counted in every case; with a shared expert, its output waits too.
    """
    residual = shapes.residual_bytes
    outputs = residual * (2 if moe.shared_ffn else 1)
    if _gathers(shapes):
        forward, backward = _gathered_combine(moe, rows, shapes)
    elif _sends_once(shapes):
        row = shapes.element * shapes.hidden
        arrived = row * _unique_rows(moe, shapes)
        forward, backward = 2 * arrived + row * rows, arrived + row * rows
    else:
        forward, backward = _exchanged_combine(moe, rows, shapes)
    return Scratch(forward=forward + outputs, backward=2 * residual + backward)


def _exchanged_combine(moe: MixtureOfExperts, rows: int, shapes: Shapes) -> tuple[int, int]:
    """All-to-all: without expert parallelism, expert tensor parallelism or several experts, copies fall away."""
    row = shapes.element * shapes.hidden
    several = moe.experts // shapes.expert > 1
    travels, divided = shapes.expert > 1, shapes.expert_tensor > 1
    sent, experts = row * sent_rows(moe, shapes), row * rows
    arrived = experts // shapes.expert_tensor
    before = sent + (arrived if travels and (several or divided) else 0)
    sorted_ = experts if several else 0
    scattered = arrived if divided else 0
    leaving = arrived if divided else experts
    back = sent if travels else 0
    return before + max(experts + sorted_, (experts if several else 0) + scattered, leaving + back), (
        back + experts + sorted_
    )


def _gathered_combine(moe: MixtureOfExperts, rows: int, shapes: Shapes) -> tuple[int, int]:
    """All-gather: outputs are added up for all gathered tokens, in the probabilities' type where they are scattered.

    Experts that run one after the other have their outputs joined by a copy first (Megatron-LM `SequentialMLP`).
    """
    row = shapes.element * shapes.hidden
    experts, whole = row * rows, row * gathered_rows(shapes)
    alone = shapes.expert * shapes.expert_tensor == 1
    widened = FP32_BYTES * shapes.hidden * gathered_rows(shapes)
    cast = widened if shapes.software.router_in_fp32 and not alone else 0
    sequential = shapes.software.expert_backend is ExpertBackend.SEQUENTIAL
    joined = experts if sequential and moe.experts // shapes.expert > 1 else 0
    return max(whole + max(experts, cast), experts + joined), whole + cast + experts
