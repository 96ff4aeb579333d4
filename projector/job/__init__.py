"""The training job: what will be trained, on what, and how it is laid out.

Every reader in `projector.config` produces a `TrainingJob`; everything else reads it. It holds decisions, not
derived numbers: who divides what by which degree is decided in `projector.parallelism`, what a layer does in
`projector.layers`.

Sizes are counts of elements unless the name carries a unit. `None` means "not stated"; there are no magic values.
"""

from dataclasses import dataclass, field

from projector.job.adapters import LowRankAdapters
from projector.job.architecture import (
    Attention,
    DecoderLayer,
    DenseMLP,
    FeedForward,
    LatentAttention,
    Mixer,
    MixtureOfExperts,
    ModelArchitecture,
    NormKind,
    PositionKind,
    UnmodelledMixer,
    UnmodelledMLP,
)
from projector.job.modules import ModuleForms, NormForm
from projector.job.numerics import (
    LowPrecision,
    Precision,
    Recompute,
    RecomputeGranularity,
    RecomputeMethod,
)
from projector.job.offload import ActivationOffload
from projector.job.optimizer import Optimizer, OptimizerKind, ParameterClass
from projector.job.placement import (
    DEFAULT_DEVICES_PER_NODE,
    SPLIT_BESIDE_RECOMPUTATION,
    WITHOUT_SPLIT,
    ZERO_STAGES,
    Batch,
    Parallelism,
    Scaling,
    Schedule,
    Sharding,
    Target,
)
from projector.job.software import (
    AttentionBackend,
    CrossEntropy,
    Dialect,
    ExpertBackend,
    ExpertDispatch,
    GraphCapture,
    IndexerTraining,
    Software,
)
from projector.job.tuning import Tuning

__all__ = [
    "DEFAULT_DEVICES_PER_NODE",
    "SPLIT_BESIDE_RECOMPUTATION",
    "WITHOUT_SPLIT",
    "ZERO_STAGES",
    "ActivationOffload",
    "Attention",
    "AttentionBackend",
    "Batch",
    "CrossEntropy",
    "DecoderLayer",
    "DenseMLP",
    "Dialect",
    "ExpertBackend",
    "ExpertDispatch",
    "FeedForward",
    "GraphCapture",
    "IndexerTraining",
    "LatentAttention",
    "LowPrecision",
    "LowRankAdapters",
    "Mixer",
    "MixtureOfExperts",
    "ModelArchitecture",
    "ModuleForms",
    "NormForm",
    "NormKind",
    "Optimizer",
    "OptimizerKind",
    "Parallelism",
    "ParameterClass",
    "PositionKind",
    "Precision",
    "Recompute",
    "RecomputeGranularity",
    "RecomputeMethod",
    "Scaling",
    "Schedule",
    "Sharding",
    "Software",
    "Target",
    "TrainingJob",
    "Tuning",
    "UnmodelledMLP",
    "UnmodelledMixer",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingJob:
    """One training run: model, layout, batch, precision, software. Where it runs is a `Target`."""

    model: ModelArchitecture
    """What is trained."""
    parallelism: Parallelism
    """How it is divided."""
    batch: Batch
    """What one iteration processes."""
    precision: Precision = field(default_factory=Precision)
    """Element widths."""
    optimizer: Optimizer = field(default_factory=Optimizer)
    """Update rule and its state."""
    recompute: Recompute = field(default_factory=Recompute)
    """What backward computes again."""
    offload: ActivationOffload = field(default_factory=ActivationOffload)
    """What backward fetches from host memory."""
    software: Software = field(default_factory=Software)
    """Framework choices."""
    adapters: LowRankAdapters | None = None
    """What is trained beside frozen weights; None trains the weights themselves."""
    modules: ModuleForms | None = None
    """How the classes of Hugging Face transformers write the layers; None where the framework has layers of its own."""
    tuning: Tuning | None = None
    """Figures that a person states in place of the cost models'; None for none."""
    schedule: Schedule | None = None
    """The schedule the framework would really run; None lets the layout decide (1F1B, interleaved with chunks)."""

    @property
    def combines_passes(self) -> bool:
        """Forwards run beside backwards, to hide the exchange of tokens that one device alone does not have."""
        return self.software.overlap_expert_parallel and self.parallelism.expert > 1

    def starts_under(self, schedule: Schedule) -> bool:
        """Whether the framework runs the pipeline under `schedule`.

        Megatron-LM's forks and AMD-AGI/Primus recompute nothing beside separate weight gradients (Primus's projection
        refuses the pair); TorchTitan does.
        """
        if self.software.dialect is Dialect.TORCHTITAN or self.parallelism.pipeline == 1:
            return True
        return not schedule.splits_backward or self.recompute == Recompute()
