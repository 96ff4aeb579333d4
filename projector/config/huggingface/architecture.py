"""A Hugging Face config.json -> `ModelArchitecture`, by the facts of its family."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints

from projector.config.huggingface.facts import RATES, Family
from projector.config.huggingface.layers import (
    CHOSEN,
    CHUNKED,
    COMPRESSED,
    FULL,
    SLIDING,
    expert_layers,
    layer_types,
)
from projector.config.keys import Keys
from projector.config.notes import Notes
from projector.errors import ConfigurationError, LayoutImpossible
from projector.job import (
    Attention,
    DecoderLayer,
    DenseMLP,
    FeedForward,
    LatentAttention,
    Mixer,
    MixtureOfExperts,
    ModelArchitecture,
    NormKind,
    PositionKind,
    UnmodelledMixer,
)
from projector.job.limits import MAXIMUM_LAYERS

_Block = TypeVar("_Block", Attention, LatentAttention, DenseMLP, MixtureOfExperts)


def architecture(keys: Keys, family: Family, notes: Notes, *, name: str) -> ModelArchitecture:
    """The model that the values of a config.json describe, the class's defaults included.

    Raises `ConfigurationError` and `LayoutImpossible` for values that are missing or cannot be right.
    """
    model = family.fields["model"]
    family = _variant(keys, family)
    _note_part(family, notes)
    layers = _count(keys, model["layers"])
    sequence = _mixers(keys, family, layers=layers)
    return ModelArchitecture(
        name=name,
        hidden=keys.required(model["hidden"]),
        layers=tuple(
            DecoderLayer(mixer=mixer, feed_forward=block, post_norms=family.post_norms)
            for mixer, block in zip(sequence, _feed_forward(keys, family, layers=layers), strict=True)
        ),
        vocabulary=keys.required(model["vocabulary"]),
        tied_embeddings=keys.boolean(model["tied_embeddings"]),
        norm=NormKind(family.norm),
        position=PositionKind(family.position),
        max_position=_positions(keys, family),
        multi_token_prediction_layers=keys.integer(model["multi_token_prediction_layers"], 0, maximum=MAXIMUM_LAYERS)
        if "multi_token_prediction_layers" in model
        else 0,
        residual_streams=keys.required(model["residual_streams"]) if "residual_streams" in model else 1,
    )


def _count(keys: Keys, key: str) -> int:
    """The number of decoder layers; Nemotron-H writes one character, or one name, for each instead."""
    pattern = keys.text("hybrid_override_pattern") or keys.texts("layers_block_type")
    if keys.raw(key) is None and pattern:
        return min(len(pattern), MAXIMUM_LAYERS)
    return keys.required(key, maximum=MAXIMUM_LAYERS)


def _positions(keys: Keys, family: Family) -> int:
    """Rows of a learned position table; 0 for none."""
    if family.position != PositionKind.LEARNED:
        return 0
    return keys.required(family.fields["model"]["max_position"]) + family.extra_positions


def _variant(keys: Keys, family: Family) -> Family:
    """The family with what its variants change for the values at hand."""
    for variant in family.variants:
        if all(keys.boolean(key) == value for key, value in variant["when"].items()):
            groups = {group: {**stated, **variant.get(group, {})} for group, stated in family.fields.items()}
            family = replace(family, fields=groups, part=variant.get("part", family.part))
    return family


def _note_part(family: Family, notes: Notes) -> None:
    if family.part:
        decides = family.part.get("decides", True)
        where = f"models of the type {family.name}"
        notes.not_modelled(family.part["what"], where=where, effect=family.part["effect"], decides=decides)


def _mixers(keys: Keys, family: Family, *, layers: int) -> list[Mixer]:
    if family.whole:
        return [UnmodelledMixer(name=family.whole)] * layers
    if family.latent:
        return [_latent(keys, family)] * layers
    switch = family.mixers.get("switch")
    windows = switch is None or keys.boolean(switch)
    window = keys.integer("sliding_window", 0) or None if windows else None
    chunk = keys.integer("attention_chunk_size", 0) or None
    types = layer_types(keys, family, layers=layers)
    attends = {FULL, SLIDING, CHUNKED, *RATES}.intersection(types)
    full = _attention(keys, family) if attends else None
    kinds: dict[str, Mixer] = {}
    if full is not None:
        kinds = {FULL: full, SLIDING: replace(full, window=window), CHUNKED: replace(full, chunk=chunk)}
        kinds |= _compressed(keys, family, full)
    return [kinds.setdefault(kind, UnmodelledMixer(name=family.kinds.get(kind, kind))) for kind in types]


def _attention(keys: Keys, family: Family) -> Attention:
    stated = family.fields["attention"]
    key = stated["heads"]
    heads = keys.required(key)
    hidden = keys.required(family.fields["model"]["hidden"])
    if keys.integer(stated["head_dim"], minimum=1) is None and hidden % heads:
        message = f"{family.fields['model']['hidden']} {hidden} is not a multiple of {heads} heads"
        raise LayoutImpossible(message, place=keys.place(key), expected="state head_dim")
    values = _values(keys, Attention, stated)
    shared = values["key_value_heads"] = values["key_value_heads"] or heads
    values["head_dim"] = values["head_dim"] or hidden // heads
    if heads % shared:
        message = f"{heads} attention heads do not divide over {shared} key/value heads"
        raise LayoutImpossible(message, place=keys.place(key), expected=f"a multiple of {shared}")
    return Attention(**values)


def _compressed(keys: Keys, family: Family, window: Attention) -> dict[str, Mixer]:
    """The kinds with compressed keys; none in a family that has no such layers."""
    stated = family.fields["compressed"]
    if not stated:
        return {}
    chosen, all_ = (keys.integer(RATES[kind], ratio, minimum=1) for kind, ratio in ((CHOSEN, 4), (COMPRESSED, 128)))
    indexed = replace(window, compression_ratio=chosen, **_values(keys, Attention, stated))
    return {CHOSEN: indexed, COMPRESSED: replace(window, compression_ratio=all_)}


def _latent(keys: Keys, family: Family) -> LatentAttention:
    return LatentAttention(**_values(keys, LatentAttention, family.fields["latent"]))


def _feed_forward(keys: Keys, family: Family, *, layers: int) -> list[FeedForward]:
    if family.whole:
        return [None] * layers
    flags = expert_layers(keys, family, layers=layers)
    sparse: FeedForward = None
    dense: FeedForward = None
    if family.experts_at is not None:
        key = family.fields["experts"]["experts"]
        experts = keys.integer(key, 0)
        # Jamba writes one expert, Qwen-MoE none, for a dense model.
        flags = [flag and experts > 1 for flag in flags]
        if any(flags):
            values = _values(keys, MixtureOfExperts, family.fields["experts"]) | _router_groups(keys, experts)
            if values["top_k"] > experts:
                message = f"{values['top_k']} experts a token of {experts}"
                raise ConfigurationError(message, place=keys.place(family.fields["experts"]["top_k"]))
            sparse = MixtureOfExperts(**values)
    if not all(flags):
        values = _values(keys, DenseMLP, family.fields["dense"], optional=("ffn",))
        # GPT-2 and Falcon make the MLP four times as wide as the model unless a width is stated.
        values["ffn"] = values["ffn"] or 4 * keys.required(family.fields["model"]["hidden"])
        dense = DenseMLP(**values)
    return [sparse if flag else dense for flag in flags]


def _router_groups(keys: Keys, experts: int) -> dict[str, int]:
    """Groups of experts that a token chooses among first, where a limit is stated (DeepSeek-V2 and V3)."""
    groups = keys.integer("n_group", 1, minimum=1, maximum=experts)
    chosen = keys.integer("topk_group", 1, minimum=1, maximum=groups)
    if experts % groups:
        keys.wrong("n_group", f"a divisor of the {experts} experts")
    return {"expert_groups": groups, "chosen_groups": chosen}


def _values(
    keys: Keys,
    kind: type[_Block],
    stated: Mapping[str, Any],
    *,
    optional: tuple[str, ...] = ("key_value_heads", "head_dim"),
) -> dict[str, Any]:
    """The fields of a block, each read as its type says."""
    types = _types()[kind]
    return {name: _value(keys, source, types[name], optional=name in optional) for name, source in stated.items()}


def _value(keys: Keys, source: object, types: frozenset[type], *, optional: bool) -> object:
    if isinstance(source, list):
        product = 1
        for key in source:
            product *= keys.integer(key, 0)
        return product
    if not isinstance(source, str):
        return source
    if bool in types:
        return keys.boolean(source)
    if optional or type(None) in types:
        return keys.integer(source, minimum=1)
    return keys.required(source)


@cache
def _types() -> Mapping[type, Mapping[str, frozenset[type]]]:
    """The types that each field of each block may have."""
    kinds: tuple[type, ...] = (Attention, LatentAttention, DenseMLP, MixtureOfExperts)
    return {
        kind: {name: frozenset(get_args(hint) or (hint,)) for name, hint in get_type_hints(kind).items()}
        for kind in kinds
    }
