"""A TorchTitan flavor -> `ModelArchitecture`.

Files name a model and a flavor; the sizes stand in TorchTitan's source and here in its data file.
"""

from dataclasses import replace

from projector import catalog
from projector.catalog.facts import Facts
from projector.catalog.model_file import architecture as described
from projector.config.nearest import nearest
from projector.config.notes import Notes
from projector.config.torchtitan.facts import FILE, torchtitan_facts
from projector.config.torchtitan.spelling import TitanKeys
from projector.errors import ConfigurationError, NotAvailable, PresetUnknown, shown
from projector.job import Attention, DecoderLayer, LatentAttention, ModelArchitecture
from projector.job.limits import MAXIMUM_LAYERS

_DIFFUSION = frozenset({"flux"})
"""Models of TorchTitan that are no language models."""


def architecture(keys: TitanKeys, notes: Notes) -> ModelArchitecture:
    """The model that `model.name` and `model.flavor` mean.

    Raises `PresetUnknown` for a flavor that is not known, `NotAvailable` for diffusion models.
    """
    facts = torchtitan_facts()
    stated = keys.text("model.name")
    if stated is None:
        raise ConfigurationError("is missing", place=keys.place("model.name"), expected="a model, such as llama3")
    name = facts.model_aliases.get(stated, stated)
    if name in _DIFFUSION:
        raise NotAvailable(f"diffusion models ({name}) are not available yet", place=keys.place("model.name"))
    flavors = facts.flavors.get(name)
    if flavors is None:
        expected = f"{nearest(stated, facts.flavors)}, whose flavors are known"
        raise PresetUnknown(
            f"the flavors of {shown(stated)} are not known", place=keys.place("model.name"), expected=expected
        )
    flavor = _flavor(keys)
    found = flavors.get(flavor)
    if found is None:
        message = f"the flavor {shown(flavor)} of {name} is not known"
        raise PresetUnknown(message, place=keys.place("model.flavor"), expected=nearest(flavor, flavors))
    model = _known(found, f"{name}-{flavor}")
    notes.assume(
        f"{name} {flavor}: {len(model.layers)} layers of width {model.hidden}, vocabulary {model.vocabulary}",
        f"the file names a flavor whose sizes stand in TorchTitan's source; taken from catalog/{FILE.as_posix()}",
    )
    return _proxy(_classic(model, keys, notes, flavor=flavor), keys)


def _flavor(keys: TitanKeys) -> str:
    """The flavor; a number that YAML made of it is text."""
    value = keys.raw("model.flavor")
    if value is None:
        return "debugmodel"
    if not isinstance(value, str):
        keys.wrong("model.flavor", "a text, such as 8B")
    return value


def _known(found: object, name: str) -> ModelArchitecture:
    if isinstance(found, str):
        # TorchTitan trains no multi-token-prediction modules.
        return replace(catalog.model(found).architecture, multi_token_prediction_layers=0)
    return described(Facts(found, place=f"{FILE.name}: {name}"), name)


def _classic(model: ModelArchitecture, keys: TitanKeys, notes: Notes, *, flavor: str) -> ModelArchitecture:
    """The model with the multi-head attention that Primus puts in place of latent attention when asked to."""
    turbo, classic = (
        keys.boolean("primus_turbo.enable_primus_turbo"),
        keys.boolean("primus_turbo.use_classic_attention"),
    )
    if not (turbo and classic) or not any(isinstance(layer.mixer, LatentAttention) for layer in model.layers):
        return model
    heads = torchtitan_facts().classic.get(flavor)
    if heads is None:
        notes.not_modelled(
            f"Primus's multi-head attention in place of latent attention ({flavor})",
            where=keys.place("primus_turbo.use_classic_attention"),
            effect="latent attention is counted, whose weights and activations differ",
            decides=True,
        )
        return model
    mixer = Attention(**heads)
    notes.assume(
        f"multi-head attention with {mixer.heads} heads in place of latent attention",
        f"{keys.place('primus_turbo.use_classic_attention')}; sizes from catalog/{FILE.as_posix()}",
    )
    changed = {layer: replace(layer, mixer=mixer) for layer in dict.fromkeys(model.layers)}
    return replace(model, layers=tuple(changed[layer] for layer in model.layers))


def _proxy(model: ModelArchitecture, keys: TitanKeys) -> ModelArchitecture:
    """The model with as many layers as `model.n_layers` of Primus says, of the same pattern."""
    count = keys.integer("model.n_layers", minimum=1, maximum=MAXIMUM_LAYERS)
    if count is None or count == len(model.layers):
        return model
    layers: tuple[DecoderLayer, ...] = model.layers[:count]
    return replace(model, layers=layers + (model.layers[-1],) * (count - len(layers)))
