"""The model as its weights define it: no padding, no parallelism."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from projector.identity import remembered


class NormKind(StrEnum):
    """Normalisation in front of attention and MLP."""

    RMS = "rms"
    """One weight vector."""
    LAYER = "layer"
    """Weight and bias vectors."""


class PositionKind(StrEnum):
    """How token positions enter the model."""

    ROTARY = "rotary"
    LEARNED = "learned"
    """A table of max_position x hidden parameters."""
    NONE = "none"
    """No position parameters and no rotation (ALiBi counts here)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention:
    """Multi-head, grouped-query or multi-query attention with full heads of keys and values."""

    heads: int
    """Query heads of the whole model, before tensor parallelism."""
    key_value_heads: int
    """Key and value heads; equal to `heads` for plain multi-head attention."""
    head_dim: int
    """Width of a query, key or value head."""
    query_key_norm: bool = False
    """A norm of width head_dim on queries and one on keys."""
    query_key_norm_full: bool = False
    """The query and key norms span all heads (heads x head_dim) instead of one head, as in MiniMax-M2 and OLMo-2."""
    bias_qkv: bool = False
    """Bias on the query, key and value projections."""
    bias_output: bool = False
    """Bias on the output projection."""
    output_gate: bool = False
    """A gate of the query width on the attention output, as in Qwen3-Next; doubles the query projection."""
    window: int | None = None
    """Sliding window in tokens; None attends to the whole causal past."""
    chunk: int | None = None
    """Attention restricted to chunks of this many tokens, as in Llama 4; None for none."""
    sinks: bool = False
    """One learned sink logit a head, as in GPT-OSS."""
    query_lora_rank: int | None = None
    """Rank of a latent from which queries are projected, as in DeepSeek-V4; None projects them directly."""
    shared_key_value: bool = False
    """Keys, which have a norm of their own, serve as values too, where queries come from a latent."""
    output_lora_rank: int | None = None
    """Columns to which each group of heads is projected on the way out, as in DeepSeek-V4; None projects directly."""
    output_groups: int = 1
    """Groups of heads on the way out."""
    compression_ratio: int | None = None
    """Tokens for which one more key stands, which queries see beside their window, as in DeepSeek-V4; None for none."""
    index_heads: int = 0
    """Heads of an indexer that chooses compressed keys for each query; 0 where queries see all of them."""
    index_head_dim: int = 0
    """Width of such a head."""
    index_top_k: int = 0
    """Compressed keys that it chooses."""
    index_query_rank: int | None = None
    """Rank of a latent from which the indexer's queries are projected; None takes that of attention's queries."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (MLA) of DeepSeek-V2: keys and values come from a low-rank latent."""

    heads: int
    """Attention heads of the whole model."""
    query_lora_rank: int | None
    """Rank of the query latent; None projects queries directly."""
    key_value_lora_rank: int
    """Rank of the shared key/value latent."""
    query_key_nope_dim: int
    """Width of a head's position-free query and key part."""
    query_key_rope_dim: int
    """Width of the rotary query part of a head, and of the one rotary key shared by all heads."""
    value_dim: int
    """Width of a value head."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UnmodelledMixer:
    """A sequence mixer that the engine does not model (Mamba, gated delta net, short convolution, ...)."""

    name: str
    """What it is called, for the report."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DenseMLP:
    """A feed-forward block that every token passes."""

    ffn: int
    """Intermediate width of the whole model."""
    gated: bool = True
    """Gate and up projection (SwiGLU, GeGLU: three matrices) or one up projection (two matrices)."""
    bias: bool = False
    """Bias on its linear layers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MixtureOfExperts:
    """A feed-forward block of which each token passes `top_k` experts and the shared expert, if any."""

    experts: int
    """Routed experts of the whole layer."""
    top_k: int
    """Routed experts a token visits."""
    expert_ffn: int
    """Intermediate width of one routed expert."""
    shared_ffn: int = 0
    """Intermediate width of all shared experts together; 0 for none."""
    shared_gate: bool = False
    """A sigmoid gate of width hidden on the shared expert, as in Qwen-MoE."""
    gated: bool = True
    """Gate and up projection in experts."""
    bias: bool = False
    """Bias on the experts' linear layers, as in GPT-OSS."""
    router_bias: bool = False
    """Trained bias on the router's linear layer, as in GPT-OSS."""
    expert_groups: int = 1
    """Groups that the router divides the experts into; 1 where it chooses among all experts at once."""
    chosen_groups: int = 1
    """Groups that the experts of a token are chosen from."""
    router_balance_bias: bool = False
    """Score-correction bias per expert (DeepSeek-V3): stored state, not a trained parameter of the optimizer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UnmodelledMLP:
    """A feed-forward block that the engine does not model."""

    name: str
    """What it is called, for the report."""


Mixer: TypeAlias = Attention | LatentAttention | UnmodelledMixer | None
FeedForward: TypeAlias = DenseMLP | MixtureOfExperts | UnmodelledMLP | None


@dataclass(frozen=True, kw_only=True, slots=True)
class DecoderLayer:
    """One decoder layer: norm, mixer, norm, feed-forward, each with its residual. Equal layers are equal values."""

    mixer: Mixer
    """The sequence mixer; None in layers that hold only a feed-forward block."""
    feed_forward: FeedForward
    """The feed-forward block; None in layers that hold only a mixer."""
    post_norms: bool = False
    """A second norm behind mixer and feed-forward, as in Gemma 2 and 3 and GLM-4."""


@remembered
def runs_of(layers: tuple[DecoderLayer, ...]) -> tuple[tuple[int, DecoderLayer], ...]:
    """Layers of which the same ones follow one another, in short: each with the number of the first behind them."""
    runs: list[tuple[int, DecoderLayer]] = []
    for index, layer in enumerate(layers):
        if runs and runs[-1][1] is layer:
            runs.pop()
        runs.append((index + 1, layer))
    return tuple(runs)


@remembered
def _distinct(layers: tuple[DecoderLayer, ...]) -> tuple[DecoderLayer, ...]:
    # By identity first: to hash a layer takes longer than all else.
    return tuple(dict.fromkeys({id(layer): layer for _, layer in runs_of(layers)}.values()))


@remembered
def _expert_blocks(layers: tuple[DecoderLayer, ...]) -> tuple[MixtureOfExperts, ...]:
    blocks = dict.fromkeys(layer.feed_forward for layer in _distinct(layers))
    return tuple(block for block in blocks if isinstance(block, MixtureOfExperts))


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelArchitecture:
    """A decoder-only transformer, as its weights define it: no padding, no parallelism."""

    name: str
    """Name for reports, such as `llama3.1-70b`."""
    hidden: int
    """Width of the residual stream."""
    layers: tuple[DecoderLayer, ...]
    """The decoder layers in order, without multi-token-prediction layers."""
    vocabulary: int
    """Entries of the token table that the model or tokenizer defines, without padding."""
    tied_embeddings: bool = False
    """The output layer reuses the token table."""
    norm: NormKind = NormKind.RMS
    """Kind of every norm."""
    position: PositionKind = PositionKind.ROTARY
    """How positions enter."""
    rotary_share: float = 1.0
    """Share of a head's width that rotary embedding turns."""
    max_position: int = 0
    """Rows of a learned position table; unused otherwise."""
    multi_token_prediction_layers: int = 0
    """DeepSeek-V3's extra prediction modules, each with a copy of the last layer's kind (arXiv 2412.19437, 2.2)."""
    residual_streams: int = 1
    """Streams of the residual that hyper-connections mix around every block, as in DeepSeek-V4 (`hc_mult`)."""
    leaves_out: tuple[str, ...] = ()
    """Parts of the real model, beside its layers' blocks, that this description lacks, such as a vision tower."""

    @property
    def distinct_layers(self) -> tuple[DecoderLayer, ...]:
        """Each kind of layer once, in the order of the first of each."""
        return _distinct(self.layers)

    @property
    def expert_blocks(self) -> tuple[MixtureOfExperts, ...]:
        """The distinct blocks that route tokens to experts; empty for a dense model."""
        return _expert_blocks(self.layers)
