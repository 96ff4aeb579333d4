"""Which activations wait in host memory, from Megatron-LM's arguments for fine-grained activation offloading."""

from projector.config.keys import Keys
from projector.config.notes import Notes
from projector.errors import ConfigurationError
from projector.job import ActivationOffload

_MODULES = ("attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act")
"""Names that Megatron-LM takes (megatron/core/transformer/transformer_config.py, `offload_modules`)."""


def activation_offload(keys: Keys, notes: Notes) -> ActivationOffload:
    """What goes to the host; raises `ConfigurationError` for modules that Megatron-LM does not take.

    It wants at least one, and the input of the projection only together with the attention that puts it out.
    """
    modules = keys.texts("offload_modules") or ()
    share = keys.number("activation_offload_fraction", 1.0)
    if share > 1:
        keys.wrong("activation_offload_fraction", "a number from 0 to 1")
    least = keys.integer("min_offloaded_tensor_size", 2**20)
    if not keys.boolean("fine_grained_activation_offloading"):
        return ActivationOffload()
    unknown = [module for module in modules if module not in _MODULES]
    if unknown or not modules or ("attn_proj" in modules and "core_attn" not in modules):
        what = f"{unknown[0]!r} cannot be offloaded" if unknown else "core_attn is missing among the offloaded modules"
        expected = f"some of {', '.join(_MODULES)}, with core_attn where attn_proj is"
        raise ConfigurationError(what, place=keys.place("offload_modules"), expected=expected)
    notes.not_modelled(
        "the time of offloading activations to the host",
        where=keys.place("fine_grained_activation_offloading"),
        effect="transfers are counted as hidden behind computation",
        decides=False,
    )
    return ActivationOffload(modules=tuple(modules), share=share, least_elements=least)
