"""A config.json trained by Megatron-LM: nothing lies beside it, or a file of accelerate that says MEGATRON_LM."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from projector.config.huggingface.facts import FILE, huggingface_facts
from projector.config.huggingface.setup import Compute, Engine, Setup
from projector.config.huggingface.training import Trained, complain_missing
from projector.config.megatron.facts import megatron_facts
from projector.config.megatron.flags import keys_of_flags
from projector.config.megatron.job import Arguments
from projector.config.megatron.job import load as load_arguments
from projector.provenance import Assumption, ConfigValue, LoadedConfiguration, Source

_EXPERTS_ALONE = ("moe_grouped_gemm", "moe_token_dispatcher_type")
_ACCELERATE_DEFAULTS = {"use_distributed_optimizer": False, "sequence_parallel": False}
"""What accelerate hands Megatron-LM where its file states nothing (utils/dataclasses.py MegatronLMPlugin)."""
_COMPUTE = {Compute.BF16: "bf16", Compute.FP16: "fp16"}
"""The argument for each type of a forward pass that is not fp32."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MegatronRun:
    """Megatron-LM's arguments beside a config.json."""

    values: Mapping[str, ConfigValue]
    """What a person states, by name."""
    name: str
    """What messages call the config.json."""


@cache
def megatron_arguments() -> frozenset[str]:
    """Every argument of Megatron-LM by the name it is kept under, those that Primus adds included."""
    return megatron_facts().known.union(keys_of_flags(), huggingface_facts().primus_arguments)


def megatron_job(trained: Trained, setup: Setup, run: MegatronRun) -> LoadedConfiguration:
    """The job under Megatron-LM; raises what its reader raises, and `ConfigurationError` for all that is missing."""
    stated = {**setup.megatron, **_mixed_precision(setup, run), **run.values}
    examples = {"seq_length": "seq_length=4096", "micro_batch_size": "micro_batch_size=1"}
    complain_missing([text for key, text in examples.items() if key not in stated], name=run.name)
    assumed = _assumed(trained, setup, stated)
    counted = setup.accumulation if "global_batch_size" not in stated else None
    # The number of micro batches stands for a global batch, which depends on a cluster that is not known yet.
    filled = {} if counted is None else {"global_batch_size": _value("global_batch_size", counted)}
    arguments = Arguments(
        values={**assumed, **filled, **stated},
        file=run.name,
        model=trained.model.name,
        known=megatron_arguments(),
        stock=True,
    )
    loaded = load_arguments(arguments, format_="huggingface", model=trained.model)
    job = loaded.job
    if counted is not None:
        job = replace(job, batch=replace(job.batch, global_=None, micro_batches=counted))
    values = {key: value for key, value in loaded.values.items() if key not in filled}
    return replace(loaded, job=job, values=values, assumed=(*_assumptions(setup, stated, assumed), *loaded.assumed))


def _mixed_precision(setup: Setup, run: MegatronRun) -> dict[str, ConfigValue]:
    """The argument for the type that a file of accelerate states, unless a person states one."""
    if setup.engine is not Engine.MEGATRON or {"bf16", "fp16"} & run.values.keys():
        return {}
    place = setup.places.get("compute")
    return {
        argument: ConfigValue(key=argument, value=setup.compute is compute, source=Source.EXPERIMENT, file=place)
        for compute, argument in _COMPUTE.items()
    }


def _assumed(trained: Trained, setup: Setup, stated: Mapping[str, ConfigValue]) -> dict[str, ConfigValue]:
    """Arguments that nothing states: those of the framework that is assumed, and the dropout of config.json."""
    values: dict[str, object] = {
        **huggingface_facts().megatron,
        **(_ACCELERATE_DEFAULTS if setup.engine is Engine.MEGATRON else {}),
        "attention_dropout": trained.attention_dropout,
        "hidden_dropout": trained.hidden_dropout,
    }
    if not trained.model.expert_blocks:
        values = {key: value for key, value in values.items() if key not in _EXPERTS_ALONE}
    tensor = stated.get("tensor_model_parallel_size")
    if tensor is None or tensor.value is None or tensor.value == 1:
        del values["sequence_parallel"]
    if "fp16" in stated and stated["fp16"].value is True:
        del values["bf16"]
    elif "bf16" in stated and stated["bf16"].value is not True:
        # A fused kernel of attention works in 16 bits alone.
        del values["use_flash_attn"]
    return {key: _value(key, value) for key, value in values.items() if key not in stated}


def _value(key: str, value: object) -> ConfigValue:
    return ConfigValue(key=key, value=value, source=Source.CATALOG, file=str(FILE))


def _assumptions(
    setup: Setup, stated: Mapping[str, ConfigValue], assumed: Mapping[str, ConfigValue]
) -> list[Assumption]:
    """What is assumed of the framework, and what a person replaced of its file."""
    if setup.engine is not Engine.MEGATRON:
        what = (
            "Megatron-LM with Transformer Engine, bf16, distributed optimizer, sequence parallelism with tensor"
            " parallelism"
        )
        why = (
            "no file of DeepSpeed, FSDP or accelerate lies beside config.json; give one (--with FILE), or state"
            " Megatron-LM's arguments by name"
        )
        return [Assumption(what=what, why=why)]
    notes = []
    place = setup.places.get("engine", "accelerate")
    off = [name for name in _ACCELERATE_DEFAULTS if name in assumed]
    without = f", without {' and '.join(off)}" if off else ""
    why = f"{place} says MEGATRON_LM, and accelerate leaves the rest as it is; state Megatron-LM's arguments by name"
    notes.append(Assumption(what=f"Megatron-LM with Transformer Engine{without}", why=why))
    if setup.accumulation is not None and "global_batch_size" in stated:
        what = f"{stated['global_batch_size'].value} sequences an iteration, and not {setup.accumulation} micro batches"
        why = "global_batch_size replaces megatron_lm_num_micro_batches of the file"
        notes.append(Assumption(what=what, why=why))
    return notes
