"""Saved activations that wait for backward in host memory."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ActivationOffload:
    """Offloading of activations by module, as Megatron-LM's fine-grained activation offloading does it."""

    modules: tuple[str, ...] = ()
    """Modules of every layer whose saved tensors go, by Megatron's names: attn_norm, qkv_linear, core_attn, attn_proj,
    mlp_norm, expert_fc1, moe_act; none keep everything on the device."""
    share: float = 1.0
    """Share of them that goes, 0-1."""
    least_elements: int = 2**20
    """Smaller tensors stay on the device."""
