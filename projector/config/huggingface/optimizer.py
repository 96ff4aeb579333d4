"""The optimizer of a run of Hugging Face models: its rule, what its step holds for a moment, where its state lives."""

from dataclasses import replace

from projector.config.huggingface.fsdp import Strategy
from projector.config.huggingface.setup import Compute, Engine, Setup
from projector.config.keys import Keys
from projector.config.nearest import nearest
from projector.config.notes import Notes
from projector.config.optimizers import OptimizerRule, optimizers
from projector.errors import ConfigurationError
from projector.job import Optimizer, Precision, Sharding

_FP32_BYTES, _BF16_BYTES = 4, 2


def rule_of(setup: Setup, run: Keys, notes: Notes, *, compute: Compute) -> OptimizerRule:
    """The optimizer that a person or a file names, by the names of `optim` and of DeepSpeed, in any case.

    DeepSpeed joins the parameters that it updates in 16-bit training to one vector (runtime/zero/stage_1_and_2.py,
    runtime/fp16/fused_optimizer.py).
    """
    key, stated = "optim", run.text("optim")
    name = stated or setup.optimizer
    if name is None:
        notes.assume("optimizer AdamW", "the Trainer's default; say optim to use another, such as adamw_8bit")
        name = "adamw"
    known = optimizers("huggingface")
    place = run.place(key) if stated else setup.places.get("optimizer", key)
    if name.lower() not in known:
        raise ConfigurationError(f"the optimizer {name!r} is not known", place=place, expected=nearest(name, known))
    rule = known[name.lower()].noted(name, notes, where=place)
    return rule.flattened() if setup.engine is Engine.DEEPSPEED and compute is not Compute.FP32 else rule


def optimizer_of(  # noqa: PLR0913 - what decides state and step
    rule: OptimizerRule, setup: Setup, divided: Strategy, precision: Precision, notes: Notes, *, apart: bool
) -> Optimizer:
    """What is kept, what the step makes, and where; `apart` for DeepSpeed's BF16_Optimizer."""
    deepspeed = setup.engine is Engine.DEEPSPEED
    widened = _widened_bytes(divided.sharding, precision) if deepspeed and not apart else 0
    optimizer = replace(
        rule.optimizer,
        step_bytes=rule.foreach_bytes(precision) + widened,
        step_elements=setup.step_elements or 0,
        state_from_start=deepspeed,
        newton_schulz_bytes=_BF16_BYTES,
        offload_fraction=setup.offload_fraction or 0.0,
        offload_gradients=bool(setup.offload_gradients),
    )
    if not divided.offload:
        return optimizer
    if divided.sharding is not Sharding.PARAMETERS:
        notes.not_modelled(
            "offloading of FSDP's gradients beside weights that stay whole",
            where=setup.places.get("sharding", "fsdp"),
            effect="gradients in host memory are counted on the device, so that memory is an upper bound",
            decides=False,
            overstates=True,
        )
    return replace(optimizer, offload_fraction=1.0, offload_shards=True)


def _widened_bytes(sharding: Sharding, precision: Precision) -> float:
    """Bytes per parameter that a step of DeepSpeed needs to join gradients to one vector and to widen them to fp32.

    Divided, they are joined in their own width and then widened (runtime/zero/stage_1_and_2.py `step`, stage3.py
    `_prepare_fp32_grad_for_sub_group`); whole, they are widened one by one and then joined, without giving the first
    copies up (runtime/fp16/fused_optimizer.py `step`).
    """
    if sharding is Sharding.NONE:
        return 0 if precision.master_weight_bytes == 0 else 2 * _FP32_BYTES
    wide = precision.gradient_bytes >= _FP32_BYTES
    return _FP32_BYTES if wide else precision.gradient_bytes + _FP32_BYTES
