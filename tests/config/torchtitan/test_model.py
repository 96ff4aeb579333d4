"""Flavors: every one is a model, and those of published models have the published sizes."""

from dataclasses import replace

import pytest

from projector import catalog
from projector.config.keys import Keys
from projector.config.torchtitan.facts import torchtitan_facts
from projector.errors import InputError, NotAvailable, PresetUnknown
from projector.job import Attention, LatentAttention, MixtureOfExperts, ModelArchitecture
from tests.config.torchtitan.files import load, text

FLAVORS = [(name, flavor) for name, flavors in torchtitan_facts().flavors.items() for flavor in flavors]


def model(name: str, flavor: str) -> ModelArchitecture:
    return load(text(model={"name": name, "flavor": flavor})).job.model


@pytest.mark.parametrize(("name", "flavor"), FLAVORS)
def test_every_flavor_is_a_model_and_is_assumed(name: str, flavor: str) -> None:
    loaded = load(text(model={"name": name, "flavor": flavor}))
    assert loaded.job.model.layers
    assert loaded.job.model.multi_token_prediction_layers == 0
    assert loaded.assumed[0].what.startswith(f"{name} {flavor}: {len(loaded.job.model.layers)} layers")


def without_balance_bias(model: ModelArchitecture) -> ModelArchitecture:
    """The model as its published weights are, under the name `model`."""
    layers = tuple(
        replace(layer, feed_forward=replace(layer.feed_forward, router_balance_bias=False))
        if isinstance(layer.feed_forward, MixtureOfExperts)
        else layer
        for layer in model.layers
    )
    return replace(model, name="model", layers=layers, multi_token_prediction_layers=0)


@pytest.mark.parametrize(
    ("flavor", "published"), [("16B", "deepseek-v2-lite"), ("236B", "deepseek-v2"), ("671B", "deepseek-v3")]
)
def test_flavors_of_deepseek_are_the_published_models_with_a_balance_bias(flavor: str, published: str) -> None:
    own = model("deepseek_v3", flavor)
    assert all(
        layer.feed_forward.router_balance_bias
        for layer in own.layers
        if isinstance(layer.feed_forward, MixtureOfExperts)
    )
    assert without_balance_bias(own) == without_balance_bias(catalog.model(published).architecture)


@pytest.mark.parametrize("flavor", ["17bx16e", "17bx128e"])
def test_llama_4_attends_to_everything_unless_its_flavor_says_irope(flavor: str) -> None:
    plain, chunked = model("llama4", flavor), model("llama4", f"{flavor}_irope")
    unchunked = tuple(
        replace(layer, mixer=replace(layer.mixer, chunk=None)) if isinstance(layer.mixer, Attention) else layer
        for layer in chunked.layers
    )
    assert plain.layers == unchunked
    assert plain.layers != chunked.layers
    assert (plain.hidden, plain.vocabulary) == (chunked.hidden, chunked.vocabulary)


def test_llama_3_2_1b_has_an_output_layer_of_its_own() -> None:
    own, published = model("llama3", "1B"), catalog.model("llama3.2-1b").architecture
    assert (own.layers, own.hidden, own.vocabulary) == (published.layers, published.hidden, published.vocabulary)
    assert (own.tied_embeddings, published.tied_embeddings) == (False, True)


def test_a_proxy_of_primus_keeps_the_beginning_of_the_pattern() -> None:
    settings = {"name": "deepseek_v3", "flavor": "16B", "n_layers": 4}
    layers = load(text(model=settings)).job.model.layers
    assert layers == model("deepseek_v3", "16B").layers[:4]


def test_an_experiment_trains_the_model_that_it_is_named_after() -> None:
    assert model("llama3_simple_fsdp", "8B") == model("llama3", "8B")


def test_classic_attention_of_primus_takes_the_place_of_latent_attention() -> None:
    turbo = {"enable_primus_turbo": True, "use_classic_attention": True}
    classic = load(text(model={"name": "deepseek_v3", "flavor": "236B"}, primus_turbo=turbo)).job.model
    assert {layer.mixer for layer in classic.layers} == {Attention(heads=40, key_value_heads=8, head_dim=128)}
    off = {**turbo, "enable_primus_turbo": False}
    latent = load(text(model={"name": "deepseek_v3", "flavor": "236B"}, primus_turbo=off)).job.model
    assert all(isinstance(layer.mixer, LatentAttention) for layer in latent.layers)


def test_classic_attention_without_known_sizes_decides() -> None:
    turbo = {"enable_primus_turbo": True, "use_classic_attention": True}
    notes = load(text(model={"name": "deepseek_v3", "flavor": "671B"}, primus_turbo=turbo)).unmodelled
    assert [note.decides for note in notes] == [True]


UNKNOWN = {
    "a flavor": ({"name": "llama3", "flavor": "9B"}, PresetUnknown, r"model.flavor: the flavor '9B' of llama3"),
    "a model": ({"name": "llama5", "flavor": "8B"}, PresetUnknown, r"'llama5' are not known; did you mean llama"),
    "a diffusion model": ({"name": "flux", "flavor": "flux-dev"}, NotAvailable, "diffusion models"),
    "a flavor that is a number": ({"name": "llama3", "flavor": 8}, InputError, "model.flavor: 8 is a number"),
}


@pytest.mark.parametrize(("settings", "kind", "message"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_an_unknown_model_is_one_clear_line(settings: dict[str, object], kind: type[InputError], message: str) -> None:
    with pytest.raises(kind, match=message):
        load(text(model=settings))


def test_no_key_is_both_read_and_ignored() -> None:
    facts = torchtitan_facts()
    assert facts.arguments & facts.ignored == set()
    assert set(facts.renamed.values()) <= facts.known
    assert {switch.key for switch in facts.unmodelled} & facts.ignored == set()


def test_every_key_that_is_read_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[str] = set()
    raw = Keys.raw

    def recorded(self: Keys, key: str) -> object:
        asked.add(key)
        return raw(self, key)

    monkeypatch.setattr(Keys, "raw", recorded)
    for recompute in ("none", "selective"):
        load(
            text(
                model={"name": "deepseek_v3", "flavor": "16B", "converters": ["mx", "float8"]},
                parallelism={"pipeline_parallel_degree": 2},
                activation_checkpoint={"mode": recompute},
            )
        )
    assert asked <= torchtitan_facts().known
