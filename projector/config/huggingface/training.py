"""A run of Hugging Face's own layers under DeepSpeed, FSDP or DistributedDataParallel -> `TrainingJob`.

The values that a person gives beside the files carry the names that all dialects share, or those of the Trainer
(transformers 5.24.0 training_args.py).
"""

from dataclasses import dataclass, field, replace

from projector.config.huggingface.batch import batch_of, missing_micro_batch
from projector.config.huggingface.fsdp import Strategy, strategy
from projector.config.huggingface.optimizer import optimizer_of, rule_of
from projector.config.huggingface.precision import has_bf16_optimizer, precision_of
from projector.config.huggingface.setup import Buckets, Compute, Engine, Setup
from projector.config.keys import Keys
from projector.config.notes import Notes
from projector.errors import ConfigurationError
from projector.job import (
    DEFAULT_DEVICES_PER_NODE,
    Attention,
    AttentionBackend,
    CrossEntropy,
    Dialect,
    ExpertBackend,
    ModelArchitecture,
    ModuleForms,
    Parallelism,
    Recompute,
    RecomputeGranularity,
    RecomputeMethod,
    Sharding,
    Software,
    TrainingJob,
)

NAMES = {
    "micro_batch_size": "micro_batch_size",
    "per_device_train_batch_size": "micro_batch_size",
    "global_batch_size": "global_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "seq_length": "seq_length",
    "packing": "packing",
    "neat_packing": "packing",
    "max_seq_length": "seq_length",
    "gradient_checkpointing": "gradient_checkpointing",
    "bf16": "bf16",
    "fp16": "fp16",
    "optim": "optim",
    "attn_implementation": "attn_implementation",
    "use_liger_kernel": "use_liger_kernel",
    "fsdp": "fsdp",
    "sync_each_batch": "sync_each_batch",
    "tensor_model_parallel_size": "tensor_model_parallel_size",
    "context_parallel_size": "context_parallel_size",
    "data_parallel_shard_degree": "data_parallel_shard_degree",
}
"""Names of values beside the files, and the one that each is kept under."""
_ATTENTION = ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """The model of a run, with what its config.json says about training."""

    model: ModelArchitecture
    """What is trained."""
    eager_attention: bool = False
    """Its class runs attention without a fused kernel unless told otherwise."""
    attention_dropout: float = 0.0
    """Probability."""
    hidden_dropout: float = 0.0
    """Probability."""
    weight_type: Compute | None = None
    """The type that a person says weights are loaded in; None when nobody says."""
    modules: ModuleForms = field(default_factory=ModuleForms)
    """How its class writes its layers."""
    repeated_key_values: bool = False
    """Its class copies keys and values to every query head, whatever kernel runs."""


def eager_job(trained: Trained, setup: Setup, run: Keys, notes: Notes, *, name: str) -> TrainingJob:
    """The job of a run under the files' `setup` and the values beside them.

    Raises `ConfigurationError` that lists all that is missing, and `BatchIndivisible`.
    """
    _check_complete(setup, run, name=name)
    engine = setup.engine or Engine.DDP
    divided = _divided(setup, run)
    sharding = divided.sharding
    compute = _compute(setup, run)
    rule = rule_of(setup, run, notes, compute=compute)
    sums_each = run.boolean("sync_each_batch")
    precision = precision_of(setup, compute, rule, sharding, notes, loaded=trained.weight_type, sums_each=sums_each)
    # It divides optimizer state at any stage, and has no buckets of ZeRO.
    apart = has_bf16_optimizer(setup, compute, sharding)
    parallelism = Parallelism(
        tensor=run.integer("tensor_model_parallel_size", setup.tensor or 1, minimum=1),
        context=run.integer("context_parallel_size", setup.context or 1, minimum=1),
        sequence_parallel=False,
        sharding=Sharding.OPTIMIZER if apart else sharding,
        shard_degree=_shard_degree(setup, run, notes, within=divided.within_node),
        context_communication="all_gather",
    )
    _note_framework(engine, compute, trained.model, notes)
    return TrainingJob(
        model=trained.model,
        parallelism=parallelism,
        batch=batch_of(setup, run, notes),
        precision=precision,
        optimizer=optimizer_of(rule, setup, divided, precision, notes, apart=apart),
        recompute=_recompute(setup, run, notes),
        software=_software(trained, run, setup, sharding=Sharding.NONE if apart else sharding, compute=compute),
        modules=_forms(trained, run),
    )


def _check_complete(setup: Setup, run: Keys, *, name: str) -> None:
    missing = []
    if run.raw("seq_length") is None:
        missing.append("seq_length=4096")
    micro_batch = missing_micro_batch(setup, run)
    if micro_batch:
        missing.append(micro_batch)
    if setup.compute is None and run.raw("bf16") is None and run.raw("fp16") is None:
        missing.append("bf16=true (fp16=true, or bf16=false for fp32)")
    complain_missing(missing, name=name)


def complain_missing(missing: list[str], *, name: str) -> None:
    """Raise `ConfigurationError` that lists what a config.json cannot say and nothing else said; `name=example`."""
    if missing:
        names = ", ".join(item.partition("=")[0] for item in missing)
        verb = "is" if len(missing) == 1 else "are"
        raise ConfigurationError(
            f"{names} {verb} not stated",
            place=name,
            expected=f"say {' '.join(missing)}; a config.json describes the model alone, and its"
            " max_position_embeddings is not the sequence length of a run",
        )


