"""Per-device sizes that every layer of a job shares, in one small value.

Layers are described from a `Shapes` and their own architecture only, so equal layers are described once.
"""

from dataclasses import dataclass

from projector.job import (
    Dialect,
    LowPrecision,
    LowRankAdapters,
    ModuleForms,
    NormKind,
    PositionKind,
    Software,
    TrainingJob,
)
from projector.parallelism import Layout


@dataclass(frozen=True, kw_only=True, slots=True)
class Shapes:
    """Sizes on one device for one micro batch."""

    hidden: int
    """Width of the residual stream."""
    streams: int
    """Residual streams; more than one under hyper-connections."""
    batch: int
    """Sequences of a micro batch."""
    sequence: int
    """Tokens of a whole sequence."""
    tokens: int
    """Tokens that a device computes attention and MLP for: sequence x micro batch / context parallel."""
    local: int
    """Tokens of which a device keeps the residual stream: `tokens` / tensor parallel with sequence parallelism."""
    tensor: int
    """Tensor-parallel degree."""
    sequence_parallel: bool
    """Residual stream divided over tensor-parallel ranks."""
    context: int
    """Context-parallel degree."""
    context_exchange: int
    """Context-parallel ranks that exchange heads: all under a2a, those of a group under a2a+p2p, else 1."""
    context_communication: str
    """How context parallelism exchanges keys and values."""
    expert: int
    """Expert-parallel degree."""
    expert_tensor: int
    """Tensor-parallel degree inside experts."""
    element: int
    """Bytes of an activation element."""
    norm: NormKind
    """Kind of every norm."""
    position: PositionKind
    """How positions enter."""
    rotary_share: float
    """Share of a head's width that rotary embedding turns."""
    max_position: int
    """Rows of a learned position table."""
    vocabulary: int
    """Token table without padding."""
    padded_vocabulary: int
    """Token table with padding, all tensor-parallel ranks together."""
    tied_embeddings: bool
    """The output layer reuses the token table."""
    low_precision: LowPrecision | None
    """Format of the linear layers' GEMMs."""
    delayed_scaling: bool
    """The scales of that format follow earlier iterations."""
    software: Software
    """Framework choices."""
    modules: ModuleForms | None
    """How the classes of a model's modules are written; None where the framework has layers of its own."""
    adapters: LowRankAdapters | None
    """What is trained beside frozen weights; None where the weights are trained."""
    packed: int | None
    """Tokens inside which attention stays; None for whole sequences."""
    routing_factor: float
    """Rows that the busiest rank's experts receive over the balanced share."""

    @property
    def transformer_engine(self) -> bool:
        """Norms run fused into the linear layer behind them."""
        return self.software.dialect in (Dialect.MEGATRON_TE, Dialect.PRIMUS_TURBO)

    @property
    def eager(self) -> bool:
        """Element-wise work of a layer runs one operation after the other, each keeping what its gradient needs."""
        return self.software.dialect is Dialect.TORCHTITAN and not self.software.compiled_layers

    @property
    def column_input_tokens(self) -> int:
        """Tokens of the input that a column-parallel layer keeps for its weight gradient.

        Megatron-LM keeps a rank's own share and gathers the rest again; DTensor's linear layers keep what was gathered
        (torch/distributed/tensor/parallel/style.py `PrepareModuleInput`, `ColwiseParallel`).
        """
        return self.tokens if self.software.dialect is Dialect.TORCHTITAN else self.local

    @property
    def residual_bytes(self) -> int:
        """Bytes of one residual stream as one device keeps it: 2 l h in bf16."""
        return self.element * self.local * self.hidden

    @property
    def carried_bytes(self) -> int:
        """Bytes of all residual streams, which layers hand over to layers and stages to stages."""
        return self.streams * self.residual_bytes

    @property
    def gathered_bytes(self) -> int:
        """Bytes of the residual stream of all tensor-parallel ranks: 2 S h in bf16."""
        return self.element * self.tokens * self.hidden

    @property
    def linear_input_bytes(self) -> float:
        """Bytes of an element of a linear layer's kept input: the low-precision copy where there is one.

        Only the column-wise copy is kept (Transformer Engine 2.x `Linear`).
        """
        return self.low_precision.element_bytes if self.low_precision else float(self.element)


def padded_vocabulary(job: TrainingJob) -> int:
    """Token table padded to a multiple of `vocabulary_divisible_by` x tensor parallel (Megatron-LM tokenizer.py).

    TorchTitan pads to whole rows per rank only.
    """
    titan = job.software.dialect is Dialect.TORCHTITAN
    multiple = job.parallelism.tensor * (1 if titan else job.software.vocabulary_divisible_by)
    return -(-job.model.vocabulary // multiple) * multiple


def shapes_of(job: TrainingJob, layout: Layout, *, routing_factor: float = 1.0) -> Shapes:
    """Collect what layers need of job and layout.

    `routing_factor` is the busiest rank's share of expert rows over the balanced one; it acts on dropless routing only.
    """
    communication = job.parallelism.context_communication
    tokens = job.batch.sequence_length * job.batch.micro // layout.context
    return Shapes(
        hidden=job.model.hidden,
        streams=job.model.residual_streams,
        batch=job.batch.micro,
        sequence=job.batch.sequence_length,
        tokens=tokens,
        local=tokens // layout.tensor if layout.sequence_parallel else tokens,
        tensor=layout.tensor,
        sequence_parallel=layout.sequence_parallel,
        context=layout.context,
        context_exchange=layout.context if communication == "a2a" else layout.context_exchange,
        context_communication=communication,
        expert=layout.expert,
        expert_tensor=layout.expert_tensor,
        element=job.precision.activation_bytes,
        norm=job.model.norm,
        position=job.model.position,
        rotary_share=job.model.rotary_share,
        max_position=job.model.max_position,
        vocabulary=job.model.vocabulary,
        padded_vocabulary=padded_vocabulary(job),
        tied_embeddings=job.model.tied_embeddings,
        low_precision=job.precision.low_precision,
        delayed_scaling=job.precision.exchanges_scales,
        software=job.software,
        modules=job.modules,
        adapters=job.adapters,
        packed=job.batch.packed_length if job.software.flash_attention else None,
        routing_factor=1.0 if job.software.force_load_balancing else routing_factor,
    )
