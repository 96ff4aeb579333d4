"""A run of Hugging Face's own layers under DeepSpeed, FSDP or DistributedDataParallel -> `TrainingJob`.

The values that a person gives beside the files carry the names that all dialects share, or those of the Trainer
(transformers 5.24.0 training_args.py).
"""

from dataclasses import dataclass

from projector.config.huggingface.fsdp import strategy
from projector.config.huggingface.setup import Compute, Engine, OptimizerFacts, Setup, optimizers
from projector.config.keys import Keys
from projector.config.nearest import nearest
from projector.config.notes import Notes
from projector.errors import BatchIndivisible, ConfigurationError
from projector.job import (
    Attention,
    AttentionBackend,
    Batch,
    CrossEntropy,
    Dialect,
    ExpertBackend,
    ModelArchitecture,
    Optimizer,
    OptimizerKind,
    Parallelism,
    Precision,
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
    "max_seq_length": "seq_length",
    "gradient_checkpointing": "gradient_checkpointing",
    "bf16": "bf16",
    "fp16": "fp16",
    "optim": "optim",
    "attn_implementation": "attn_implementation",
    "use_liger_kernel": "use_liger_kernel",
    "fsdp": "fsdp",
    "tensor_model_parallel_size": "tensor_model_parallel_size",
    "context_parallel_size": "context_parallel_size",
    "data_parallel_shard_degree": "data_parallel_shard_degree",
}
"""Names of values beside the files, and the one that each is kept under."""
DEFAULT_DEVICES_PER_NODE = 8
"""GPUs of one host where nothing states them, as for a question that says nothing."""
_ATTENTION = ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")
_WEIGHT_BYTES = {Compute.BF16: 2, Compute.FP16: 2, Compute.FP32: 4}


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


def eager_job(trained: Trained, setup: Setup, run: Keys, notes: Notes, *, name: str) -> TrainingJob:
    """The job of a run under the files' `setup` and the values beside them.

    Raises `ConfigurationError` that lists all that is missing, and `BatchIndivisible`.
    """
    _check_complete(setup, run, name=name)
    engine = setup.engine or Engine.DDP
    sharding, within = _sharding(setup, run)
    compute = _compute(setup, run)
    kept = _optimizer(setup, run, notes)
    parallelism = Parallelism(
        tensor=run.integer("tensor_model_parallel_size", setup.tensor or 1, minimum=1),
        context=run.integer("context_parallel_size", setup.context or 1, minimum=1),
        sequence_parallel=False,
        sharding=sharding,
        shard_degree=_shard_degree(setup, run, notes, within=within),
        context_communication="all_gather",
    )
    _note_framework(engine, compute, trained.model, notes)
    return TrainingJob(
        model=trained.model,
        parallelism=parallelism,
        batch=_batch(setup, run, notes),
        precision=_precision(engine, compute, kept, setup, trained, sharding=sharding, notes=notes),
        optimizer=Optimizer(kind=OptimizerKind(kept.kind), offload_fraction=setup.offload_fraction or 0.0),
        recompute=_recompute(setup, run, notes),
        software=_software(trained, run, sharding=sharding),
    )


def _check_complete(setup: Setup, run: Keys, *, name: str) -> None:
    missing = []
    if run.raw("seq_length") is None:
        missing.append("seq_length=4096")
    if setup.micro_batch is None and run.raw("micro_batch_size") is None:
        missing.append("micro_batch_size=1")
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


def _sharding(setup: Setup, run: Keys) -> tuple[Sharding, bool]:
    words = run.text("fsdp")
    if words is not None:
        return strategy(words, place=run.place("fsdp"))
    return setup.sharding or Sharding.NONE, bool(setup.within_node)


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
        run.wrong("fp16", "one of bf16 and fp16")
    if run.boolean("bf16") or run.boolean("fp16"):
        return Compute.BF16 if run.boolean("bf16") else Compute.FP16
    if brain is not None or half is not None:
        return Compute.FP32
    return setup.compute or Compute.FP32


