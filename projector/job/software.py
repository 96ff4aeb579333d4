"""Framework choices that change memory or time and not the mathematics."""

from dataclasses import dataclass
from enum import StrEnum


class CrossEntropy(StrEnum):
    """How the loss is computed; decides what logits cost in memory."""

    UNFUSED = "unfused"
    """Vocabulary-parallel cross entropy in fp32 beside the bf16 logits."""
    NATIVE_FUSED = "native-fused"
    """Megatron's torch-compiled fusion."""
    TRANSFORMER_ENGINE = "te"
    """Transformer Engine's Triton kernel; works in place on the logits."""
    LINEAR_FUSED = "linear"
    """Fused with the output layer: logits are never whole."""


class Dialect(StrEnum):
    """The framework whose layers run; decides which tensors are kept and how many kernels start."""

    MEGATRON_TE = "megatron-te"
    """Megatron-LM with Transformer Engine layers."""
    MEGATRON_LOCAL = "megatron-local"
    """Megatron-LM with its own layers."""
    PRIMUS_TURBO = "primus-turbo"
    """Megatron-LM with Transformer Engine and Primus-Turbo kernels."""
    TORCHTITAN = "torchtitan"


class AttentionBackend(StrEnum):
    """Kernel family of flash attention; families keep different copies for backward."""

    CUDNN = "cudnn"
    """NVIDIA cuDNN fused attention."""
    FLASH = "flash"
    """FlashAttention 2 and AMD's Composable Kernel or AOTriton: keeps a copy of the output when the layout differs."""
    TRITON = "triton"
    """Triton kernels of FlashAttention 1 with a bias on the scores (llm-foundry `attn_impl: triton`, ALiBi)."""


class ExpertDispatch(StrEnum):
    """How tokens travel to their experts."""

    ALL_TO_ALL = "alltoall"
    ALL_GATHER = "allgather"
    DEEPEP = "deepep"
    HYBRIDEP = "hybridep"
    """DeepEP's branch for the large NVLink domains of GB200; it never asks the host for the number of rows."""

    @property
    def sends_once(self) -> bool:
        """A token travels once to each device that needs it, and is copied there."""
        return self in (ExpertDispatch.DEEPEP, ExpertDispatch.HYBRIDEP)


class IndexerTraining(StrEnum):
    """What becomes of the weights of an indexer, whose choice of keys passes no gradient on."""

    IDLE = "idle"
    """They are parameters whose gradient is zero."""
    FROZEN = "frozen"
    """They are not trained: no gradient, no state of the optimizer."""
    TRAINED = "trained"
    """They learn from a loss of their own, the divergence of their scores from attention's (DeepSeek-V3.2, 2.1)."""


class ExpertBackend(StrEnum):
    """How the experts' GEMMs are started."""

    SEQUENTIAL = "sequential"
    """One linear layer after the other."""
    GROUPED_LOOP = "grouped-loop"
    """One GEMM call per expert from a loop (Transformer Engine GroupedLinear, hipBLASLt, legacy grouped GEMM)."""
    GROUPED_FUSED = "grouped-fused"
    """One kernel for all experts (Primus-Turbo, CUTLASS grouped GEMM)."""


