"""Older spellings of Megatron-LM's arguments, and those of its forks -> today's.

What a person states in today's words always wins.
"""

import re
from collections.abc import Mapping
from functools import cache

from projector.config.megatron.facts import VERSION_KEYS
from projector.config.megatron.flags import flags
from projector.config.megatron.values import Collected
from projector.config.notes import Notes
from projector.errors import shown
from projector.provenance import ConfigValue, Source

_RENAMED = {
    "encoder_num_layers": "num_layers",
    "encoder_seq_length": "seq_length",
    "model_parallel_size": "tensor_model_parallel_size",
    "batch_size": "micro_batch_size",
    "checkpoint_method": "recompute_method",
    "checkpoint_num_layers": "recompute_num_layers",
    "distribute_checkpointed_activations": "distribute_saved_activations",
    "moe_train_capacity_factor": "moe_expert_capacity_factor",
    "num_key_value_heads": "num_query_groups",
    "num_moe_experts": "num_experts",
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
    "fp8_param": "fp8_param_gather",
}
"""Today's name by an older name, a fork's, or that of `TransformerConfig`.

Sources: megatron/arguments.py of NVIDIA/Megatron-LM v1.1 to v3.0 and of deepspeedai/Megatron-DeepSpeed;
megatron/core/transformer/transformer_config.py of megatron-core 0.19.2.
"""
_IMPLIED: Mapping[str, Mapping[str, object]] = {
    "checkpoint_activations": {
        "recompute_granularity": "full",
        "recompute_method": "uniform",
        "recompute_num_layers": 1,
    },
    "checkpoint_method": {"recompute_granularity": "full", "recompute_num_layers": 1},
    "num_key_value_heads": {"group_query_attention": True},
}
"""What else an older spelling switches on, where its value is not false."""
_BEFORE_CORE = (
    "apply_query_key_layer_scaling",
    "expert_parallel",
    "checkpoint_activations",
    "checkpoint_method",
    "checkpoint_num_layers",
    "model_spec",
    "DDP_impl",
    "data_impl",
    "deepspeed",
    "deepspeed_config",
    "zero_stage",
)
"""Arguments that only versions without Transformer Engine as the default take; the first with the value false.

Megatron-DeepSpeed forked from one of them. Sources: megatron/arguments.py of NVIDIA/Megatron-LM 00129014 and v3.0 and
of deepspeedai/Megatron-DeepSpeed; `DDP_impl` went with NVIDIA/Megatron-LM 3fb3e95e.
"""
LAYER_WISE_SINCE = (0, 18)
"""The version of megatron-core whose distributed optimizer divides whole matrices where the optimizer is Muon."""
_VERSION = re.compile(r"(\d{1,3})\.(\d{1,3})", re.ASCII)
_TRANSFORMER_ENGINE_SINCE, _FSDP_SHARDS_SINCE = (0, 6), (0, 18)
"""Versions of megatron-core in which `transformer_impl` and `data_parallel_sharding_strategy` got today's defaults."""


def today(key: str) -> str:
    """Today's name of an argument."""
    return _RENAMED.get(key, key)


@cache
def other_names() -> Mapping[str, str]:
    """Today's argument by every other name that it has: flags that are kept under another one, and older ones."""
    flags_ = {name.replace("-", "_"): flag.key for name, flag in flags().items()}
    return {name: today(key) for name, key in {**flags_, **_RENAMED}.items() if name != today(key)}


def settle(arguments: Collected) -> None:
    """Put today's arguments in the place of older spellings; an older one beside today's stays, without effect."""
    older = dict(arguments.values)
    for former, today_ in _RENAMED.items():
        stated, problem = arguments.values.get(former), arguments.unusable.get(former)
        if stated is None:
            continue
        current = arguments.values.get(today_)
        if current is None or current.value is None:
            if stated.value is not None:
                arguments.put(today_, stated.value, stated.source, problem=problem)
            arguments.drop(former)
    for former, implied in _IMPLIED.items():
        stated = older.get(former)
        if stated is None or stated.value in {None, False}:
            continue
        for key, value in implied.items():
            if key not in arguments.values:
                arguments.put(key, value, stated.source)
    arguments.drop("checkpoint_activations")
    low = arguments.values.get("fp8")
    if low is not None and low.value is True:
        arguments.put("fp8", "hybrid", low.source)


def note_contradictions(values: Mapping[str, ConfigValue], notes: Notes) -> None:
    """Name the older spellings that differ from today's argument beside them, unless an override gives the latter."""
    for former, today_ in _RENAMED.items():
        older, current = values.get(former), values.get(today_)
        if older is None or current is None or current.source is Source.OVERRIDE:
            continue
        if older.value is not None and str(older.value) != str(current.value):
            notes.not_modelled(
                f"{former} {shown(older.value)} beside {today_} {shown(current.value)}",
                where=f"{older.file}: {former}",
                effect=f"they mean the same, and {today_} counts",
                decides=True,
            )


def version_defaults(values: Mapping[str, ConfigValue], notes: Notes) -> dict[str, object]:
    """Defaults of absent arguments, by the version that is stated or that the arguments themselves betray.

    Without either, those of megatron-core 0.19. Sources: the parsers named in megatron-arguments.yaml, and
    megatron/arguments.py of NVIDIA/Megatron-LM v3.0 to core_r0.5.
    """
    version, why = _version(values)
    defaults: dict[str, object] = {"num_query_groups": 1, "data_parallel_sharding_strategy": "optim_grads_params"}
    if version is not None and version < _FSDP_SHARDS_SINCE:
        defaults["data_parallel_sharding_strategy"] = "no_shard"
    sharded = any(key in values and values[key].value is True for key in ("use_megatron_fsdp", "use_custom_fsdp"))
    if sharded and "data_parallel_sharding_strategy" not in values:
        strategy = defaults["data_parallel_sharding_strategy"]
        notes.assume(f"data_parallel_sharding_strategy {strategy}", f"the default of {why}; state it to use another")
    if version is not None and version < _TRANSFORMER_ENGINE_SINCE and "transformer_impl" not in values:
        defaults["transformer_impl"] = "local"
        notes.assume("transformer_impl local", f"the default of {why}; state transformer_impl to use another")
    elif "transformer_impl" not in values:
        notes.assume(
            "Transformer Engine's layers, with flash or fused attention in 16 bits",
            f"the default of {why}; transformer_impl=local means Megatron-LM's own layers",
        )
    return defaults


def stated_version(values: Mapping[str, ConfigValue]) -> tuple[int, int] | None:
    """The version of megatron-core that a person states; None where nobody does."""
    for key in VERSION_KEYS:
        stated = _VERSION.match(str(values[key].value)) if key in values else None
        if stated is not None:
            return int(stated[1]), int(stated[2])
    return None


def _version(values: Mapping[str, ConfigValue]) -> tuple[tuple[int, ...] | None, str]:
    """The version of megatron-core, None for the newest, and how it is known."""
    stated = stated_version(values)
    if stated is not None:
        return stated, f"megatron-core {stated[0]}.{stated[1]}"
    for key in _BEFORE_CORE:
        if key in values and not (key == "apply_query_key_layer_scaling" and values[key].value is True):
            return (0, 4), f"Megatron-LM before Megatron-Core 0.6, the last to take {key}"
    return None, "megatron-core 0.19"
