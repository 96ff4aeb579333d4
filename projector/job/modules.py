"""How the modules of a model's class are written, where that decides what autograd keeps of a layer."""

from dataclasses import dataclass
from enum import StrEnum


class NormForm(StrEnum):
    """How the class of a family writes its RMS norm."""

    ROUNDED = "rounded"
    """The normalised input is rounded to the activation's format before the weight multiplies it."""
    WIDE = "wide"
    """The weight multiplies the normalised input in fp32."""
    SHIFTED = "shifted"
    """The same with one plus the weight, which is an fp32 tensor of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleForms:
    """The modules of a family in Hugging Face transformers; every field is as in its Llama unless a family differs."""

    norm: NormForm = NormForm.ROUNDED
    """How its RMS norms are written."""
    packed_values: bool = False
    """Values are a view of the packed projection of queries, keys and values, all of which stays with them."""
    joined_heads: bool = False
    """Queries are joined from a rotated and an unrotated part, so that heads come before tokens in memory; a flash
    kernel's output does too, and is copied for the projection behind it."""
    parallel_blocks: bool = False
    """Attention and feed-forward block read the same input."""
    narrow_scores: bool = False
    """Without a fused kernel, softmax runs in the activation's format instead of fp32."""
    capped_scores: bool = False
    """Scores pass a hyperbolic tangent where no fused kernel takes them."""
    masked_windows: bool = True
    """A window narrower than the sequence is a mask tensor, beside which torch's kernel takes no grouped keys."""
    dense_tensors: int = 1
    """Tensors as wide as the block that an activation without a gate keeps, beside its product."""
    expert_tensors: int = 1
    """Tensors as wide as an expert that its gated activation keeps, beside the packed input and the product."""
    router_token_bytes: int = 0
    """Bytes that a router and the routing of tokens to experts keep per token, beside matrices as wide as the model."""
    router_expert_bytes: int = 0
    """The same per token and expert."""
    router_choice_bytes: int = 0
    """The same per token and chosen expert."""
    wide_router_input: bool = False
    """The router multiplies an fp32 copy of its input, which is kept."""
    rotary_width: int = 0
    """Columns of the cosine and of the sine table that all layers share; 0 without rotary embedding."""
    wide_rotary: bool = False
    """These tables are fp32 whatever the activations are."""
    copied_rotary: bool = False
    """Every layer makes a copy of them in the order of its heads' columns."""
