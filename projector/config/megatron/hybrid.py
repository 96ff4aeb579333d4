"""Sequence mixers of models that are not plain transformers: which layers the engine can model and which not.

A layer that it cannot model becomes an `UnmodelledMixer` with its name; the engine then gives no verdict.
"""

from collections.abc import Sequence

from projector.config.keys import Keys
from projector.config.megatron.compressed import MODEL_TYPE, compressed_attention, is_compressed
from projector.config.megatron.frequency import all_but_every, frequency
from projector.config.notes import Notes
from projector.errors import ConfigurationError, shown
from projector.job import (
    Attention,
    DecoderLayer,
    FeedForward,
    LatentAttention,
    Mixer,
    UnmodelledMixer,
)

_MODEL_TYPES = {
    "mamba": "Mamba or hybrid layers",
    "kimi_k3": "Kimi K3 attention (KDA and gated latent attention, attention residuals)",
}
"""Values of `model_type` whose layers are all unlike a transformer's."""
_STACKS = (("gdn", "gated delta net (GDN) hybrid"), ("kda", "Kimi delta attention (KDA) hybrid"))
"""Words in `spec` that tell which linear attention a hybrid stack of Primus uses."""
_PATTERN_KEYS = ("hybrid_layer_pattern", "hybrid_override_pattern")
"""The pattern of a hybrid model's layers, by its name of today and its former one."""
_SHARES = ("hybrid_attention_ratio", "hybrid_mlp_ratio")
"""Former arguments that say how many layers of a hybrid model are of which kind."""
_UNMODELLED_SYMBOLS = {"M": "Mamba", "G": "gated delta net (GDN)", "D": "DeepSeek sparse attention"}
_SYMBOLS = {"*", "+", "-", "E", *_UNMODELLED_SYMBOLS}
"""Symbols of one layer: attention (`+` latent), feed-forward block, experts, or a mixer that the engine does not model
(megatron/core/models/hybrid/hybrid_layer_allocation.py)."""


def layer_pattern(keys: Keys) -> str:
    """The symbols of a hybrid model's layers without stage marks; empty for a model that has none.

    Behind `/` stand layers of multi-token prediction, which `mtp_num_layers` counts. Raises `ConfigurationError` for an
    unknown symbol.
    """
    stated = next((key for key in _PATTERN_KEYS if keys.text(key)), None)
    if stated is None or keys.text("model_type", "gpt") != "gpt":
        return ""
    pattern = keys.text(stated, "").partition("/")[0].replace("|", "")
    unknown = next((symbol for symbol in pattern if symbol not in _SYMBOLS), None)
    if unknown is not None:
        message = f"the symbol {unknown!r} is not known"
        raise ConfigurationError(message, place=keys.place(stated), expected=f"one of {' '.join(sorted(_SYMBOLS))}")
    return pattern


def pattern_layers(
    pattern: str,
    keys: Keys,
    *,
    attention: Sequence[Attention | LatentAttention],
    dense: FeedForward,
    sparse: FeedForward,
) -> tuple[DecoderLayer, ...]:
    """One layer a symbol, each with a mixer or a feed-forward block alone.

    `attention` is that of each layer that has one; `sparse` are the experts, None where there are none. Raises
    `ConfigurationError` when the pattern asks for them.
    """
    if "E" in pattern and sparse is None:
        message = "the layers marked E hold experts, and none are stated"
        raise ConfigurationError(message, place=keys.place("num_experts"), expected="a number of experts")
    layers: dict[str, DecoderLayer] = {
        "-": DecoderLayer(mixer=None, feed_forward=dense),
        "E": DecoderLayer(mixer=None, feed_forward=sparse),
    }
    for symbol, name in _UNMODELLED_SYMBOLS.items():
        layers[symbol] = DecoderLayer(mixer=UnmodelledMixer(name=name), feed_forward=None)
    return tuple(
        layers.get(symbol) or DecoderLayer(mixer=mixer, feed_forward=None)
        for symbol, mixer in zip(pattern, attention, strict=True)
    )


def _note_other_layers(keys: Keys, notes: Notes, spec: str) -> None:
    """Say that the layers are others than those that the arguments of a plain transformer describe."""
    shares = [keys.number(key, 0.0) for key in _SHARES]
    hybrid = keys.boolean("is_hybrid_model") or any(shares)
    key = next((key for key, share in zip(_SHARES, shares, strict=True) if share), "is_hybrid_model")
    for is_on, key_, what in ((hybrid, key, "hybrid layers"), (bool(spec), "spec", f"the layers of {shown(spec)}")):
        if is_on:
            effect = "plain attention and feed-forward blocks are counted, as the other arguments describe them"
            notes.not_modelled(what, where=keys.place(key_), effect=effect, decides=True)


def mixers(keys: Keys, notes: Notes, *, attention: Sequence[Attention | LatentAttention]) -> list[Mixer]:
    """The sequence mixer of every layer; `attention` is the ordinary one of each."""
    layers = len(attention)
    kind, first = keys.text("model_type", "gpt"), attention[0]
    if is_compressed(keys) and isinstance(first, Attention):
        return [*compressed_attention(keys, notes, first, layers=layers)]
    spec = " ".join(keys.texts("spec") or []) if isinstance(keys.raw("spec"), list) else (keys.text("spec") or "")
    if kind in _MODEL_TYPES:
        name = next((name for word, name in _STACKS if word in spec), _MODEL_TYPES[kind])
        return [UnmodelledMixer(name=name)] * layers
    if kind != "gpt":
        raise ConfigurationError(
            f"{kind!r} is not known",
            place=keys.place("model_type"),
            expected=f"gpt, {MODEL_TYPE}, {', '.join(_MODEL_TYPES)}",
        )
    _note_other_layers(keys, notes, spec)
    convolutions = keys.texts("lfm_layer_types")
    if convolutions is not None:
        if len(convolutions) < layers:
            message = f"{len(convolutions)} entries for {layers} layers"
            raise ConfigurationError(message, place=keys.place("lfm_layer_types"))
        short = UnmodelledMixer(name="LFM2 short convolution")
        kinds = convolutions[:layers]
        return [attention[index] if kind == "full_attention" else short for index, kind in enumerate(kinds)]
    variant = keys.text("experimental_attention_variant")
    if variant is None:
        return list(attention)
    linear = UnmodelledMixer(name={"gated_delta_net": "gated delta net (GDN)"}.get(variant, variant))
    flags = all_but_every(frequency(keys, "linear_attention_freq", notes, layers=layers), layers=layers)
    return [linear if flag else attention[index] for index, flag in enumerate(flags)]
