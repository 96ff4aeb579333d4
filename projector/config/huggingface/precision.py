"""Element widths of a run under DeepSpeed, FSDP or DistributedDataParallel."""

from dataclasses import replace

from projector.config.element_types import ELEMENT_BYTES
from projector.config.huggingface.setup import Compute, Engine, Setup
from projector.config.notes import Notes
from projector.config.optimizers import OptimizerRule
from projector.job import Precision, Sharding


def has_bf16_optimizer(setup: Setup, compute: Compute, sharding: Sharding) -> bool:
    """Whether DeepSpeed's BF16_Optimizer runs, which divides optimizer state whatever the ZeRO stage says.

    It takes bf16 weights with gradients accumulated in fp32, without ZeRO (until January 2026) or at stage 1 without
    offloading (deepspeed/runtime/engine.py `_do_optimizer_sanity_check`, runtime/bf16_optimizer.py).
    """
    wide = compute is Compute.BF16 and setup.gradient_compute is Compute.FP32
    whole = sharding is Sharding.NONE or (sharding is Sharding.OPTIMIZER and not setup.offload_fraction)
    return setup.engine is Engine.DEEPSPEED and wide and whole


def deepspeed_precision(
    setup: Setup, compute: Compute, rule: OptimizerRule, sharding: Sharding, notes: Notes
) -> Precision:
    """16-bit weights and gradients beside fp32 master weights (runtime/zero/stage_1_and_2.py, fp16/fused_optimizer.py).

    BF16_Optimizer keeps whole bf16 gradients of a micro batch beside its fp32 ones.
    """
    narrow = ELEMENT_BYTES[compute]
    accumulating = has_bf16_optimizer(setup, compute, sharding)
    if sharding is Sharding.NONE and not accumulating:
        _note_whole(setup, compute, notes)
    return Precision(
        weight_bytes=narrow,
        gradient_bytes=ELEMENT_BYTES[setup.gradient_compute or compute],
        local_gradient_bytes=narrow if accumulating else 0,
        master_weight_bytes=4,
        first_moment_bytes=rule.first_moment_bytes,
        second_moment_bytes=rule.second_moment_bytes,
        activation_bytes=narrow,
    )


def _note_whole(setup: Setup, compute: Compute, notes: Notes) -> None:
    """Which optimizer runs in bf16 without ZeRO depends on the version."""
    if compute is Compute.BF16 and setup.gradient_compute is None:
        why = (
            "DeepSpeed runs it without ZeRO since January 2026; before, BF16_Optimizer kept fp32 gradients and divided"
            " optimizer state: say data_types.grad_accum_dtype=fp32 for it"
        )
        notes.assume("bf16 gradients beside whole optimizer state", why)


def torch_precision(engine: Engine, compute: Compute, rule: OptimizerRule, sharding: Sharding) -> Precision:
    """What PyTorch's data parallelism keeps.

    FSDP's mixed precision keeps fp32 shards, gathers 16-bit copies and reduces in 16 bit (accelerate accelerator.py
    upcasts weights, utils/dataclasses.py `set_mixed_precision`); where weights stay whole after forward, the copies are
    the weights and the shard is the master.
    """
    narrow = ELEMENT_BYTES[compute]
    mixed = Precision(
        weight_bytes=4,
        gradient_bytes=4,
        master_weight_bytes=0,
        first_moment_bytes=rule.first_moment_bytes,
        second_moment_bytes=rule.second_moment_bytes,
        activation_bytes=narrow,
    )
    if engine is not Engine.FSDP:
        return mixed
    if sharding is Sharding.GRADIENTS and compute is not Compute.FP32:
        mixed = replace(mixed, weight_bytes=narrow, master_weight_bytes=4)
    return replace(mixed, reduction_bytes=narrow)


def _accumulating(precision: Precision, notes: Notes) -> Precision:
    """FSDP's precision with gradients that stay whole between micro batches.

    accelerate and the Trainer run all micro batches but the last under `no_sync` unless `sync_each_batch` is set
    (accelerate accelerator.py `accumulate`, transformers 5.24.0 trainer.py); gradients accumulate in the type of a
    forward pass (torch/distributed/fsdp/_runtime_utils.py, _fully_shard/_fsdp_param_group.py).
    """
    notes.assume(
        "gradients that stay whole between the micro batches of an iteration",
        "accelerate and the Trainer run FSDP so by default; say sync_each_batch=true where gradient_accumulation_kwargs"
        " set it. The time is that of a reduction after every micro batch",
    )
    return replace(precision, local_gradient_bytes=precision.activation_bytes)


def _unmixed(wide: Precision, loaded: Compute | None, notes: Notes) -> Precision:
    """Everything in the type that the weights are loaded in; fp32 where nobody says which."""
    if loaded is None:
        notes.assume(
            "weights, gradients and activations in fp32",
            "nothing states bf16, fp16 or mixed precision; say bf16=true, or dtype=bfloat16 for weights loaded in bf16",
        )
        return wide
    width = ELEMENT_BYTES[loaded]
    return replace(
        wide,
        weight_bytes=width,
        gradient_bytes=width,
        reduction_bytes=None,
        # torch keeps the moments in the type of the weight; 8-bit ones stay as they are.
        first_moment_bytes=min(width, wide.first_moment_bytes),
        second_moment_bytes=min(width, wide.second_moment_bytes),
        local_gradient_bytes=min(width, wide.local_gradient_bytes),
        activation_bytes=width,
    )


def precision_of(  # noqa: PLR0913 - what decides the widths of an element
    setup: Setup,
    compute: Compute,
    rule: OptimizerRule,
    sharding: Sharding,
    notes: Notes,
    *,
    loaded: Compute | None,
    sums_each: bool,
) -> Precision:
    """Element widths.

    `loaded` is the type that a person says weights have without mixed precision; `sums_each` says that FSDP sums
    gradients after every micro batch.
    """
    engine = setup.engine or Engine.DDP
    if engine is Engine.DEEPSPEED and compute is not Compute.FP32:
        return deepspeed_precision(setup, compute, rule, sharding, notes)
    stored = torch_precision(engine, compute, rule, sharding)
    if engine is Engine.FSDP and sharding is not Sharding.NONE and not sums_each:
        stored = _accumulating(stored, notes)
    if compute is not Compute.FP32:
        return stored
    return _unmixed(stored, None if engine is Engine.DEEPSPEED else loaded, notes)