def _optimizer(setup: Setup, run: Keys, notes: Notes) -> OptimizerFacts:
    key, stated = "optim", run.text("optim")
    name = stated or setup.optimizer
    if name is None:
        notes.assume("optimizer AdamW", "the Trainer's default; say optim to use another, such as adamw_8bit")
        name = "adamw"
    known = optimizers()
    if name.lower() not in known:
        place = run.place(key) if stated else setup.places.get("optimizer", key)
        raise ConfigurationError(f"the optimizer {name!r} is not known", place=place, expected=nearest(name, known))
    return known[name.lower()]


def _batch(setup: Setup, run: Keys, notes: Notes) -> Batch:
    micro = run.integer("micro_batch_size", setup.micro_batch, minimum=1)
    length = run.required("seq_length")
    stated_accumulation, stated_total = run.raw("gradient_accumulation_steps"), run.raw("global_batch_size")
    accumulation = run.integer("gradient_accumulation_steps", setup.accumulation, minimum=1)
    total = run.integer("global_batch_size", setup.global_batch, minimum=1)
    assert micro is not None  # noqa: S101 - checked for completeness; for the type checker
    # What a person says in part replaces what a file says in full.
    if stated_total is not None and stated_accumulation is None:
        accumulation = None
    if stated_accumulation is not None and stated_total is None:
        total = None
    if total is not None and accumulation is not None:
        _check_total(setup, run, micro=micro, accumulation=accumulation, total=total)
        notes.assume(
            f"{total} sequences an iteration, whatever the number of GPUs",
            f"the batch of {micro} and {accumulation} accumulation steps make it {total} on"
            f" {total // (micro * accumulation)} GPUs; say gradient_accumulation_steps to keep those instead",
        )
    if total is not None:
        return Batch(micro=micro, global_=total, sequence_length=length)
    if accumulation is None:
        notes.assume("1 micro batch an iteration", "nothing states gradient_accumulation_steps or global_batch_size")
    return Batch(micro=micro, micro_batches=accumulation or 1, sequence_length=length)


def _check_total(setup: Setup, run: Keys, *, micro: int, accumulation: int, total: int) -> None:
    """DeepSpeed refuses a batch that is not micro batch x accumulation x data-parallel ranks."""
    place = setup.places.get("global_batch", run.place("global_batch_size"))
    shared = run.integer("tensor_model_parallel_size", setup.tensor or 1, minimum=1)
    shared *= run.integer("context_parallel_size", setup.context or 1, minimum=1)
    known = None
    if setup.nodes is not None and setup.devices_per_node is not None:
        known = setup.nodes * setup.devices_per_node // shared
    ranks = f"{known} data-parallel ranks" if known else "any number of GPUs"
    if total % (micro * accumulation) or (known and total != micro * accumulation * known):
        expected = f"a multiple of {micro * accumulation}" if not known else f"{micro * accumulation * known}"
        message = f"{total} is not a batch of {micro} x {accumulation} accumulation steps x {ranks}"
        raise BatchIndivisible(message, place=place, expected=expected)


