"""How a job is divided over devices, and which devices those are."""

from dataclasses import dataclass
from enum import StrEnum


class Sharding(StrEnum):
    """What data parallelism divides over its ranks, as ZeRO counts its stages (arXiv 1910.02054)."""

    NONE = "none"
    """Every rank keeps everything."""
    OPTIMIZER = "optimizer"
    """Optimizer state is divided (ZeRO-1, Megatron's distributed optimizer)."""
    GRADIENTS = "gradients"
    """Gradients too (ZeRO-2)."""
    PARAMETERS = "parameters"
    """Weights too (ZeRO-3, FSDP2, Megatron-FSDP)."""


ZERO_STAGES = tuple(Sharding)
"""What each ZeRO stage divides, from stage 0 on."""
DEFAULT_DEVICES_PER_NODE = 8
"""GPUs of one host where nothing states them: OAM and HGX boards of MI250X (dies aside) to MI355X and A100 to B300."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parallelism:
    """The parallel layout, as the person states it; `projector.parallelism` checks and resolves it."""

    tensor: int = 1
    """Tensor-parallel degree of dense weights."""
    pipeline: int = 1
    """Pipeline stages."""
    virtual_pipeline: int = 1
    """Model chunks per pipeline stage (interleaving); 1 for none."""
    micro_batch_group: int | None = None
    """Consecutive micro batches that a model chunk takes before the next one's turn; None for one per stage."""
    pending_micro_batches: int | None = None
    """Micro batches whose activations an automatic zero-bubble schedule may keep on a rank; None for two per stage."""
    expert: int = 1
    """Expert-parallel degree."""
    expert_tensor: int | None = None
    """Tensor-parallel degree inside experts; None means `tensor` (Megatron-LM arguments.py)."""
    context: int = 1
    """Context-parallel degree."""
    sequence_parallel: bool = True
    """Norms and residuals divided along the sequence over tensor-parallel ranks; without effect at tensor 1."""
    first_stage_layers: int | None = None
    """Decoder layers of the first pipeline stage when it differs; the rest divides evenly."""
    last_stage_layers: int | None = None
    """Decoder layers of the last pipeline stage when it differs."""
    pipeline_layout: str | None = None
    """Megatron's layout string, such as `Et*3|(tt|)*28,m|L`; None for an even split."""
    embedding_counts_as_layer: bool = False
    """The embedding takes the place of one layer in the even split (account_for_embedding_in_pipeline_split)."""
    loss_counts_as_layer: bool = False
    """The output layer takes the place of one layer in the even split (account_for_loss_in_pipeline_split)."""
    spread_remainder: bool = True
    """Layers that do not divide over the stages go to the first ones (Primus); False refuses, as Megatron-LM does."""
    sharding: Sharding = Sharding.OPTIMIZER
    """What data parallelism divides."""
    shard_degree: int | None = None
    """Ranks that share one sharded copy (hybrid sharding, HSDP); None for all data-parallel ranks."""
    replicas: int = 1
    """Sharded copies (hybrid sharding) where no shard degree is stated, so that it follows from the cluster."""
    devices: int | None = None
    """GPUs of the whole run where the framework starts on no other number (TorchTitan's degrees with a stated shard
    degree); None where data parallelism takes what the cluster leaves."""
    reshard_after_forward: bool = True
    """Fully sharded weights are given up after forward and gathered again in backward; False keeps them whole."""
    prefetches_layers: bool = True
    """A fully sharded layer's weights are gathered, and its gradients scattered, while another layer computes; False
    where each layer waits for its own, as Composer's FSDP does (llm-foundry)."""
    pipeline_before_data: bool = False
    """Pipeline stages of one copy of the model are neighbours in the numbering of ranks, and data-parallel ranks come
    last (Megatron-LM `use_tp_pp_dp_mapping`); False for stages that come last."""
    context_communication: str = "p2p"
    """How context parallelism exchanges keys and values: p2p, all_gather, a2a or a2a+p2p."""
    context_exchange: int | None = None
    """Neighbouring context-parallel ranks that exchange heads under a2a+p2p, while a ring passes on keys and values
    between such groups; None makes the whole of it a ring."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """How many sequences an iteration trains on."""

    micro: int
    """Sequences per micro batch and data-parallel rank."""
    sequence_length: int
    """Tokens per sequence, before context parallelism."""
    global_: int | None = None
    """Sequences per iteration over the whole cluster; None where `micro_batches` decides."""
    micro_batches: int = 1
    """Micro batches per iteration and data-parallel rank (gradient accumulation) where no global batch is stated."""
    pipeline_micro_batches: int | None = None
    """Micro batches between two drains of the pipeline where an iteration runs it several times, as gradient
    accumulation does in TorchTitan; None where all micro batches of an iteration pass in one run."""
    masks_samples: bool = False
    """Sequences are packed with samples, and attention stays inside each of them."""
    packed_length: int | None = None
    """Length of those samples as attention sees it: the sum of their squared lengths over the sum of their lengths.
    The data decide it; None counts attention over whole sequences."""


SPLIT_BESIDE_RECOMPUTATION = "recomputation does not go with a schedule that separates weight gradients"
"""What is wrong with a job that its framework does not start under a schedule."""
WITHOUT_SPLIT = "no recomputation, or a 1F1B schedule"
"""What would be right."""


class Schedule(StrEnum):
    """Pipeline schedules, by the names of Primus where it has one, else after PyTorch's."""

    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "1f1b-interleaved"
    ZERO_BUBBLE = "zerobubble"
    ZERO_BUBBLE_HEURISTIC = "zerobubble-heuristic"
    ZBV_FORMATTED = "zbv-formatted"
    ZBV_GREEDY_HALF = "zbv-greedy-half"
    ZBV_GREEDY_MIN = "zbv-greedy-min"
    SEAAILAB_ILP = "seaailab-ilp"
    GPIPE = "gpipe"
    LOOPED_BFS = "looped-bfs"
    INTERLEAVED_ZERO_BUBBLE = "interleaved-zerobubble"

    @property
    def splits_backward(self) -> bool:
        """The backward pass towards the weights is apart from that towards the input, and may wait."""
        return self not in _WHOLE_BACKWARD


_WHOLE_BACKWARD = frozenset({Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED, Schedule.GPIPE, Schedule.LOOPED_BFS})


class Scaling(StrEnum):
    """What the batch does when the cluster grows."""

    STRONG = "strong"
    """The global batch stays as written."""
    WEAK = "weak"
    """The global batch grows with data parallelism from the smallest cluster that holds one replica's nodes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """The machine the job will run on."""

    device: str
    """Name of the GPU in the catalog, such as `MI300X`."""
    nodes: int
    """Hosts."""
    devices_per_node: int
    """GPUs of one host, as the framework sees them."""
    scaling: Scaling = Scaling.STRONG
    """What the batch does when the cluster grows."""

    @property
    def devices(self) -> int:
        """GPUs of the whole cluster."""
        return self.nodes * self.devices_per_node
