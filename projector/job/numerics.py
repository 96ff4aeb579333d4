"""What is stored in which width, and what backward computes again."""

from dataclasses import dataclass
from enum import StrEnum


class RecomputeGranularity(StrEnum):
    """How much of a layer's forward pass is done again in backward."""

    NONE = "none"
    FULL = "full"
    """Whole layers: only their input is kept."""
    SELECTIVE = "selective"
    """The named modules of every layer."""
    OPERATIONS = "operations"
    """Every layer, except for the outputs of attention, reduce-scatter, all-to-all and every second matrix product
    (TorchTitan's selective checkpointing by operation)."""


class RecomputeMethod(StrEnum):
    """Which layers full recomputation takes (Megatron-LM transformer_block.py)."""

    UNIFORM = "uniform"
    """All layers, in groups of `layers`; one input is kept per group."""
    BLOCK = "block"
    """The first `layers` of every model chunk."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recompute:
    """Activation recomputation (checkpointing)."""

    granularity: RecomputeGranularity = RecomputeGranularity.NONE
    """How much."""
    method: RecomputeMethod | None = None
    """Which layers; None with full granularity behaves as block (Primus)."""
    layers: int = 0
    """Layers per group (uniform) or per model chunk (block). 0 recomputes none with block."""
    layer_ids: tuple[int, ...] | None = None
    """Exactly these global layer indices, instead of a method."""
    modules: tuple[str, ...] = ("core_attn",)
    """Modules of selective recomputation, by Megatron's names."""
    keeps_products: bool = True
    """By operation, every second matrix product is kept; False computes all of them again."""


class LowPrecision(StrEnum):
    """Format of the linear layers' GEMM inputs."""

    FP8 = "fp8"
    """Tensor-wise or delayed scaling."""
    FP8_BLOCK = "fp8-block"
    """Block-wise scaling (DeepSeek-V3)."""
    MXFP8 = "mxfp8"
    MXFP6 = "mxfp6"
    MXFP4 = "mxfp4"
    NVFP4 = "nvfp4"

    @property
    def element_bytes(self) -> float:
        """Bytes of an element with its share of the block scales.

        The scales are fp32 per 128 elements (DeepSeek-V3 recipe), E8M0 per 32 (OCP MX 1.0), E4M3 per 16 (NVFP4).
        """
        return _ELEMENT_BYTES[self]


_ELEMENT_BYTES = {
    LowPrecision.FP8: 1.0,
    LowPrecision.FP8_BLOCK: 1.0 + 4 / 128,
    LowPrecision.MXFP8: 1.0 + 1 / 32,
    LowPrecision.MXFP6: 0.75 + 1 / 32,
    LowPrecision.MXFP4: 0.5 + 1 / 32,
    LowPrecision.NVFP4: 0.5 + 1 / 16,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Precision:
    """Element widths of everything that is stored; Megatron's defaults for bf16 training."""

    weight_bytes: int = 2
    """Bytes of a model weight on the device."""
    gradient_bytes: int = 4
    """Bytes of a main gradient (Megatron accumulates in fp32; 2 with bf16 reduction)."""
    local_gradient_bytes: int = 0
    """Bytes of a gradient's element that a rank keeps whole, beside its main gradients, until ranks sum it: between the
    micro batches of an iteration, or always where main gradients are whole too; 0 where nothing waits for the sum."""
    reduction_bytes: int | None = None
    """Bytes of a gradient's element while full sharding sums it over ranks; None for those of a main gradient."""
    master_weight_bytes: int = 4
    """Bytes of the optimizer's copy of a weight; 0 when it has none of its own."""
    first_moment_bytes: float = 4
    """Bytes of Adam's first moment, or of SGD's and Muon's momentum."""
    second_moment_bytes: float = 4
    """Bytes of Adam's second moment; 0 for optimizers without one."""
    activation_bytes: int = 2
    """Bytes of an activation element outside low-precision copies."""
    low_precision: LowPrecision | None = None
    """Format of the linear layers' GEMMs; None for the activation's own."""
    weight_transposes: bool = True
    """Low-precision weights are kept in both orders, so that no pass has to transpose them."""
    delayed_scaling: bool = False
    """Scales of tensor-wise fp8 follow the maxima of earlier iterations; other formats never do so."""
    low_precision_weights: bool = False
    """Weights are kept in the low-precision format (fp8 primary weights)."""

    @property
    def exchanges_scales(self) -> bool:
        """Ranks agree on largest values after every pass, from which delayed scaling takes its next scales."""
        return self.delayed_scaling and self.low_precision is LowPrecision.FP8

    @property
    def gathered_bytes(self) -> int:
        """Bytes of a weight, and of its gradient, while full sharding holds it whole: FSDP2 casts before it gathers.

        Source: PyTorch torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py; Megatron-FSDP keeps bf16 weights.
        """
        return min(self.weight_bytes, self.activation_bytes)

    @property
    def reduced_bytes(self) -> int:
        """Bytes of a gradient's element on its way between ranks under full sharding."""
        return self.gradient_bytes if self.reduction_bytes is None else self.reduction_bytes

    @property
    def optimizer_bytes(self) -> float:
        """Bytes of master weight and moments per parameter."""
        return self.master_weight_bytes + self.first_moment_bytes + self.second_moment_bytes
