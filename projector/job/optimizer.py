"""The optimizer: what it keeps of which parameters, what its step holds for a moment, and where its state lives."""

from dataclasses import dataclass
from enum import StrEnum


class OptimizerKind(StrEnum):
    """Update rule; decides state and the cost of a step."""

    ADAM = "adam"
    SGD = "sgd"
    MUON = "muon"


class ParameterClass(StrEnum):
    """Parameters that an optimizer treats alike."""

    MATRIX = "matrix"
    """Weights of the layers' linear operations, experts' and routers' too."""
    EMBEDDING = "embedding"
    """Token and position tables, also where the token table serves as output layer."""
    OUTPUT = "output"
    """The output layer's own weight."""
    VECTOR = "vector"
    """Norms, biases and all else with one dimension."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Optimizer:
    """The optimizer and where its state lives. Widths of its moments are the job's `Precision`."""

    kind: OptimizerKind = OptimizerKind.ADAM
    """Update rule."""
    exempt_classes: tuple[ParameterClass, ...] = ()
    """Parameters that the rule does not take and that keep moments of the exempt widths instead: those that Muon leaves
    to Adam, or embeddings whose moments bitsandbytes does not quantise."""
    exempt_first_bytes: float = 4.0
    """Bytes of their first moment's elements."""
    exempt_second_bytes: float = 4.0
    """Bytes of their second moment's elements."""
    block_elements: int = 0
    """Elements of a quantised moment that share one fp32 scale; 0 where moments are not quantised."""
    quantized_from_elements: int = 0
    """Smaller tensors are exempt where moments are quantised."""
    factored: bool = False
    """Of a matrix the second moment is kept as one fp32 sum a row and one a column (Adafactor, arXiv 1804.04235)."""
    whole_tensors: bool = False
    """State is divided by whole tensors, so that the fullest rank may hold that of the largest one."""
    step_bytes: float = 0.0
    """Bytes per parameter of a rank's share that a step makes and gives up again, such as fp32 copies of gradients."""
    step_elements: int = 0
    """Parameters that a step takes at a time; 0 for all of a rank's share."""
    moment_copy_bytes: float = 0.0
    """Bytes per parameter of fp32 copies of narrow moments that a fused step makes; dense weights and experts, which
    have an optimizer each, step one after the other."""
    offload_fraction: float = 0.0
    """Share of the optimizer state that lives in host memory, 0-1."""
    offload_shards: bool = False
    """Sharded weights and gradients live in host memory too, as under FSDP2's CPU offload policy."""
    offload_gradients: bool = False
    """Sharded gradients live in host memory with the state, as under DeepSpeed's offloading."""
    state_from_start: bool = False
    """Moments exist before the first step (DeepSpeed) and do not appear in it (PyTorch, Megatron-LM)."""
    master_in_state: bool = False
    """Master weights are part of the state and appear with the moments (Megatron-LM's precision-aware optimizer)."""
    muon_newton_schulz_steps: int = 5
    """Newton-Schulz iterations of a Muon step."""
    newton_schulz_bytes: int = 4
    """Bytes of an element in those iterations: Megatron-LM's run in fp32, torch's in bf16."""
