"""Reading `models/*.yaml` into `CatalogModel`, or into `RefusedModel` where the file says `refused`.

A file names its blocks once (`mixers`, `feed_forwards`, with the field names of `projector.job`) and says in `layers`
how often which pairs repeat: `[3, [attention, dense]]` is three equal layers, `[18, [sliding, experts], [full,
experts]]` eighteen times two. `post_norms: true` holds for every layer; `[attention, dense, post_norms]` for one.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from projector.catalog.facts import Facts, read_mapping
from projector.catalog.model import CatalogModel, ModelStatus, RefusedModel
from projector.catalog.record import record
from projector.errors import ConfigurationError, shown
from projector.job import (
    Attention,
    DecoderLayer,
    DenseMLP,
    FeedForward,
    LatentAttention,
    Mixer,
    MixtureOfExperts,
    ModelArchitecture,
    UnmodelledMixer,
    UnmodelledMLP,
)
from projector.job.limits import MAXIMUM_LAYERS

MIXERS: Mapping[str, type] = {"attention": Attention, "latent": LatentAttention, "unmodelled": UnmodelledMixer}
"""Kinds of blocks under `mixers`."""
FEED_FORWARDS: Mapping[str, type] = {"dense": DenseMLP, "experts": MixtureOfExperts, "unmodelled": UnmodelledMLP}
"""Kinds of blocks under `feed_forwards`."""
NOTHING = "none"
"""Stands in `layers` for a layer without mixer or without feed-forward block."""
POST_NORMS = "post_norms"
"""The key, and the third word of a pair, for layers with norms behind their blocks."""
_GROUP = "[times, [mixer, feed-forward], ...] with names from mixers and feed_forwards"


def read_model(path: Path) -> CatalogModel | RefusedModel:
    """The model that a file describes or refuses.

    Raises `ConfigurationError` that names file and key when a value is missing, of the wrong type or unknown.
    """
    facts = Facts(read_mapping(path), place=path.name)
    name = facts.required("name", str)
    if "refused" in facts:
        return _refused(facts, name)
    huggingface = facts.inner("huggingface")
    model = CatalogModel(
        name=name,
        aliases=facts.texts("aliases"),
        architecture=architecture(facts, name),
        sources=facts.texts("sources"),
        status=_status(facts),
        huggingface_id=huggingface.optional("id", str),
        huggingface_class=huggingface.optional("class", str),
        parameters=facts.optional("parameters", int),
        note=facts.default("note", ""),
    )
    huggingface.finish()
    facts.finish()
    return model


def _refused(facts: Facts, name: str) -> RefusedModel:
    model = RefusedModel(
        name=name,
        aliases=facts.texts("aliases"),
        reason=facts.required("refused", str),
        sources=facts.texts("sources"),
    )
    facts.finish()
    return model


def _status(facts: Facts) -> ModelStatus:
    stated = facts.required("status", str)
    if stated not in set(ModelStatus):
        expected = f"expected one of {', '.join(ModelStatus)}"
        raise ConfigurationError(shown(stated), place=f"{facts.place}.status", expected=expected)
    return ModelStatus(stated)


def architecture(facts: Facts, name: str) -> ModelArchitecture:
    """The model, called `name`, from the keys that describe it; raises `ConfigurationError`."""
    return record(ModelArchitecture, facts, name=name, layers=_layers(facts))


def _layers(facts: Facts) -> tuple[DecoderLayer, ...]:
    mixers: Mapping[str, Mixer] = _blocks(facts.inner("mixers"), MIXERS)
    feed_forwards: Mapping[str, FeedForward] = _blocks(facts.inner("feed_forwards"), FEED_FORWARDS)
    every = facts.default(POST_NORMS, otherwise=False)
    place, groups = f"{facts.place}.layers", facts.raw("layers")
    if not isinstance(groups, list) or not groups:
        raise ConfigurationError(shown(groups), place=place, expected=f"expected a list of {_GROUP}")
    layers: list[DecoderLayer] = []
    for group in groups:
        try:
            repeat, *pairs = group
            several = [
                DecoderLayer(
                    mixer=mixers[mixer], feed_forward=feed_forwards[feed_forward], post_norms=_post_norms(rest) or every
                )
                for mixer, feed_forward, *rest in pairs
            ]
            count = _count(repeat) * _count(len(several))
        except (TypeError, ValueError, KeyError) as error:
            raise ConfigurationError(shown(group), place=place, expected=f"expected {_GROUP}") from error
        if len(layers) + count > MAXIMUM_LAYERS:
            raise ConfigurationError(shown(group), place=place, expected=f"expected at most {MAXIMUM_LAYERS} layers")
        layers += several * repeat
    return tuple(layers)


def _count(number: object) -> int:
    if type(number) is not int or number < 1:
        raise ValueError
    return number


def _post_norms(words: list[object]) -> bool:
    if words not in ([], [POST_NORMS]):
        raise ValueError
    return bool(words)


def _blocks(facts: Facts, kinds: Mapping[str, type[Any]]) -> dict[str, Any]:
    blocks: dict[str, Any] = {NOTHING: None}
    for name in facts:
        if name == NOTHING:
            place, expected = f"{facts.place}.{name}", "another name: this one stands for no block"
            raise ConfigurationError("is the name of a block", place=place, expected=expected)
        block = facts.inner(name)
        kind = block.required("kind", str)
        if kind not in kinds:
            raise ConfigurationError(shown(kind), place=f"{block.place}.kind", expected=f"expected {', '.join(kinds)}")
        blocks[name] = record(kinds[kind], block)
        block.finish()
    return blocks
