"""Sequence mixers of models that are not plain transformers: which layers the engine can model and which not.

A layer that it cannot model becomes an `UnmodelledMixer` with its name; the engine then gives no verdict.
"""

from collections.abc import Sequence

from projector.config.keys import Keys
from projector.errors import ConfigurationError
from projector.job import Attention, LatentAttention, Mixer, UnmodelledMixer

_MODEL_TYPES = {
    "mamba": "Mamba or hybrid layers",
    "deepseek_v4": "DeepSeek-V4 hybrid attention with hyper-connections",
    "kimi_k3": "Kimi K3 attention (KDA and gated latent attention, attention residuals)",
}
"""Values of `model_type` whose layers are all unlike a transformer's."""
_STACKS = (("gdn", "gated delta net (GDN) hybrid"), ("kda", "Kimi delta attention (KDA) hybrid"))
"""Words in `spec` that tell which linear attention a hybrid stack of Primus uses."""


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
