"""A DeepSpeed configuration -> what it decides about a run.

Meanings and defaults are those of deepspeedai/DeepSpeed deepspeed/runtime/config.py and zero/config.py. `"auto"` counts
as not stated where the Trainer fills it; elsewhere DeepSpeed refuses it, and so does the reader.
"""

from projector.config.huggingface.setup import Buckets, Compute, Engine, Kind, Setup, file_facts, rest
from projector.config.keys import Keys
from projector.config.notes import Notes
from projector.errors import ConfigurationError
from projector.job import ZERO_STAGES, Sharding
from projector.job.limits import MAXIMUM_INTEGER

MARKS = frozenset(
    {"zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size", "zero_allow_untested_optimizer"}
)
"""Keys of which every DeepSpeed configuration has one."""
AUTO = "auto"
_TYPES = {"fp32": Compute.FP32, "bf16": Compute.BF16, "fp16": Compute.FP16}
TILE_ELEMENTS = 10**9
"""Default of `sub_group_size`: parameters that a step of ZeRO-3 takes at a time."""
_LIVE_ELEMENTS = 1e9
"""Default of `stage3_max_live_parameters` and of `stage3_max_reuse_distance`."""


def read_deepspeed(stated: Keys, notes: Notes, *, name: str) -> tuple[Setup, list[str]]:
    """What the file decides, and its keys without influence; raises `ConfigurationError`."""
    facts = file_facts(Kind.DEEPSPEED)
    automatic = {key for key, value in stated.values.items() if value.value == AUTO and key in facts.filled}
    keys = Keys({key: value for key, value in stated.values.items() if key not in automatic})
    zero = "zero_optimization"
    stage = keys.integer(f"{zero}.stage", 0, maximum=len(ZERO_STAGES) - 1)
    group = keys.integer(f"{zero}.mics_shard_size") if keys.raw(f"{zero}.mics_shard_size") != -1 else None
    fraction = _offload(keys, stage=stage)
    setup = Setup(
        engine=Engine.DEEPSPEED,
        sharding=ZERO_STAGES[stage],
        shard_degree=group or None,
        compute=_compute(keys, automatic),
        gradient_compute=_gradients(keys),
        micro_batch=keys.integer("train_micro_batch_size_per_gpu", minimum=1),
        accumulation=keys.integer("gradient_accumulation_steps", minimum=1),
        global_batch=keys.integer("train_batch_size", minimum=1),
        offload_fraction=fraction,
        offload_shards=offloads_shards(_offloads_weights(keys), fraction, notes, stage=stage, where=name),
        offload_gradients=offloads_gradients(fraction, stage=stage),
        step_elements=_tile(keys) if ZERO_STAGES[stage] is Sharding.PARAMETERS else None,
        buckets=_buckets(keys, automatic),
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
    _note_automatic(automatic, notes)
    _note_transients(keys, notes, stage=stage, name=name)
    return setup, [*rest(keys, facts, notes, name=name), *sorted(automatic)]


def _compute(keys: Keys, automatic: set[str]) -> Compute | None:
    brain = keys.boolean("bf16.enabled") | keys.boolean("bfloat16.enabled")
    half = keys.boolean("fp16.enabled")
    if brain and half:
        message = "fp16 and bf16 are both enabled"
        raise ConfigurationError(message, place=keys.place("fp16.enabled"), expected="one of the two")
    if brain or half:
        return Compute.BF16 if brain else Compute.FP16
    return None if automatic & {"bf16.enabled", "bfloat16.enabled", "fp16.enabled"} else Compute.FP32


def _gradients(keys: Keys) -> Compute | None:
    key = "data_types.grad_accum_dtype"
    return None if keys.raw(key) is None else _TYPES[keys.choice(key, "fp32", _TYPES)]


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


def _buckets(keys: Keys, automatic: set[str]) -> Buckets:
    """The buffers of gradients (runtime/zero/stage_1_and_2.py and stage3.py)."""
    zero, usual = "zero_optimization", Buckets()
    size = f"{zero}.reduce_bucket_size"
    stated = keys.number(size)
    elements = None if size in automatic else usual.elements if stated is None else int(stated)
    keys.number(f"{zero}.allgather_bucket_size")
    overlapped = keys.raw(f"{zero}.overlap_comm") is not None
    kind = keys.text("communication_data_type")
    if kind is not None and kind.lower() not in _TYPES:
        keys.wrong("communication_data_type", f"one of {', '.join(_TYPES)}")
    wide = keys.boolean("fp32_allreduce")
    return Buckets(
        elements=elements,
        overlapped=keys.boolean(f"{zero}.overlap_comm") if overlapped else None,
        contiguous=keys.boolean(f"{zero}.contiguous_gradients", default=True),
        element_type=_TYPES[kind.lower()] if kind is not None else Compute.FP32 if wide else None,
    )


def _note_automatic(automatic: set[str], notes: Notes) -> None:
    """Say what is taken for an `auto` that decides and that nothing beside the file has to state."""
    if "zero_optimization.reduce_bucket_size" in automatic:
        why = "zero_optimization.reduce_bucket_size is auto, which the Trainer makes hidden_size squared"
        notes.assume("reduction buckets of hidden_size x hidden_size gradients", why)
    if "amp.enabled" in automatic:
        notes.assume("no NVIDIA Apex", "amp.enabled is auto, and the Trainer switches it on for its Apex backend alone")


def _note_transients(keys: Keys, notes: Notes, *, stage: int, name: str) -> None:
    """Say what a ZeRO stage holds for a while and the engine does not count, with its size."""
    zero = "zero_optimization"
    live = keys.number(f"{zero}.stage3_max_live_parameters", _LIVE_ELEMENTS)
    keys.number(f"{zero}.stage3_max_reuse_distance")
    keys.number(f"{zero}.stage3_prefetch_bucket_size")
    note_gathered(notes, stage=stage, live=live, where=name)
    if keys.raw("communication_data_type") is not None or keys.boolean("fp32_allreduce"):
        effect = "its buffers are counted in it; the time is that of gradients as wide as they are kept"
        what = "reduction of gradients in a type of its own (communication_data_type)"
        notes.not_modelled(what, where=name, effect=effect, decides=False)


def _tile(keys: Keys) -> int | None:
    """Parameters that a step of ZeRO-3 takes at a time; None for a number that no rank's share reaches."""
    key = "zero_optimization.sub_group_size"
    stated = keys.raw(key)
    whole = isinstance(stated, int | float) and MAXIMUM_INTEGER < stated < float("inf")
    return None if whole else int(keys.number(key, TILE_ELEMENTS))


def _offloads_weights(keys: Keys) -> bool:
    zero = "zero_optimization"
    device = keys.choice(f"{zero}.offload_param.device", "none", ("none", "cpu", "nvme"))
    return device != "none" or keys.boolean(f"{zero}.cpu_offload_params")


def offloads_shards(weights: bool, fraction: float, notes: Notes, *, stage: int, where: str) -> bool | None:  # noqa: FBT001
    """Whether sharded weights live in host memory with gradients and optimizer state; only ZeRO-3 can do so.

    Source: deepspeed/runtime/zero/offload_config.py.
    """
    if not weights or ZERO_STAGES[stage] is not Sharding.PARAMETERS:
        return None
    if fraction < 1:
        notes.not_modelled(
            "offloading of weights to the host without all of the optimizer state",
            where=where,
            effect="sharded weights are counted on the device",
            decides=True,
            overstates=True,
        )
        return None
    return True


def offloads_gradients(fraction: float, *, stage: int) -> bool | None:
    """Whether gradients go to the host with optimizer state, as ZeRO-2 and 3 do (stage_1_and_2.py, stage3.py).

    One may not half be there: with a share of the state on the device the gradients of that share are too.
    """
    return (fraction == 1 and ZERO_STAGES[stage] in (Sharding.GRADIENTS, Sharding.PARAMETERS)) or None


def note_gathered(notes: Notes, *, stage: int, live: float = _LIVE_ELEMENTS, where: str) -> None:
    """Say how many gathered weights ZeRO-3 may hold back for their next use, `live` elements at most."""
    if stage < len(ZERO_STAGES) - 1:
        return
    notes.not_modelled(
        "gathered weights that ZeRO-3 keeps for their next use (zero_optimization.stage3_max_live_parameters)",
        where=where,
        effect=f"up to {live * 2 / 1024**3:.1f} GiB of them in 16 bit may live at once; two layers' are counted",
        decides=live > _LIVE_ELEMENTS,
    )