class GraphCapture(StrEnum):
    """Who captures `graphed_modules` in CUDA (HIP) graphs, and how much one holds (Megatron-LM `cuda_graph_impl`)."""

    TRANSFORMER_ENGINE = "transformer-engine"
    """Transformer Engine's `make_graphed_callables`: a graph for each layer, micro batch and direction."""
    LOCAL = "local"
    """Megatron-LM's own graphs of each layer."""
    FULL_ITERATION = "full-iteration"
    """One graph of all passes of an iteration, whatever `graphed_modules` names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Software:
    """Framework choices that change memory or time and not the mathematics."""

    dialect: Dialect = Dialect.MEGATRON_TE
    """Whose layers run."""
    flash_attention: bool = True
    """Scores are never stored."""
    cross_entropy: CrossEntropy = CrossEntropy.UNFUSED
    """How the loss is computed."""
    gradient_accumulation_fusion: bool = True
    """Weight-gradient GEMMs add straight into the main gradient."""
    overlap_gradient_reduce: bool = False
    """Gradient reduction runs beside the backward pass."""
    overlap_parameter_gather: bool = False
    """Weight all-gather runs beside the forward pass."""
    gradients_given_up: bool = False
    """Gradients exist from backward to the optimizer step only, as `zero_grad(set_to_none=True)` of PyTorch leaves it;
    False for frameworks that keep buffers of them."""
    reduction_bucket_bytes: int = 0
    """Bytes of buffers of a fixed size in which gradients wait for their reduction (DeepSpeed); 0 for none."""
    expandable_segments: bool = False
    """torch's caching allocator grows segments instead of taking one per large tensor (`expandable_segments:True` in
    PYTORCH_ALLOC_CONF)."""
    maximum_split_bytes: int | None = None
    """Free blocks of this size and more are neither split nor given to smaller requests (`max_split_size_mb` there);
    None splits all."""
    overlap_expert_parallel: bool = False
    """Each forward runs beside the backward of another micro batch, and both hide the other's exchange of tokens with
    experts (Megatron-LM `overlap_moe_expert_parallel_comm`)."""
    overlap_pipeline_sends: bool = True
    """Under interleaving, sends between stages run beside computation (Megatron-LM `overlap_p2p_comm`); False where
    each is waited for, by the host too. Without interleaving each always is."""
    overlap_tensor_parallel: bool = False
    """Tensor-parallel collectives overlap with GEMMs (user buffers, async TP)."""
    expert_dispatch: ExpertDispatch = ExpertDispatch.ALL_TO_ALL
    """How tokens travel to experts."""
    expert_dispatch_units: int = 20
    """Compute units that DeepEP's kernels take, which decide the size of its buffers."""
    expert_backend: ExpertBackend = ExpertBackend.GROUPED_LOOP
    """How experts' GEMMs start."""
    stacked_experts: bool = False
    """One weight holds a matrix of all experts of a layer, rather than one weight each (Megatron-LM's `GroupedMLP`,
    Primus-Turbo's grouped linear layers)."""
    attention_backend: AttentionBackend | None = None
    """Which flash kernel; None lets the device decide."""
    compiled_layers: bool = False
    """Element-wise work of eager PyTorch layers runs in fused kernels, as torch.compile of every layer makes them."""
    compiled_dispatch: bool = True
    """Where layers are compiled, the way of tokens to experts and back is too; False where that part runs eagerly, as
    in TorchTitan from October 2025 to March 2026 (pull requests 1895 and 2741)."""
    compiled_loss: bool = False
    """The loss of eager PyTorch runs in fused kernels from 16-bit logits, as torch.compile makes them."""
    fused_norms: bool = True
    """Eager PyTorch's RMS norms are one kernel, as torch's own from 2.9 on; False for norms that compute step by step
    in fp32, such as the classes of transformers and TorchTitan's until 2025."""
    fused_unweighted_norms: bool = True
    """Norms without weights, of residual streams and of DeepSeek-V4's queries, are one kernel (Primus from July 2026);
    False for norms that compute step by step in fp32."""
    indexer: IndexerTraining = IndexerTraining.IDLE
    """What becomes of the weights of DeepSeek-V4's indexers."""
    gathered_keys: bool = False
    """Keys that an indexer chooses are copied to each query's side before attention, rather than read by its kernel."""
    sinkhorn_iterations: int = 0
    """Iterations of the normalisation of hyper-connections' matrix that run kernel by kernel; 0 where one compiled
    kernel runs them all."""
    repeated_key_values: bool = False
    """Keys and values are copied to every query head before attention."""
    rotary_fusion: bool = True
    """Rotary embedding in one kernel, instead of separate cosine and sine tensors."""
    attention_mask_tensor: bool = False
    """The data loader makes a boolean mask of micro batch x sequence x sequence."""
    attention_dropout: float = 0.0
    """Probability; above 0 masks are kept."""
    hidden_dropout: float = 0.0
    """Probability; above 0 masks are kept."""
    permute_fusion: bool = False
    """Token permutation in one fused kernel."""
    expert_capacity_factor: float | None = None
    """Capacity of an expert over the balanced share; None for dropless routing."""
    expert_capacity_padded: bool = True
    """An expert's rows are padded to its capacity; without, it computes those that arrive and drops what is above."""
    routing_imbalance: float | None = None
    """Rows that the experts of the busiest device receive over the balanced share, at least 1; None where unknown: an
    interval for memory, balanced routing for time."""
    router_fusion: bool = False
    """Scores, choice of experts and auxiliary loss of the router run in fused kernels."""
    sync_free_stage: int = 0
    """Stage of Primus-Turbo's experts without host synchronisation. 1: router and permutation are fused; from 2 on,
    DeepEP does not wait, since what arrives lies in a buffer for all tokens of all ranks, and the host waits once for
    the rows that come of it; at 3 the experts' rows have room for all too, and it never waits."""
    probabilities_after_experts: bool = False
    """Outputs of experts are multiplied by their probabilities when they are back, as Megatron-Core did before 0.12,
    not inside the experts."""
    router_in_fp32: bool = False
    """The router hands on probabilities in fp32 (Megatron-LM `moe_router_dtype`)."""
    force_load_balancing: bool = False
    """The router is overruled so that every expert receives the same (a benchmark setting)."""
    weight_gradient_placeholders: bool = True
    """Transformer Engine caches a tensor for each shape of a weight gradient that it adds in place, as from 2.3 on."""
    deterministic: bool = False
    """Only kernels that repeat bit by bit run (Megatron-LM `deterministic_mode`)."""
    deferred_output_gradients: int = 0
    """Micro batches whose weight gradient of the output layer waits for the end of the pipeline, with that layer's
    input and the gradient of its logits (Megatron-LM `defer_embedding_wgrad_compute`); 0 for none."""
    graphed_modules: tuple[str, ...] = ()
    """Modules of each layer that run from CUDA (HIP) graphs (Megatron-LM `cuda_graph_modules`): attn, mlp, moe,
    moe_router, moe_preprocess; none where graphs are off."""
    graph_capture: GraphCapture = GraphCapture.TRANSFORMER_ENGINE
    """Who captures them."""
    optimizer_post_validation: bool = False
    """Pipeline ranks step without waiting for each other and undo the step where a gradient was not finite: zero-bubble
    schedules then leave no bubble between iterations (arXiv 2401.10241, section 4)."""
    host_factor: float = 1.0
    """Time of the host's work over what the catalog says of its platform and of the software here: above 1 where a
    site's is slower; 0 for a host that never holds the device up."""
    processes_bound: bool = False
    """Each process is bound to the cores and the memory beside its GPU (`numactl --cpunodebind`)."""
    transformer_engine: str | None = None
    """Version of Transformer Engine, such as `2.14`, which decides how long its Python takes; None for the slow one of
    earlier versions."""
    eager_communicators: bool = False
    """Every process group makes its communicator at start (`device_id` given to init_process_group)."""
    vocabulary_divisible_by: int = 128
    """The token table is padded to a multiple of this times the tensor-parallel degree (Megatron-LM tokenizer.py)."""

    @property
    def pads_experts(self) -> bool:
        """Experts compute their whole capacity, so that no routing changes how many rows they have."""
        return self.expert_capacity_factor is not None and self.expert_capacity_padded

    @property
    def graphed_layers(self) -> tuple[str, ...]:
        """Modules of each layer in graphs of Transformer Engine, whose memory is modelled."""
        return self.graphed_modules if self.graph_capture is GraphCapture.TRANSFORMER_ENGINE else ()
