"""How config.json spells each family of architectures, with the defaults of its class in `transformers`.

The facts are data with sources, in `projector/catalog/frameworks/huggingface.yaml`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from projector import catalog
from projector.catalog.facts import read_mapping
from projector.config.switches import Switch, switch

FILE = Path("frameworks") / "huggingface.yaml"
"""The data file, relative to the catalog's folder."""
RATES = {
    "compressed_sparse_attention": "compress_rates.compressed_sparse_attention",
    "heavily_compressed_attention": "compress_rates.heavily_compressed_attention",
}
"""Where config.json says for how many tokens a compressed key stands, by the kind of a layer."""
_GROUPS = ("model", "attention", "compressed", "latent", "dense", "experts", "dropout")


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """How the architectures of one `model_type` are written down."""

    name: str
    """Its `model_type`."""
    config_class: str
    """The class in `transformers` whose defaults hold; empty for none."""
    fields: Mapping[str, Mapping[str, Any]]
    """By part of the architecture: its fields, each a key, keys to multiply, or the value itself."""
    defaults: Mapping[str, Any]
    """What the class assumes for keys that config.json leaves out."""
    latent: bool
    """Attention is multi-head latent attention."""
    mixers: Mapping[str, Any]
    """Rule for the kind of each layer's mixer where no list states it; empty for full attention."""
    experts_at: Mapping[str, Any] | None
    """Rule for the layers with experts; None for a dense model."""
    kinds: Mapping[str, str]
    """Names of mixers that the engine does not model, by layer type."""
    norm: str
    """Kind of every norm."""
    position: str
    """How positions enter."""
    aliases: Mapping[str, str]
    """Other names of its keys, beside those that all families share."""
    extra_positions: int
    """Rows of a learned position table beyond the longest sequence."""
    post_norms: bool
    """Norms behind attention and MLP too."""
    eager_attention: bool
    """The class runs attention without a fused kernel unless told otherwise."""
    whole: str
    """Name of the mixer of a family that the engine does not model at all; empty for none."""
    part: Mapping[str, Any]
    """A part of the family that is not modelled: what, effect, decides; empty for none."""
    variants: tuple[Mapping[str, Any], ...]
    """What changes when keys have the values of `when`."""

    @property
    def described(self) -> tuple[str, ...]:
        """The parts of the architecture that its layers have."""
        experts = ("experts",) if self.experts_at is not None else ()
        attention = ("latent",) if self.latent else ("attention", "compressed")
        return ("model", *attention, "dense", *experts, "dropout")

    @property
    def keys(self) -> frozenset[str]:
        """Every key that decides something, stated or not."""
        stated = [value for group in self.described for value in self.fields[group].values()]
        factors = [key for value in stated if isinstance(value, list) for key in value]
        named = [value for value in stated if isinstance(value, str)]
        rules = (self.mixers, self.experts_at or {})
        ruled = {value for rule in rules for key, value in rule.items() if key != "rule" and isinstance(value, str)}
        always = ("attention_chunk_size", "layer_types", "sliding_window")
        rates = RATES.values() if self.fields["compressed"] else ()
        return frozenset({*named, *factors, *ruled, *self.defaults, *always, *rates})


@dataclass(frozen=True, kw_only=True, slots=True)
class HuggingFaceFacts:
    """The data file, typed; families are typed when they are asked for."""

    families: Mapping[str, Mapping[str, Any]]
    """By `model_type`, as the file has them."""
    common: Mapping[str, Mapping[str, Any]]
    """Fields of a family that says nothing else."""
    ignored: frozenset[str]
    """Keys without influence on memory or time."""
    fields: frozenset[str]
    """Keys that some family reads: one that has no layer they describe may state them too."""
    unmodelled: tuple[Switch, ...]
    """Keys with an influence that the engine does not model."""
    widened: tuple[str, ...]
    """Formats of checkpoints, by `quant_method`, whose weights are widened to be trained."""
    megatron: Mapping[str, Any]
    """Megatron-LM's arguments that are assumed where no file of another framework lies beside config.json."""
    architecture_arguments: frozenset[str]
    """Megatron-LM's arguments that describe a model."""
    primus_arguments: frozenset[str]
    """Arguments of a run that Primus adds to Megatron-LM's."""


@cache
def huggingface_facts() -> HuggingFaceFacts:
    """Read the data file, once."""
    # The file ships with the package; the tests hold it to this shape.
    content: Mapping[str, Any] = read_mapping(Path(catalog.__file__).parent / FILE)
    return HuggingFaceFacts(
        families=content["families"],
        common=content["common"],
        ignored=frozenset(content["ignored"].split()),
        fields=frozenset(key for item in content["families"].values() for key in item.get("defaults", ())),
        unmodelled=tuple(switch(item) for item in content["unmodelled"]),
        widened=tuple(content["widened"].split()),
        megatron=content["megatron"],
        architecture_arguments=frozenset(content["architecture_arguments"].split()),
        primus_arguments=frozenset(content["primus_arguments"].split()),
    )


@cache
def family(name: str) -> Family | None:
    """The family whose `model_type` is `name`; None for one that the project does not know."""
    facts = huggingface_facts()
    own = facts.families.get(name)
    if own is None:
        return None
    while "like" in own:
        other = facts.families[own["like"]]
        own = {**other, **{key: value for key, value in own.items() if key != "like"}}
    experts_at = own.get("experts_at", {"rule": "all"} if "experts" in own else None)
    return Family(
        name=name,
        config_class=own.get("class", ""),
        fields={group: {**facts.common.get(group, {}), **own.get(group, {})} for group in _GROUPS},
        defaults=own.get("defaults", {}),
        latent="latent" in own,
        mixers=own.get("mixers", {}),
        experts_at=experts_at,
        kinds=own.get("kinds", {}),
        norm=own.get("norm", "rms"),
        position=own.get("position", "rotary"),
        aliases=own.get("aliases", {}),
        extra_positions=own.get("extra_positions", 0),
        post_norms=own.get("post_norms", False),
        eager_attention=own.get("eager_attention", False),
        whole=own.get("whole", ""),
        part=own.get("part", {}),
        variants=tuple(own.get("variants", ())),
    )