def _divided(setup: Setup, run: Keys) -> Strategy:
    """What is divided over which GPUs; offloading that either says is on (`_apply_legacy_fsdp_to_config`)."""
    words, offload = run.text("fsdp"), bool(setup.offload_shards)
    if words is not None:
        said = strategy(words, place=run.place("fsdp"))
        return replace(said, offload=said.offload or offload)
    return Strategy(sharding=setup.sharding or Sharding.NONE, within_node=bool(setup.within_node), offload=offload)


def _shard_degree(setup: Setup, run: Keys, notes: Notes, *, within: bool) -> int | None:
    stated = run.integer("data_parallel_shard_degree", setup.shard_degree, minimum=1)
    if stated is not None or not within:
        return stated
    degree = setup.devices_per_node or DEFAULT_DEVICES_PER_NODE
    notes.assume(
        f"state divided over the {degree} GPUs of a node",
        "hybrid sharding divides within nodes; say data_parallel_shard_degree to divide over another number",
    )
    return degree


def _compute(setup: Setup, run: Keys) -> Compute:
    """Type of a forward pass; what a person says goes before what files say."""
    brain, half = run.raw("bf16"), run.raw("fp16")
    if run.boolean("bf16") and run.boolean("fp16"):
        raise ConfigurationError("fp16 and bf16 are both true", place=run.place("fp16"), expected="one of the two")
    if run.boolean("bf16") or run.boolean("fp16"):
        return Compute.BF16 if run.boolean("bf16") else Compute.FP16
    if brain is not None or half is not None:
        return Compute.FP32
    return setup.compute or Compute.FP32


def _recompute(setup: Setup, run: Keys, notes: Notes) -> Recompute:
    stated = run.raw("gradient_checkpointing") is not None or setup.checkpointing is not None
    if run.boolean("gradient_checkpointing", default=bool(setup.checkpointing)):
        return Recompute(granularity=RecomputeGranularity.FULL, method=RecomputeMethod.UNIFORM, layers=1)
    if not stated:
        notes.assume("no gradient checkpointing", "nothing states it; say gradient_checkpointing=true")
    return Recompute()


def _software(trained: Trained, run: Keys, setup: Setup, *, sharding: Sharding, compute: Compute) -> Software:
    """Framework choices of transformers 5.24.0, beside those that are noted as assumed.

    Logits are upcast before a plain cross entropy (loss/loss_utils.py), rotary embeddings are separate operations
    (models/llama/modeling_llama.py), SDPA runs torch's flash kernel (integrations/sdpa_attention.py), experts run as
    one grouped GEMM (integrations/moe.py), and a token table has as many rows as config.json says. FSDP and
    DistributedDataParallel reduce beside backward (arXiv 2304.11277); DeepSpeed does so with `overlap_comm`.
    """
    buckets = (setup.buckets or Buckets()) if setup.engine is Engine.DEEPSPEED else None
    overlapped = buckets is None or buckets.overlaps(sharding)
    implementation = run.choice("attn_implementation", "eager" if trained.eager_attention else "sdpa", _ATTENTION)
    fused = run.boolean("use_liger_kernel")
    return Software(
        dialect=Dialect.TORCHTITAN,
        flash_attention=implementation != "eager",
        cross_entropy=CrossEntropy.LINEAR_FUSED if fused else CrossEntropy.UNFUSED,
        # Liger's kernels keep what compiled layers keep; the classes' own norms compute step by step.
        compiled_layers=fused,
        fused_norms=fused,
        gradient_accumulation_fusion=False,
        gradients_given_up=setup.engine is Engine.FSDP,
        overlap_gradient_reduce=overlapped,
        overlap_parameter_gather=sharding is Sharding.PARAMETERS,
        reduction_bucket_bytes=buckets.size_bytes(sharding, compute, width=trained.model.hidden) if buckets else 0,
        expert_backend=ExpertBackend.GROUPED_FUSED,
        attention_backend=AttentionBackend.FLASH,
        rotary_fusion=False,
        attention_dropout=trained.attention_dropout,
        hidden_dropout=trained.hidden_dropout,
        vocabulary_divisible_by=1,
        repeated_key_values=trained.repeated_key_values,
    )


def _forms(trained: Trained, run: Keys) -> ModuleForms:
    """How the layers are written, with the attention that a person says: other kernels than torch's have windows."""
    implementation = run.text("attn_implementation")
    if implementation is None:
        return trained.modules
    return replace(trained.modules, masked_windows=implementation == "sdpa")


def _note_framework(engine: Engine, compute: Compute, model: ModelArchitecture, notes: Notes) -> None:
    why = "what they keep is described of their own classes; how long they run is not"
    notes.assume("kernels of Hugging Face's layers taken as those of TorchTitan's eager layers", why)
    if model.expert_blocks:
        notes.assume("experts as grouped GEMMs", "the default of transformers 5; older versions loop over the experts")
    if engine is Engine.DDP and compute is not Compute.FP32:
        notes.not_modelled(
            "torch.autocast under DistributedDataParallel",
            where="mixed precision of the run",
            effect="16-bit copies of the weights and the residual stream in fp32 are not counted",
            decides=True,
        )
    if any(isinstance(layer.mixer, Attention) and layer.mixer.sinks for layer in model.layers):
        notes.assume("attention without a fused kernel", "the class has none for sinks; say attn_implementation")
