"""A config.json beside which no file of another framework lies: trained by Megatron-LM, with its arguments by name."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from projector.config.huggingface.facts import FILE, huggingface_facts
from projector.config.huggingface.setup import Setup
from projector.config.huggingface.training import Trained, complain_missing
from projector.config.megatron.job import Arguments
from projector.config.megatron.job import load as load_arguments
from projector.provenance import Assumption, ConfigValue, LoadedConfiguration, Source

_EXPERTS_ALONE = ("moe_grouped_gemm", "moe_token_dispatcher_type")


@dataclass(frozen=True, kw_only=True, slots=True)
class MegatronRun:
    """Megatron-LM's arguments beside a config.json."""

    values: Mapping[str, ConfigValue]
    """What a person states, by name."""
    known: frozenset[str]
    """Every name that Megatron-LM or Primus has."""
    name: str
    """What messages call the config.json."""


def megatron_job(trained: Trained, setup: Setup, run: MegatronRun) -> LoadedConfiguration:
    """The job under Megatron-LM; raises what its reader raises, and `ConfigurationError` for all that is missing."""
    stated = {**setup.megatron, **run.values}
    examples = {"seq_length": "seq_length=4096", "micro_batch_size": "micro_batch_size=1"}
    complain_missing([text for key, text in examples.items() if key not in stated], name=run.name)
    assumed = _assumed(trained, stated)
    counted = setup.accumulation if "global_batch_size" not in stated else None
    # The number of micro batches stands for a global batch, which depends on a cluster that is not known yet.
    filled = {} if counted is None else {"global_batch_size": _value("global_batch_size", counted)}
    arguments = Arguments(
        values={**assumed, **filled, **stated}, file=run.name, model=trained.model.name, known=run.known, stock=True
    )
    loaded = load_arguments(arguments, format_="huggingface", model=trained.model)
    job = loaded.job
    if counted is not None:
        job = replace(job, batch=replace(job.batch, global_=None, micro_batches=counted))
    values = {key: value for key, value in loaded.values.items() if key not in filled}
    return replace(loaded, job=job, values=values, assumed=(_framework(), *loaded.assumed))


def _assumed(trained: Trained, stated: Mapping[str, ConfigValue]) -> dict[str, ConfigValue]:
    """Arguments that nothing states: those of the framework that is assumed, and the dropout of config.json."""
    values: dict[str, object] = {
        **huggingface_facts().megatron,
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
    return {key: _value(key, value) for key, value in values.items() if key not in stated}


def _value(key: str, value: object) -> ConfigValue:
    return ConfigValue(key=key, value=value, source=Source.CATALOG, file=str(FILE))


def _framework() -> Assumption:
    return Assumption(
        what="Megatron-LM with Transformer Engine, bf16, distributed optimizer, sequence parallelism with tensor"
        " parallelism",
        why="no file of DeepSpeed, FSDP or accelerate lies beside config.json; give one (--with FILE), or state"
        " Megatron-LM's arguments by name",
    )
