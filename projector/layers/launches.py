"""Kernels, Python and readbacks of routers and dispatchers of experts, which move too little for bytes to decide.

Launches were counted with a dispatch counter on torch 2.x modules of Megatron-LM's form (core 0.9 to 0.12; the fused
ones read in core 0.16 and Transformer Engine 2.x); functions, autograd functions and device-to-host copies among them,
are priors.
"""

from collections.abc import Mapping
from typing import NamedTuple

from projector.catalog import host_software
from projector.job import ExpertBackend, ExpertDispatch, MixtureOfExperts, Software
from projector.operations import ElementWise, Work

COUNT_BYTES = 8
"""An expert's number of rows, an integer of 64 bits."""


class RouterLaunches(NamedTuple):
    """Of a router, its matrix products included."""

    forward: int
    """Kernels of the forward pass."""
    backward: int
    """Kernels of the backward pass."""
    functions: int = 3
    """Python around them, in either pass."""


_PLAIN = RouterLaunches(25, 12)
"""Softmax, choice and auxiliary loss."""
_GROUPED = (15, 6)
"""More for a choice of groups first, with an auxiliary loss of each sequence (DeepSeek-V2)."""
_BALANCED = (12, 12)
"""More for a sigmoid and a balance bias (DeepSeek-V3)."""
_FUSED = RouterLaunches(20, 11)
"""31 in all with the fused kernels of Transformer Engine (NVIDIA/Megatron-LM docs/discussions/
deepseek-v3-gb200-optimization), divided like the 82 of DeepSeek-V3's."""


class DispatcherLaunches(NamedTuple):
    """Of dispatch and combine together, collectives apart."""

    forward: tuple[int, int]
    """Kernels and functions of the forward pass."""
    backward: tuple[int, int]
    """The same of the backward pass."""
    readbacks: int
    """Times that the host waits for counts of tokens before it can send them (Megatron-LM token_dispatcher.py)."""


_FUSED_DISPATCHERS: Mapping[ExpertDispatch, DispatcherLaunches] = {
    ExpertDispatch.ALL_TO_ALL: DispatcherLaunches((17, 18), (5, 10), 1),
    ExpertDispatch.DEEPEP: DispatcherLaunches((18, 11), (7, 9), 1),
    ExpertDispatch.HYBRIDEP: DispatcherLaunches((11, 11), (4, 7), 0),
    ExpertDispatch.ALL_GATHER: DispatcherLaunches((23, 5), (14, 4), 2),
}
_UNFUSED_DISPATCHERS: Mapping[ExpertDispatch, DispatcherLaunches] = {
    **_FUSED_DISPATCHERS,
    ExpertDispatch.ALL_TO_ALL: DispatcherLaunches((27, 30), (13, 16), 3),
    ExpertDispatch.DEEPEP: DispatcherLaunches((52, 9), (15, 8), 5),
}
"""Those without `permute_fusion`; HybridEP permutes itself."""


def router_launches(moe: MixtureOfExperts, software: Software) -> RouterLaunches:
    """Launches of a router."""
    if software.router_fusion:
        return _FUSED
    more = [_GROUPED] * (moe.expert_groups > 1) + [_BALANCED] * moe.router_balance_bias
    forward, backward = (sum(each[at] for each in more) for at in (0, 1))
    return RouterLaunches(_PLAIN.forward + forward, _PLAIN.backward + backward)


def dispatcher_launches(software: Software) -> DispatcherLaunches:
    """Launches of a dispatcher."""
    table = _FUSED_DISPATCHERS if software.permute_fusion else _UNFUSED_DISPATCHERS
    return table[software.expert_dispatch]


def merges_casts(software: Software) -> bool:
    """Whether the experts' inputs are quantised together, as Transformer Engine does from 2.8 on."""
    return host_software().reaches(software.transformer_engine, "2.8")


def counts_of_rows(local: int, software: Software) -> tuple[Work, ...]:
    """The readback of each expert's number of rows, which a loop over experts needs and HybridEP leaves on the device.

    Other dispatchers bring it with their own (Megatron-LM experts.py `tokens_per_expert`; NVIDIA-NeMo/Megatron-Bridge
    perf_recipes/deepseek, on `moe_use_grouped_tensor`: the grouped path syncs it to the host in every layer).
    """
    loops = software.expert_backend is not ExpertBackend.GROUPED_FUSED
    if software.pads_experts or not loops or software.expert_dispatch is not ExpertDispatch.HYBRIDEP:
        return ()
    size = COUNT_BYTES * local
    return (ElementWise(name="expert_counts", bytes_read=size, bytes_written=size, readbacks=1),)
