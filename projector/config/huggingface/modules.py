"""How the class of a family writes its layers, from the data file and the keys of a config.json.

The facts are data with sources, in `projector/catalog/frameworks/huggingface-modules.yaml`.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from projector import catalog
from projector.catalog.facts import read_mapping
from projector.config.huggingface.facts import huggingface_facts
from projector.config.keys import Keys
from projector.job import (
    Attention,
    DenseMLP,
    LatentAttention,
    ModelArchitecture,
    ModuleForms,
    NormForm,
    PositionKind,
)
from projector.provenance import ConfigValue, Source

FILE = Path("frameworks") / "huggingface-modules.yaml"
"""The data file, relative to the catalog's folder."""
_ACTIVATIONS = ("hidden_act", "activation_function", "hidden_activation")
"""Keys that name an activation."""

_SWITCHES = (
    "packed_values",
    "joined_heads",
    "parallel_blocks",
    "narrow_scores",
    "capped_scores",
    "wide_rotary",
    "copied_rotary",
)
"""Fields that are true or false, or as a key of config.json says."""


def module_forms(family: str, keys: Keys, model: ModelArchitecture) -> ModuleForms:
    """How the class of a family writes the layers of a model."""
    facts = _facts(family)
    return ModuleForms(
        norm=NormForm(facts.get("norm", NormForm.ROUNDED)),
        **{name: _decided(keys, facts.get(name, False)) for name in _SWITCHES},
        dense_tensors=_activation(keys, facts, model),
        expert_tensors=facts.get("expert_tensors", 1),
        **_router(keys, facts.get("router", {})),
        rotary_width=round(facts.get("rotary_share", 1) * _rotary_width(model)),
    )


def catalog_forms(class_name: str | None, model: ModelArchitecture) -> ModuleForms:
    """The same for a model of the catalog, with the defaults of its class in `transformers`."""
    families = huggingface_facts().families
    wanted = (class_name or "").replace("ForCausalLM", "Config")
    name = next((name for name, facts in families.items() if facts.get("class") == wanted), "")
    defaults = families[name].get("defaults", {}) if name else {}
    values = {key: ConfigValue(key=key, value=value, source=Source.CATALOG) for key, value in defaults.items()}
    return module_forms(name, Keys(values), model)


def repeats_keys(family: str) -> bool:
    """Whether the class copies keys and values to every query head, whatever kernel runs."""
    return bool(_facts(family).get("repeated_key_values", False))


@cache
def _content() -> Mapping[str, Any]:
    # The file ships with the package; the tests hold it to this shape.
    return read_mapping(Path(catalog.__file__).parent / FILE)


def _facts(family: str) -> Mapping[str, Any]:
    """What is stated of a family, or of the one that it is like; empty for a family like Llama."""
    own: Mapping[str, Mapping[str, Any]] = _content()["families"]
    families = huggingface_facts().families
    while family not in own and family in families and "like" in families[family]:
        family = families[family]["like"]
    return own.get(family, {})


def _decided(keys: Keys, stated: object) -> bool:
    return keys.boolean(stated) if isinstance(stated, str) else bool(stated)


def _activation(keys: Keys, facts: Mapping[str, Any], model: ModelArchitecture) -> int:
    """What an activation without a gate keeps; a gated one keeps the same whatever its name."""
    if not any(isinstance(layer.feed_forward, DenseMLP) and not layer.feed_forward.gated for layer in model.layers):
        return 1
    stated = (keys.text(key) for key in _ACTIVATIONS)
    name = next((name for name in stated if name), facts.get("activation"))
    tensors: Mapping[str | None, int] = _content()["activations"]
    return tensors.get(name, 1)


def _router(keys: Keys, stated: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of what routing keeps."""
    counts = {name: stated.get(name, 0) for name in ("token", "expert", "choice")}
    counts["token"] += sum(each * keys.integer(key, 0) for key, each in stated.get("by_key", {}).items())
    for key, more in stated.get("by_switch", {}).items():
        if keys.boolean(key):
            counts = {name: count + more.get(name, 0) for name, count in counts.items()}
    sizes = {f"router_{name}_bytes": count for name, count in counts.items()}
    return {**sizes, "wide_router_input": stated.get("wide_input", False)}


def _rotary_width(model: ModelArchitecture) -> int:
    if model.position is not PositionKind.ROTARY:
        return 0
    for layer in model.layers:
        match layer.mixer:
            case Attention():
                return round(layer.mixer.head_dim * model.rotary_share)
            case LatentAttention():
                return layer.mixer.query_key_rope_dim
            case _:
                continue
    return 0
