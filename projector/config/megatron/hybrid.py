"""Sequence mixers of models that are not plain transformers: which layers the engine can model and which not.

A layer that it cannot model becomes an `UnmodelledMixer` with its name; the engine then gives no verdict.
"""

from collections.abc import Sequence

from projector.config.keys import Keys
from projector.errors import ConfigurationError
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
    "deepseek_v4": "DeepSeek-V4 hybrid attention with hyper-connections",
    "kimi_k3": "Kimi K3 attention (KDA and gated latent attention, attention residuals)",
}
"""Values of `model_type` whose layers are all unlike a transformer's."""
_STACKS = (("gdn", "gated delta net (GDN) hybrid"), ("kda", "Kimi delta attention (KDA) hybrid"))
"""Words in `spec` that tell which linear attention a hybrid stack of Primus uses."""
_PATTERN_KEYS = ("hybrid_layer_pattern", "hybrid_override_pattern")
"""The pattern of a hybrid model's layers, by its name of today and its former one."""
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
    pattern: str, keys: Keys, *, attention: Attention | LatentAttention, dense: FeedForward, sparse: FeedForward
) -> tuple[DecoderLayer, ...]:
    """One layer a symbol, each with a mixer or a feed-forward block alone.

    `sparse` are the experts, None where there are none. Raises `ConfigurationError` when the pattern asks for them.
    """
    if "E" in pattern and sparse is None:
        message = "the layers marked E hold experts, and none are stated"
        raise ConfigurationError(message, place=keys.place("num_experts"), expected="a number of experts")
    layers: dict[str, DecoderLayer] = {
        "*": DecoderLayer(mixer=attention, feed_forward=None),
        "+": DecoderLayer(mixer=attention, feed_forward=None),
        "-": DecoderLayer(mixer=None, feed_forward=dense),
        "E": DecoderLayer(mixer=None, feed_forward=sparse),
    }
    for symbol, name in _UNMODELLED_SYMBOLS.items():
        layers[symbol] = DecoderLayer(mixer=UnmodelledMixer(name=name), feed_forward=None)
    return tuple(layers[symbol] for symbol in pattern)


def mixers(keys: Keys, *, full: Sequence[Attention | LatentAttention]) -> list[Mixer]:
    """The sequence mixer of every layer; `full` is the ordinary attention of each."""
    layers = len(full)
    kind = keys.text("model_type", "gpt")
    spec = " ".join(keys.texts("spec") or []) if isinstance(keys.raw("spec"), list) else (keys.text("spec") or "")
    if keys.boolean("hybrid_attention_enabled") and kind == "gpt":
        kind = "deepseek_v4"
    if kind in _MODEL_TYPES:
        name = next((name for word, name in _STACKS if word in spec), _MODEL_TYPES[kind])
        return [UnmodelledMixer(name=name)] * layers
    if kind != "gpt":
        raise ConfigurationError(
            f"{kind!r} is not known", place=keys.place("model_type"), expected=f"gpt, {', '.join(_MODEL_TYPES)}"
        )
    convolutions = keys.texts("lfm_layer_types")
    if convolutions is not None:
        if len(convolutions) < layers:
            message = f"{len(convolutions)} entries for {layers} layers"
            raise ConfigurationError(message, place=keys.place("lfm_layer_types"))
        short = UnmodelledMixer(name="LFM2 short convolution")
        kinds = convolutions[:layers]
        return [full[index] if kind == "full_attention" else short for index, kind in enumerate(kinds)]
    variant = keys.text("experimental_attention_variant")
    if variant is None:
        return list(full)
    linear = UnmodelledMixer(name={"gated_delta_net": "gated delta net (GDN)"}.get(variant, variant))
    flags = _linear_layers(keys, layers)
    return [linear if flag else full[index] for index, flag in enumerate(flags)]


def _linear_layers(keys: Keys, layers: int) -> list[bool]:
    """`linear_attention_freq`: n leaves full attention in every n-th layer; a list marks linear layers with 1."""
    key = "linear_attention_freq"
    value = keys.raw(key)
    if value is None:
        return [True] * layers
    if isinstance(value, int) and not isinstance(value, bool):
        period = keys.integer(key, 1, minimum=1)
        return [(index + 1) % period != 0 for index in range(layers)]
    pattern = keys.integers(key) or []
    if len(pattern) < layers:
        raise ConfigurationError(f"{len(pattern)} entries for {layers} layers", place=keys.place(key))
    return [bool(flag) for flag in pattern[:layers]]
