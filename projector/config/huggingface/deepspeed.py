"""A DeepSpeed configuration -> what it decides about a run.

Meanings and defaults are those of deepspeedai/DeepSpeed deepspeed/runtime/config.py and zero/config.py. `"auto"` stands
for what the Trainer or accelerate says, and counts as not stated.
"""

from projector.config.huggingface.setup import Compute, Engine, Setup, file_facts, rest
from projector.config.keys import Keys
from projector.config.notes import Notes
from projector.job import Sharding

MARKS = frozenset(
    {"zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size", "zero_allow_untested_optimizer"}
)
"""Keys of which every DeepSpeed configuration has one."""
STAGES = (Sharding.NONE, Sharding.OPTIMIZER, Sharding.GRADIENTS, Sharding.PARAMETERS)
"""What each ZeRO stage divides (arXiv 1910.02054)."""
AUTO = "auto"
_ACCUMULATED = {"fp32": Compute.FP32, "bf16": Compute.BF16, "fp16": Compute.FP16}
_BUCKET_ELEMENTS = 500_000_000
"""Default of `reduce_bucket_size`."""
_BUCKET_BYTES = 2
"""Bytes of an element of a bucket in 16 bit."""


def read_deepspeed(stated: Keys, notes: Notes, *, name: str) -> tuple[Setup, list[str]]:
    """What the file decides, and its keys without influence; raises `ConfigurationError`."""
    automatic = {key for key, value in stated.values.items() if value.value == AUTO}
    keys = Keys({key: value for key, value in stated.values.items() if key not in automatic})
    zero = "zero_optimization"
    stage = keys.integer(f"{zero}.stage", 0, maximum=len(STAGES) - 1)
    group = keys.integer(f"{zero}.mics_shard_size") if keys.raw(f"{zero}.mics_shard_size") != -1 else None
    setup = Setup(
        engine=Engine.DEEPSPEED,
        sharding=STAGES[stage],
        shard_degree=group or None,
        compute=_compute(keys, automatic),
        gradient_compute=_gradients(keys),
        micro_batch=keys.integer("train_micro_batch_size_per_gpu", minimum=1),
        accumulation=keys.integer("gradient_accumulation_steps", minimum=1),
        global_batch=keys.integer("train_batch_size", minimum=1),
        offload_fraction=_offload(keys, stage=stage),
        optimizer=_optimizer(keys),
        tensor=1,
        context=1,
        places={
            "sharding": stated.place(f"{zero}.stage"),
            "compute": stated.place("bf16.enabled"),
            "micro_batch": stated.place("train_micro_batch_size_per_gpu"),
            "accumulation": stated.place("gradient_accumulation_steps"),
            "global_batch": stated.place("train_batch_size"),
            "offload_fraction": stated.place(f"{zero}.offload_optimizer.device"),
            "optimizer": stated.place("optimizer.type"),
        },
    )
    _note_buckets(keys, notes, stage=stage, name=name)
    facts = file_facts("deepspeed")
    return setup, [*rest(keys, facts, notes, name=name), *sorted(automatic)]


def _compute(keys: Keys, automatic: set[str]) -> Compute | None:
    brain = keys.boolean("bf16.enabled") | keys.boolean("bfloat16.enabled")
    half = keys.boolean("fp16.enabled")
    if brain and half:
        keys.wrong("fp16.enabled", "one of bf16 and fp16")
    if brain or half:
        return Compute.BF16 if brain else Compute.FP16
    return None if automatic & {"bf16.enabled", "bfloat16.enabled", "fp16.enabled"} else Compute.FP32


def _gradients(keys: Keys) -> Compute | None:
    key = "data_types.grad_accum_dtype"
    return None if keys.raw(key) is None else _ACCUMULATED[keys.choice(key, "fp32", _ACCUMULATED)]


def _offload(keys: Keys, *, stage: int) -> float:
    section = "zero_optimization.offload_optimizer"
    device = keys.choice(f"{section}.device", "none", ("none", "cpu", "nvme"))
    old = keys.boolean("zero_optimization.cpu_offload")
    ratio = keys.number(f"{section}.ratio", 1.0)
    if ratio > 1:
        keys.wrong(f"{section}.ratio", "a number from 0 to 1")
    if stage == 0:
        return 0.0
    return ratio if device != "none" or old else 0.0


def _optimizer(keys: Keys) -> str | None:
    kind = keys.text("optimizer.type")
    momentum = keys.number("optimizer.params.momentum", 0.0)
    return "sgd_momentum" if kind is not None and kind.lower() == "sgd" and momentum else kind


def _note_buckets(keys: Keys, notes: Notes, *, stage: int, name: str) -> None:
    """The buffers of ZeRO-1 and 2 in which gradients are collected, two of them with overlap."""
    elements = keys.number("zero_optimization.reduce_bucket_size", _BUCKET_ELEMENTS)
    keys.number("zero_optimization.allgather_bucket_size", _BUCKET_ELEMENTS)
    copies = 2 if keys.boolean("zero_optimization.overlap_comm", default=stage == len(STAGES) - 1) else 1
    if stage in {1, 2}:
        size = elements * copies * _BUCKET_BYTES / 1024**3
        notes.not_modelled(
            "DeepSpeed's reduction buckets (zero_optimization.reduce_bucket_size)",
            where=name,
            effect=f"up to {size:.1f} GiB of gradients on their way are not counted",
            decides=False,
        )
    offloaded = keys.text("zero_optimization.offload_optimizer.device", "none") != "none"
    if offloaded and stage > 1:
        notes.not_modelled(
            "offloading of gradients with their optimizer",
            where=name,
            effect="gradients in host memory are counted on the device, so that memory is an upper bound",
            decides=False,
        )
