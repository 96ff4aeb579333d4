"""The keys below `lora` -> low-rank adapters beside frozen weights.

Names and defaults are those of Megatron-Bridge's `LoRA` and `CanonicalLoRA` (NVIDIA-NeMo/Megatron-Bridge 2afd2d34
peft/), which Primus carries too (AMD-AGI/Primus 8fd6d186 primus/backends/megatron/peft/lora.py).
"""

from projector.config.keys import Keys
from projector.config.megatron.facts import megatron_facts
from projector.config.nearest import nearest
from projector.config.notes import Notes
from projector.errors import ConfigurationError
from projector.job import Attention, LatentAttention, LowRankAdapters, ModelArchitecture

_DEFAULT_RANK = 32
_ATTENTION = ("linear_qkv", "linear_q", "linear_k", "linear_v")
_LATENT_ATTENTION = (
    "linear_q_proj",
    "linear_q_down_proj",
    "linear_q_up_proj",
    "linear_kv_down_proj",
    "linear_kv_up_proj",
)
_FEED_FORWARD = ("linear_fc1", "linear_fc1_gate", "linear_fc1_up", "linear_fc2")
_TARGETS = (*_ATTENTION, *_LATENT_ATTENTION, "linear_proj", *_FEED_FORWARD)
"""Linear layers beside which adapters are modelled."""


def adapters(keys: Keys, notes: Notes, model: ModelArchitecture) -> LowRankAdapters | None:
    """The adapters that `lora.enabled` switches on; None when it is off, whatever its details say.

    Raises `ConfigurationError` for values that cannot be right and for adapters on nothing.
    """
    if not keys.boolean("lora.enabled"):
        keys.read.update(key for key in keys.values if key.startswith("lora."))
        return None
    _name_unknown(keys, notes)
    rank = keys.integer("lora.dim", _DEFAULT_RANK, minimum=1)
    dropout = keys.number("lora.dropout", 0.0)
    if dropout >= 1:
        keys.wrong("lora.dropout", "a number from 0 to below 1")
    position = keys.choice("lora.dropout_position", "pre", ("pre", "post"))
    return LowRankAdapters(
        rank=rank,
        targets=_targets(keys, notes, model),
        dropout=dropout,
        dropout_on_input=position == "pre",
        all_to_all=keys.boolean("lora.a2a_experimental"),
    )


def _name_unknown(keys: Keys, notes: Notes) -> None:
    """Name the keys below `lora` that nobody knows: one that is meant for another may have been misspelt."""
    known = megatron_facts().known
    for key in sorted(key for key in keys.values if key.startswith("lora.") and key not in known):
        keys.read.add(key)
        notes.not_modelled(
            key,
            where=keys.place(key),
            effect=f"not a key that the project knows of; it has no influence here ({nearest(key, known)})",
            decides=True,
        )


def _targets(keys: Keys, notes: Notes, model: ModelArchitecture) -> tuple[str, ...]:
    key = "lora.target_modules"
    stated = keys.texts(key)
    wanted = tuple(dict.fromkeys(LowRankAdapters(rank=1).targets if stated is None else stated))
    present = _present(model)
    for name in wanted:
        if name not in _TARGETS:
            notes.not_modelled(
                f"adapters on {name}",
                where=keys.place(key),
                effect="their weights and their work are missing from the answer",
                decides=True,
            )
        elif name not in present:
            notes.assume(f"no adapter on {name}", "no layer of the model has a linear layer of that name")
    if not present.intersection(wanted) and set(wanted) <= set(_TARGETS):
        raise ConfigurationError(
            f"no layer of {model.name} has one of {', '.join(wanted) or 'no names'}",
            place=keys.place(key),
            expected=f"some of {', '.join(name for name in _TARGETS if name in present)}",
        )
    return tuple(name for name in wanted if name in _TARGETS)


def _present(model: ModelArchitecture) -> set[str]:
    """Names of linear layers that some layer of the model has."""
    names: set[str] = set()
    for layer in dict.fromkeys(model.layers):
        names.update(("linear_proj",) if layer.mixer is not None else ())
        names.update(_FEED_FORWARD if layer.feed_forward is not None else ())
        match layer.mixer:
            case Attention():
                names.update(_ATTENTION)
            case LatentAttention():
                names.update(_latent_names(layer.mixer))
    return names


def _latent_names(mixer: LatentAttention) -> tuple[str, ...]:
    absent = ("linear_q_down_proj", "linear_q_up_proj") if mixer.query_lora_rank is None else ("linear_q_proj",)
    return tuple(name for name in _LATENT_ATTENTION if name not in absent)
