"""Reading `models/*.yaml` into `CatalogModel`.

A file names its blocks once (`mixers`, `feed_forwards`, with the field names of `projector.job`) and says in `layers`
how often which pairs repeat: `[3, [attention, dense]]` is three equal layers, `[18, [sliding, experts], [full,
experts]]` eighteen times two.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from projector.catalog.facts import Facts, read_mapping
from projector.catalog.model import CatalogModel
from projector.errors import ConfigurationError
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
    UnmodelledMLP,
)

_Block = TypeVar("_Block")
_MIXERS: Mapping[str, type] = {"attention": Attention, "latent": LatentAttention, "unmodelled": UnmodelledMixer}
_FEED_FORWARDS: Mapping[str, type] = {"dense": DenseMLP, "experts": MixtureOfExperts, "unmodelled": UnmodelledMLP}
_NOTHING = "none"
"""Stands in `layers` for a layer without mixer or without feed-forward block."""


def read_model(path: Path) -> CatalogModel:
    """The model that a file describes.

    Raises `ConfigurationError` that names file and key when a value is missing, of the wrong type or unknown.
    """
    facts = Facts(read_mapping(path), place=path.name)
    huggingface = facts.inner("huggingface")
    name = facts.required("name", str)
    model = CatalogModel(
        name=name,
        aliases=facts.texts("aliases"),
        architecture=_architecture(facts, name),
        sources=facts.texts("sources"),
        verified=_verified(facts),
        huggingface_id=huggingface.optional("id", str),
        huggingface_class=huggingface.optional("class", str),
        parameters=facts.optional("parameters", int),
        note=facts.default("note", ""),
    )
    huggingface.finish()
    facts.finish()
    return model


def _verified(facts: Facts) -> bool:
    status = facts.required("status", str)
    if status not in {"verified", "unverified"}:
        raise ConfigurationError(
            f"{status!r}", place=f"{facts.place}.status", expected="expected verified or unverified"
        )
    return status == "verified"


def _architecture(facts: Facts, name: str) -> ModelArchitecture:
    return ModelArchitecture(
        name=name,
        hidden=facts.required("hidden", int),
        layers=_layers(facts),
        vocabulary=facts.required("vocabulary", int),
        tied_embeddings=facts.default("tied_embeddings", otherwise=False),
        norm=facts.choice("norm", NormKind, NormKind.RMS),
        position=facts.choice("position", PositionKind, PositionKind.ROTARY),
        max_position=facts.default("max_position", 0),
        multi_token_prediction_layers=facts.default("multi_token_prediction_layers", 0),
    )


def _layers(facts: Facts) -> tuple[DecoderLayer, ...]:
    mixers: Mapping[str, Mixer] = _blocks(facts.inner("mixers"), _MIXERS)
    feed_forwards: Mapping[str, FeedForward] = _blocks(facts.inner("feed_forwards"), _FEED_FORWARDS)
    post_norms = facts.default("post_norms", otherwise=False)
    groups = facts.raw("layers")
    layers: list[DecoderLayer] = []
    try:
        for repeat, *pairs in groups:  # type: ignore[attr-defined]
            group = [
                DecoderLayer(mixer=mixers[mixer], feed_forward=feed_forwards[feed_forward], post_norms=post_norms)
                for mixer, feed_forward in pairs
            ]
            layers += group * repeat
    except (TypeError, ValueError, KeyError) as error:
        raise ConfigurationError(
            f"{groups!r}",
            place=f"{facts.place}.layers",
            expected="expected a list of [times, [mixer, feed-forward], ...] with names from mixers and feed_forwards",
        ) from error
    return tuple(layers)


def _blocks(facts: Facts, kinds: Mapping[str, type[Any]]) -> dict[str, Any]:
    blocks: dict[str, Any] = {_NOTHING: None}
    for name in facts:
        block = facts.inner(name)
        kind = block.required("kind", str)
        if kind not in kinds:
            raise ConfigurationError(f"{kind!r}", place=f"{block.place}.kind", expected=f"expected {', '.join(kinds)}")
        blocks[name] = _block(kinds[kind], block)
    return blocks


def _block(kind: type[_Block], facts: Facts) -> _Block:
    """A value of one of the job's block classes, each field read with its own type."""
    hints = get_type_hints(kind)
    values = {}
    for item in fields(kind):  # type: ignore[arg-type]
        scalar = next(option for option in (*get_args(hints[item.name]), hints[item.name]) if option is not NoneType)
        optional = item.default is not MISSING or NoneType in get_args(hints[item.name])
        value = facts.optional(item.name, scalar) if optional else facts.required(item.name, scalar)
        if value is not None:
            values[item.name] = value
        elif item.default is MISSING:
            values[item.name] = None
    facts.finish()
    return kind(**values)
