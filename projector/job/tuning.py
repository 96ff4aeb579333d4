"""Figures that a person states in place of those of the cost models.

Each has its counterpart among the environment variables of Primus's projection, whose defaults it names
(AMD-AGI/Primus primus/core/projection/module_profilers/{optimizer,moe_mlp,attention}.py). What is None stays as the
cost models have it.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """Stated figures. Bandwidth is the peak of the GPU's memory wherever a share of it is meant."""

    optimizer_bandwidth_share: float | None = None
    """Share of bandwidth that the optimizer step reaches (Primus: 0.21)."""
    newton_schulz_steps: int | None = None
    """Iterations of Muon."""
    newton_schulz_seconds: float | None = None
    """Time of all of Muon's iterations in a step, whatever the matrices."""
    permutation_efficiency: float | None = None
    """Rate of the permutation of tokens to experts and back over that of other element-wise work (Primus: 1)."""
    permutation_launch_seconds: float | None = None
    """Time between the kernels of a permutation (Primus: 2.8e-6)."""
    permutation_bandwidth_share: float | None = None
    """Share of bandwidth of a permutation that moves each copy of a token once, on the way to the experts forward and
    back from them backward, and nothing else (Primus's older model: 0.057)."""
    expert_cast_efficiency: float | None = None
    """Rate of casts in front of experts' low-precision products over that of other element-wise work (Primus: 1)."""
    expert_launch_seconds: float | None = None
    """Time between the element-wise kernels of experts (Primus: 0.75e-6)."""
    expert_forward_seconds: float | None = None
    """Time that each expert of a GPU adds to a forward pass in place of those casts, on a GPU with 8 TB/s; more on one
    with less (Primus's older model: 0.19e-3)."""
    expert_backward_seconds: float | None = None
    """The same in a backward pass (Primus's older model: 0.66e-3)."""
    attention_bandwidth_share: float | None = None
    """Share of bandwidth of the element-wise work between projections of compressed attention, and of hyper-connections
    (Primus: 0.9)."""
    attention_forward_passes: float | None = None
    """Passes over the residual stream that stand for that work in a forward pass of compressed attention, beside three
    over its heads (Primus's older model: 8)."""
    attention_backward_passes: float | None = None
    """The same in a backward pass, beside four over its heads (Primus's older model: 30)."""
    attention_pass_bandwidth_share: float | None = None
    """Share of bandwidth of these passes (Primus's older model: 0.15)."""
    sliding_window_share: float | None = None
    """Share of the products with a sliding window's keys that compressed attention computes: 1 for all of them, as the
    cost model has it; Primus's default counts half."""
    key_scatter_bandwidth_share: float | None = None
    """Share of bandwidth at which the gradients of chosen keys are added up (Primus: 0.6)."""
    sampled_layers: int | None = None
    """Layers in front whose attention stands for that of all layers, in turn."""
    sampled_ratios: tuple[int, ...] = ()
    """Their compression ratios, where they are to be others than the model's."""
