"""Low-rank adapters (LoRA, arXiv 2106.09685): what is trained where the model's own weights are frozen."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class LowRankAdapters:
    """Two small matrices beside each target, inputs x rank and rank x outputs; every weight of the model is frozen.

    Names are Megatron's, as Megatron-Bridge 2afd2d34 (peft/lora.py, peft/canonical_lora.py) and NeMo 2 match them.
    """

    rank: int
    """Width between the two matrices."""
    targets: tuple[str, ...] = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")
    """Linear layers that have an adapter, wherever they are in a layer; `linear_q`, `linear_k`, `linear_v`,
    `linear_fc1_gate` and `linear_fc1_up` mean a share of a packed layer, with an adapter of its own."""
    dropout: float = 0.0
    """Probability; above 0 masks are kept."""
    dropout_on_input: bool = True
    """Dropout acts on the input of the first matrix, else on the output of the second."""
    all_to_all: bool = False
    """Row-parallel targets exchange their adapter's result by all-to-all under sequence parallelism, instead of
    gathering it whole (Megatron-Bridge `a2a_experimental`)."""
