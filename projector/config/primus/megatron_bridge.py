"""A Primus module of the framework `megatron_bridge` -> job: a recipe function of Megatron-Bridge and its arguments.

The function's name decides the model; its arguments are Megatron-LM's by name, so that they are read as such. What the
functions set themselves differs between them and between versions of Megatron-Bridge: layout and batch must be stated,
the rest is assumed and said (NVIDIA-NeMo/Megatron-Bridge 0.2.0 and 0.3.1 src/megatron/bridge/recipes; AMD-AGI/Primus
fd1eeabb primus/backends/megatron_bridge).
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from projector import catalog
from projector.config.document import Document
from projector.config.keys import Keys
from projector.config.megatron.facts import megatron_facts
from projector.config.megatron.job import Arguments
from projector.config.megatron.job import load as load_arguments
from projector.config.nearest import nearest
from projector.config.overriding import overridden
from projector.config.primus.experiment import Module, nulls
from projector.config.primus.facts import framework_facts, framework_values
from projector.config.tree import flatten
from projector.errors import ConfigurationError, PresetUnknown, shown
from projector.job import ModelArchitecture
from projector.provenance import Assumption, ConfigValue, LoadedConfiguration, Unmodelled

_NAME = "megatron_bridge"
_REQUIRED = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "micro_batch_size",
    "global_batch_size",
    "seq_length",
)
_READ = ("comm_overlap_config", "flavor", "hf_path", "peft", "peft_dim", "precision_config")
"""Keys that are read here; all others are Megatron-LM's."""
_ADAPTERS = ("none", "lora", "dora")
_ADAPTER_RANK = 32
"""Rank of an adapter that states none (Megatron-Bridge 0.3.1 peft/lora.py)."""
_ADAPTED = ["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"]


def load(module: Module, document: Document) -> LoadedConfiguration:
    """Map a resolved module with the document's overrides on top; raises what a reader raises."""
    facts = framework_facts(_NAME)
    known = facts.known.union(megatron_facts().known, _READ, _REQUIRED)
    stated = flatten(nulls(overridden(module.tree, document.overrides, known=known)))
    flavor = Keys(stated).text("flavor")
    if flavor is None:
        expected = "a recipe function of Megatron-Bridge, such as qwen3_8b_pretrain_config"
        raise ConfigurationError("is missing", place=f"{module.place}: flavor", expected=expected)
    function = facts.named.get(flavor, {})
    keys = Keys({**framework_values(_NAME, function), **stated})
    model = _model(keys, flavor)
    _check_stated(keys, model, module.place)
    set_by_recipe = {**facts.defaults, **_precision(keys), **_adapter(keys, flavor), **function}
    arguments = Arguments(
        values={**framework_values(_NAME, set_by_recipe), **stated},
        file=document.name,
        model=model.name,
        others=module.others,
        known=known,
    )
    loaded = load_arguments(arguments, format_="primus", model=model)
    return replace(
        loaded,
        ignored=tuple(key for key in loaded.ignored if key not in _READ),
        assumed=(*loaded.assumed, _assumed(set_by_recipe, stated, flavor)),
        unmodelled=(*loaded.unmodelled, *_not_modelled(keys)),
    )


def _assumed(set_by_recipe: Mapping[str, Any], stated: Mapping[str, ConfigValue], flavor: str) -> Assumption:
    parts = [f"{key} {value}" for key, value in set_by_recipe.items() if key not in {*stated, *_READ}]
    if "recompute_granularity" not in {*set_by_recipe, *stated}:
        parts.append("no recomputation")
    why = f"what recipe functions of Megatron-Bridge set; {flavor} may differ by version, so state what matters"
    return Assumption(what=", ".join(parts), why=why)


def _model(keys: Keys, flavor: str) -> ModelArchitecture:
    """The model whose Hugging Face configuration the recipe loads: `hf_path`, else what the function's name says."""
    repository = keys.text("hf_path")
    if repository is not None:
        try:
            return catalog.model(repository).architecture
        except PresetUnknown:
            pass
    names = framework_facts(_NAME).architectures
    beginning = max((name for name in names if flavor.startswith(f"{name}_")), key=len, default=None)
    if beginning is None:
        message = f"the catalog has no model for the recipe {shown(flavor)}"
        raise PresetUnknown(message, place=keys.place("flavor"), expected=nearest(flavor, names))
    return catalog.model(names[beginning]).architecture


def _check_stated(keys: Keys, model: ModelArchitecture, place: str) -> None:
    """Raise `ConfigurationError` for a degree or batch that only the recipe function knows."""
    experts = ("expert_model_parallel_size",) if model.expert_blocks else ()
    for key in (*_REQUIRED, *experts):
        if keys.raw(key) is None:
            expected = "state it: the recipe function's own value differs by version"
            raise ConfigurationError("is missing", place=f"{place}: {key}", expected=expected)


def _not_modelled(keys: Keys) -> Iterator[Unmodelled]:
    if (keys.text("peft") or "").lower() == "dora":
        effect = "adapters are counted as plain LoRA, without the magnitudes and norms of weights"
        yield Unmodelled(what="DoRA", where=keys.place("peft"), effect=effect, decides=False)
    overlap = keys.raw("comm_overlap_config")
    if overlap is not None:
        effect = "communication is overlapped as Megatron-LM's own arguments say"
        where = keys.place("comm_overlap_config")
        yield Unmodelled(what=f"comm_overlap_config {shown(overlap)}", where=where, effect=effect, decides=False)


def _precision(keys: Keys) -> Mapping[str, Any]:
    """What `precision_config` stands for."""
    names = framework_facts(_NAME).precisions
    name = keys.text("precision_config", "bf16_mixed").replace("-", "_")
    if name not in names:
        message = f"{shown(name)} is not known"
        raise ConfigurationError(message, place=keys.place("precision_config"), expected=nearest(name, names))
    return names[name]


def _adapter(keys: Keys, flavor: str) -> Mapping[str, Any]:
    """Low-rank adapters: `peft`, else what the kind of recipe function says; null means none, as there."""
    adapted = any(part in flavor for part in ("_finetune_", "_peft_", "_lora_"))
    kind = "lora" if adapted and "peft" not in keys.values else keys.text("peft", "none").lower()
    if kind not in _ADAPTERS:
        raise ConfigurationError(f"{kind!r} is not known", place=keys.place("peft"), expected=nearest(kind, _ADAPTERS))
    if kind == "none":
        return {}
    rank = keys.integer("peft_dim", _ADAPTER_RANK, minimum=1)
    return {"lora.enabled": True, "lora.dim": rank, "lora.target_modules": _ADAPTED}