def _precision(  # noqa: PLR0913 - what decides the widths of an element
    engine: Engine,
    compute: Compute,
    kept: OptimizerFacts,
    setup: Setup,
    trained: Trained,
    *,
    sharding: Sharding,
    notes: Notes,
) -> Precision:
    """Element widths.

    DeepSpeed trains 16-bit weights beside fp32 master weights (runtime/bf16_optimizer.py, zero/stage_1_and_2.py).
    FSDP's mixed precision keeps fp32 shards and gathers 16-bit copies (accelerate accelerator.py upcasts weights);
    where weights stay whole after forward, the copies are the weights and the shard is the master.
    """
    narrow = _WEIGHT_BYTES[compute]
    first, second = kept.first_moment_bytes, kept.second_moment_bytes
    wide = Precision(
        weight_bytes=4,
        gradient_bytes=4,
        master_weight_bytes=0,
        first_moment_bytes=first,
        second_moment_bytes=second,
        activation_bytes=narrow,
    )
    if compute is Compute.FP32:
        return _unmixed(engine, wide, trained, notes)
    if engine is Engine.DEEPSPEED:
        # Without ZeRO, bf16 runs accumulate in fp32; else in the type of the weights (runtime/engine.py).
        plain = sharding is Sharding.NONE and compute is Compute.BF16
        accumulated = setup.gradient_compute or (Compute.FP32 if plain else compute)
        return Precision(
            weight_bytes=narrow,
            gradient_bytes=_WEIGHT_BYTES[accumulated],
            master_weight_bytes=4,
            first_moment_bytes=first,
            second_moment_bytes=second,
            activation_bytes=narrow,
        )
    if engine is Engine.FSDP and sharding is Sharding.GRADIENTS:
        return Precision(
            weight_bytes=narrow,
            gradient_bytes=4,
            master_weight_bytes=4,
            first_moment_bytes=first,
            second_moment_bytes=second,
            activation_bytes=narrow,
        )
    return wide


def _unmixed(engine: Engine, wide: Precision, trained: Trained, notes: Notes) -> Precision:
    """Everything in the type that the weights are loaded in."""
    loaded = trained.weight_type
    if loaded is None or engine is Engine.DEEPSPEED:
        notes.assume(
            "weights, gradients and activations in fp32",
            "nothing states bf16, fp16 or mixed precision; say bf16=true, or dtype=bfloat16 for weights loaded in bf16",
        )
        return wide
    width = _WEIGHT_BYTES[loaded]
    return Precision(
        weight_bytes=width,
        gradient_bytes=width,
        master_weight_bytes=0,
        # torch keeps the moments in the type of the weight; 8-bit ones stay as they are.
        first_moment_bytes=min(width, wide.first_moment_bytes),
        second_moment_bytes=min(width, wide.second_moment_bytes),
        activation_bytes=width,
    )


def _recompute(setup: Setup, run: Keys, notes: Notes) -> Recompute:
    stated = run.raw("gradient_checkpointing") is not None or setup.checkpointing is not None
    if run.boolean("gradient_checkpointing", default=bool(setup.checkpointing)):
        return Recompute(granularity=RecomputeGranularity.FULL, method=RecomputeMethod.UNIFORM, layers=1)
    if not stated:
        notes.assume("no gradient checkpointing", "nothing states it; say gradient_checkpointing=true")
    return Recompute()


def _software(trained: Trained, run: Keys, *, sharding: Sharding) -> Software:
    implementation = run.choice("attn_implementation", "eager" if trained.eager_attention else "sdpa", _ATTENTION)
    return Software(
        dialect=Dialect.TORCHTITAN,
        flash_attention=implementation != "eager",
        cross_entropy=CrossEntropy.LINEAR_FUSED if run.boolean("use_liger_kernel") else CrossEntropy.UNFUSED,
        gradient_accumulation_fusion=False,
        overlap_gradient_reduce=True,
        overlap_parameter_gather=sharding is Sharding.PARAMETERS,
        expert_backend=ExpertBackend.GROUPED_FUSED,
        attention_backend=AttentionBackend.FLASH,
        rotary_fusion=False,
        attention_dropout=trained.attention_dropout,
        hidden_dropout=trained.hidden_dropout,
        vocabulary_divisible_by=1,
    )


def _note_framework(engine: Engine, compute: Compute, model: ModelArchitecture, notes: Notes) -> None:
    why = "the engine has no description of its own of Hugging Face's layers; they run eagerly too"
    notes.assume("Hugging Face's layers taken as eager PyTorch layers, as TorchTitan's", why)
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
