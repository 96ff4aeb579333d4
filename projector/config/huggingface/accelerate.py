"""A configuration of accelerate -> what it decides about a run.

Meanings are those of huggingface/accelerate src/accelerate/commands/config/config_args.py and utils/dataclasses.py.
"""

from dataclasses import replace

from projector.config.huggingface.deepspeed import (
    AUTO,
    TILE_ELEMENTS,
    note_gathered,
    offloads_gradients,
    offloads_shards,
)
from projector.config.huggingface.fsdp import fsdp_setup
from projector.config.huggingface.setup import Compute, Engine, Kind, Setup, file_facts, plain, rest
from projector.config.keys import Keys
from projector.config.notes import Notes
from projector.errors import LayoutImpossible
from projector.job import ZERO_STAGES, Sharding
from projector.provenance import ConfigValue

MARKS = frozenset({"distributed_type", "compute_environment", "mixed_precision"})
"""Keys of which every configuration of accelerate has one."""
_ENGINES = {
    "DEEPSPEED": Engine.DEEPSPEED,
    "FSDP": Engine.FSDP,
    "MULTI_GPU": Engine.DDP,
    "NO": Engine.DDP,
    "MEGATRON_LM": Engine.MEGATRON,
}
"""`distributed_type` by what it starts."""
_COMPUTE = {"no": Compute.FP32, "bf16": Compute.BF16, "fp16": Compute.FP16, "fp8": Compute.BF16}
_STAGE = 2
"""The ZeRO stage where nothing states one (DeepSpeedPlugin)."""
_MEGATRON = {
    "megatron_lm_tp_degree": "tensor_model_parallel_size",
    "megatron_lm_pp_degree": "pipeline_model_parallel_size",
    "megatron_lm_sequence_parallelism": "sequence_parallel",
    "megatron_lm_recompute_activations": "recompute_activations",
    "megatron_lm_use_distributed_optimizer": "use_distributed_optimizer",
}
"""Keys of `megatron_lm_config` and the arguments of Megatron-LM that they become."""


def read_accelerate(keys: Keys, notes: Notes, *, name: str) -> tuple[Setup, list[str]]:
    """What the file decides, and its keys without influence; raises `ConfigurationError` and `LayoutImpossible`."""
    keys = _words(keys)
    engine = _ENGINES[keys.choice("distributed_type", "NO", _ENGINES)]
    refers = keys.text("deepspeed_config.deepspeed_config_file") if engine is Engine.DEEPSPEED else None
    setup = replace(_of_engine(keys, engine, refers, notes), engine=engine)
    nodes, per_node = _cluster(keys, notes)
    precision = keys.choice("mixed_precision", "no", _COMPUTE) if _is_set(keys, "mixed_precision") else None
    if precision == "fp8":
        effect = "linear layers are counted in bf16"
        notes.not_modelled("fp8 of accelerate", where=keys.place("mixed_precision"), effect=effect, decides=True)
    unstated = None if refers is not None else Compute.FP32
    setup = replace(
        setup,
        compute=unstated if precision is None else _COMPUTE[precision],
        accumulation=setup.accumulation or _whole(keys, "gradient_accumulation_steps") or None,
        nodes=nodes,
        devices_per_node=per_node,
        deepspeed_file=refers,
        places={**setup.places, "compute": keys.place("mixed_precision"), "engine": keys.place("distributed_type")},
    )
    return setup, rest(keys, file_facts(Kind.ACCELERATE), notes, name=name)


def _words(keys: Keys) -> Keys:
    """With truth as truth, and the word `no` where YAML makes it false."""
    values = plain(keys)
    for key, word in (("distributed_type", "NO"), ("mixed_precision", "no")):
        if key in values and values[key].value is False:
            values[key] = replace(values[key], value=word)
    return Keys(values)


def _is_set(keys: Keys, key: str) -> bool:
    return keys.raw(key) is not None


