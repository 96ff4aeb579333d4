"""The catalog's architectures have exactly the parameters of the public classes and of the published weights."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from projector import catalog
from projector.catalog import CatalogModel
from projector.job import UnmodelledMixer, UnmodelledMLP
from tests.catalog.counting import counts

PUBLISHED: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "published_configs.yaml").read_text(encoding="utf-8")
)
MODELS = catalog.models()
FIRST_NORMS = ("input_layernorm", "operator_norm")
"""Norms in front of a mixer, by their names in `transformers`; the engine counts them with the mixer."""


@pytest.mark.parametrize("model", [model for model in MODELS if model.huggingface_class], ids=lambda model: model.name)
@pytest.mark.filterwarnings("ignore:.*:FutureWarning", "ignore:.*:DeprecationWarning")
def test_the_hugging_face_class_has_as_many_parameters(model: CatalogModel) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    published = PUBLISHED[model.name]
    assert model.huggingface_class is not None
    kind = getattr(transformers, model.huggingface_class)
    with torch.device("meta"):
        network = kind(kind.config_class(**published["config"]))
    unmodelled = [i for i, layer in enumerate(model.architecture.layers) if isinstance(layer.mixer, UnmodelledMixer)]
    apart = [
        *published.get("apart", []),
        *(f"layers.{index}.{norm}." for index in unmodelled for norm in FIRST_NORMS),
    ]
    theirs = sum(
        parameter.numel() for name, parameter in network.named_parameters() if not any(part in name for part in apart)
    )
    assert counts(model.architecture).total == theirs


def test_every_public_configuration_belongs_to_a_model_of_the_catalog() -> None:
    assert set(PUBLISHED) == {model.name for model in MODELS if model.huggingface_class}


@pytest.mark.parametrize("model", [model for model in MODELS if model.parameters], ids=lambda model: model.name)
def test_the_published_weights_have_as_many_parameters(model: CatalogModel) -> None:
    assert counts(model.architecture).total == model.parameters


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        # Sizes in the papers and model cards, which round.
        ("deepseek-v3", 671),
        ("kimi-k2", 1026),
        ("glm-4.7", 353),
        ("llama4-17b16e", 108),
        ("llama4-17b128e", 401),
        ("minimax-m2.5", 229),
        ("moonlight-16b-a3b", 16),
        ("gpt3-175b", 175),
    ],
)
def test_the_size_is_the_one_that_the_name_or_paper_gives(name: str, billions: int) -> None:
    assert round(counts(catalog.model(name).architecture).total / 1e9) == billions


@pytest.mark.parametrize(
    ("name", "billions"),
    [("deepseek-v3", 37), ("mixtral-8x7b", 13), ("qwen3-235b-a22b", 22), ("qwen3-30b-a3b", 3)],
)
def test_the_active_parameters_are_those_that_the_paper_gives(name: str, billions: int) -> None:
    assert counts(catalog.model(name).architecture).active / 1e9 == pytest.approx(billions, abs=0.75)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_model_with_unmodelled_parts_says_so(model: CatalogModel) -> None:
    parts = {part for layer in model.architecture.layers for part in (layer.mixer, layer.feed_forward)}
    unmodelled = [part for part in parts if isinstance(part, UnmodelledMixer | UnmodelledMLP)]
    assert not unmodelled or all(part.name for part in unmodelled)
    assert not (unmodelled and model.parameters)
