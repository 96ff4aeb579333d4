"""An operation of a layer: its work, its weights and what it keeps for backward."""

from dataclasses import dataclass
from enum import Enum, auto
from math import prod

from projector.operations.work import Group, Work


class Split(Enum):
    """How tensor parallelism divides a linear layer."""

    COLUMN = auto()
    """Outputs divided."""
    ROW = auto()
    """Inputs divided."""
    NONE = auto()
    """Every rank holds the whole weight."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Weight:
    """A parameter tensor, as one device holds it before data-parallel sharding."""

    name: str
    """Name within its layer, such as `linear_qkv.weight`."""
    shape: tuple[int, ...]
    """Shape on this device, with vocabulary padding, divided by (expert) tensor parallelism."""
    full_elements: int
    """Elements of the whole model's tensor without padding or division."""
    copies: int = 1
    """Tensors of this shape on the device, such as local experts."""
    full_copies: int = 1
    """Tensors of this kind in the whole model, such as all experts."""
    padding_elements: int = 0
    """Elements that vocabulary padding adds to the whole model's tensor."""
    expert: bool = False
    """Belongs to routed experts: replicated over the expert-data group instead of the data group."""
    active_copies: int = 1
    """Of `full_copies`, how many a token passes (top-k for experts); 0 for tables that are only looked up."""
    trainable: bool = True
    """A parameter; False for state that is stored and not learnt, such as a router's balance bias."""
    frozen: bool = False
    """A parameter that the job does not train: it has neither gradient nor optimizer state."""
    shared: bool = False
    """A second use of a tensor that another operation owns (tied embeddings on the same stage): not counted."""

    @property
    def elements(self) -> int:
        """Elements on this device."""
        return prod(self.shape) * self.copies


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedTensor:
    """An activation kept from forward until the same operation's backward."""

    name: str
    """What it is, such as `input` or `log_sum_exp`. Tensors that two operations share are listed by one of them."""
    size_bytes: int
    """Bytes on one device for one micro batch."""
    checkpoint: bool = False
    """It is what a recomputed module restarts from, so it stays when the module is recomputed."""
    only_for_weights: bool = False
    """Weight gradients alone read it: where the weights are frozen it is not kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LinearShape:
    """A linear layer as one device sees it: what adapters beside it need to know."""

    rows: int
    """Rows that it multiplies."""
    inputs: int
    """Input columns on this device."""
    outputs: int
    """Output columns on this device."""
    split: Split
    """How tensor parallelism divides it."""
    degree: int
    """Devices that it is divided over; 1 where every device holds all of it."""
    group: Group = Group.TENSOR
    """Their process group; the one of experts where it belongs to routed experts."""
    expert_ranks: int = 1
    """Expert-parallel ranks, each with other experts."""
    parts: tuple[tuple[str, int], ...] = ()
    """Names and output columns of the layers that are packed into it, such as query, key and value."""
    input_kept: bool = False
    """Another operation keeps its 16-bit input in any case, whether the weight is trained or not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """One step of a layer. Its place in the layer's list is its place in time; backward runs the list in reverse."""

    name: str
    """Name within the layer, such as `self_attention.linear_qkv`."""
    component: str
    """Row of the component tree it belongs to: embedding, layer_norm, self_attention, mlp, router, experts,
    shared_expert, final_norm, output_layer, loss, multi_token_prediction, adapters."""
    forward: tuple[Work, ...] = ()
    """Work of the forward pass, in order."""
    backward_input: tuple[Work, ...] = ()
    """Work of the backward pass towards the input, in order."""
    backward_weight: tuple[Work, ...] = ()
    """Work of the backward pass towards the weights; schedules may delay it."""
    weights: tuple[Weight, ...] = ()
    """Parameters used."""
    saves: tuple[SavedTensor, ...] = ()
    """What stays until this operation's backward."""
    scratch_forward_bytes: int = 0
    """Bytes alive only while the forward pass of this operation runs, its output included."""
    scratch_tensors: tuple[int, ...] = ()
    """Bytes of tensors of its forward pass, one by one, that nobody keeps and that live on until its half of the layer
    ends; they take part in the replay of the allocator."""
    passing_forward: tuple[int, ...] = ()
    """Of `scratch_forward_bytes`, tensors that end with the operation, one by one, for the replay of the allocator."""
    passing_backward: tuple[int, ...] = ()
    """The same of `scratch_backward_bytes`."""
    scratch_backward_bytes: int = 0
    """Bytes alive only while its backward pass runs, incoming and outgoing gradients included."""
    weight_scratch_bytes: int = 0
    """Of `scratch_backward_bytes`, what only the weight gradient needs."""
    product_bytes: tuple[int, ...] = ()
    """Outputs of its dense matrix products, one by one as a framework without fused projections runs them. The router's
    is none: checkpointing by operation always computes it again."""
    costly_bytes: int = 0
    """Outputs that checkpointing by operation keeps beside every second product: those of attention and of
    reduce-scatter and all-to-all."""
    recompute_module: str | None = None
    """Megatron's name of the selective-recompute module it belongs to (core_attn, mlp, moe, moe_act, layernorm,
    mla_up_proj, shared_experts); None for none."""
    linear: LinearShape | None = None
    """Its shape where it is a linear layer."""