def _of_engine(keys: Keys, engine: Engine, refers: str | None, notes: Notes) -> Setup:
    match engine:
        case Engine.DEEPSPEED:
            return _deepspeed(keys, notes) if refers is None else Setup()
        case Engine.FSDP:
            return _meshed(keys, fsdp_setup(keys, "fsdp_config.fsdp_"))
        case Engine.MEGATRON:
            return _megatron(keys)
        case _:
            return Setup(sharding=Sharding.NONE)


def _deepspeed(keys: Keys, notes: Notes) -> Setup:
    section = "deepspeed_config"
    stage = keys.integer(f"{section}.zero_stage", maximum=len(ZERO_STAGES) - 1)
    if stage is None:
        notes.assume(f"ZeRO stage {_STAGE}", f"the default of accelerate; say {section}.zero_stage to use another")
        stage = _STAGE
    note_gathered(notes, stage=stage, where=keys.place(f"{section}.zero_stage"))
    device = keys.choice(f"{section}.offload_optimizer_device", "none", ("none", "cpu", "nvme"))
    weights = keys.choice(f"{section}.offload_param_device", "none", ("none", "cpu", "nvme"))
    fraction = float(device != "none")
    where = keys.place(f"{section}.offload_param_device")
    return Setup(
        sharding=ZERO_STAGES[stage],
        accumulation=_whole(keys, f"{section}.gradient_accumulation_steps"),
        offload_fraction=fraction,
        offload_shards=offloads_shards(weights != "none", fraction, notes, stage=stage, where=where),
        offload_gradients=offloads_gradients(fraction, stage=stage),
        step_elements=TILE_ELEMENTS if ZERO_STAGES[stage] is Sharding.PARAMETERS else None,
        places={"sharding": keys.place(f"{section}.zero_stage")},
    )


def _whole(keys: Keys, key: str) -> int | None:
    """A whole number; `auto` counts as not stated."""
    if keys.raw(key) == AUTO:
        return None
    return keys.integer(key)


def _meshed(keys: Keys, setup: Setup) -> Setup:
    """FSDP with the degrees of `parallelism_config`, which go before the strategy's own."""
    section = "parallelism_config.parallelism_config_"
    shard = keys.integer(f"{section}dp_shard_size", minimum=1)
    copies = keys.integer(f"{section}dp_replicate_size", 1, minimum=1)
    tensor = keys.integer(f"{section}tp_size", 1, minimum=1)
    context = keys.integer(f"{section}cp_size", 1, minimum=1)
    # Context-parallel ranks hold shards too (accelerate parallelism_config.py: dp_shard_cp).
    degree = shard * context if shard is not None and copies > 1 else None
    return replace(
        setup,
        tensor=tensor,
        context=context,
        shard_degree=degree,
        within_node=False if degree is not None else setup.within_node,
    )


def _megatron(keys: Keys) -> Setup:
    values: dict[str, ConfigValue] = {}
    for key, argument in _MEGATRON.items():
        full = f"megatron_lm_config.{key}"
        value = keys.raw(full)
        if value is not None:
            stated = keys.values[full]
            values[argument] = ConfigValue(key=full, value=value, source=stated.source, file=stated.file)
    return Setup(
        accumulation=keys.integer("megatron_lm_config.megatron_lm_num_micro_batches", minimum=1), megatron=values
    )


def _cluster(keys: Keys, notes: Notes) -> tuple[int | None, int | None]:
    """Hosts and GPUs of one; processes of an unknown number of hosts state neither."""
    nodes, processes = keys.integer("num_machines", minimum=1), keys.integer("num_processes", minimum=1)
    if nodes is None or processes is None:
        if processes is not None:
            why = "num_machines is not stated; say how many nodes of how many GPUs there are"
            notes.assume(f"num_processes {processes} says nothing about the cluster", why)
        return nodes, None
    if processes % nodes:
        message = f"{processes} processes do not divide over {nodes} machines"
        raise LayoutImpossible(message, place=keys.place("num_processes"), expected=f"a multiple of {nodes}")
    return nodes, processes // nodes
