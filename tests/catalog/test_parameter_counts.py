"""The catalog's architectures have exactly the parameters of the public classes and of the published weights."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from projector import catalog
from projector.catalog import CatalogModel
from projector.job import UnmodelledMixer
from projector.layers import unmodelled_blocks
from tests.catalog.counting import counts

PUBLISHED: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "published_configs.yaml").read_text(encoding="utf-8")
)
MODELS = catalog.models()
MIXERS = ("self_attn", "linear_attn", "conv", "mixer", "input_layernorm", "operator_norm", "norm")
"""Mixers and the norms in front of them, by their names in `transformers`."""


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
    apart = (*published.get("apart", []), *_parts_without_operations(model))
    sizes = {name: parameter.numel() for name, parameter in network.named_parameters()}
    theirs = sum(size for name, size in sizes.items() if not any(part in name for part in apart))
    assert counts(model.architecture).total == theirs
    assert model.parameters in {None, sum(sizes.values())}


def _parts_without_operations(model: CatalogModel) -> Iterator[str]:
    """Where the public class has parameters of layers whose mixer the engine does not model."""
    for index, layer in enumerate(model.architecture.layers):
        if isinstance(layer.mixer, UnmodelledMixer):
            behind = ["post_attention_layernorm"] if layer.post_norms else []
            yield from (f"layers.{index}.{part}." for part in (*MIXERS, *behind))


def test_every_public_configuration_belongs_to_a_model_of_the_catalog() -> None:
    assert set(PUBLISHED) == {model.name for model in MODELS if model.huggingface_class}


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
        ("deepseek-v4-flash", 284),
        ("deepseek-v4-pro", 1573),
    ],
)
def test_the_size_is_the_one_that_the_name_or_paper_gives(name: str, billions: int) -> None:
    assert round(counts(catalog.model(name).architecture).total / 1e9) == billions


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("deepseek-v3", 37),
        ("deepseek-v4-flash", 13),
        ("deepseek-v4-pro", 49),
        ("mixtral-8x7b", 13),
        ("qwen3-235b-a22b", 22),
        ("qwen3-30b-a3b", 3),
    ],
)
def test_the_active_parameters_are_those_that_the_paper_gives(name: str, billions: int) -> None:
    assert counts(catalog.model(name).architecture).active / 1e9 == pytest.approx(billions, abs=0.75)


SIZE = re.compile(r"-(\d[\d.]*)b(?=-|$)(?!.*layer|.*-\d+b)")
"""The size in a name, in billions, but active parameters and the size that a shortened model once had."""


@pytest.mark.parametrize("model", [model for model in MODELS if SIZE.search(model.name)], ids=lambda model: model.name)
def test_a_size_in_the_name_is_that_of_the_model(model: CatalogModel) -> None:
    size = SIZE.search(model.name)
    assert size is not None
    billions, counted = float(size[1]), counts(model.architecture).total / 1e9
    if model.parameters is None and unmodelled_blocks(model.architecture):
        assert counted < 1.1 * billions
    else:
        assert (model.parameters or counted * 1e9) / 1e9 == pytest.approx(billions, rel=0.22, abs=0.62)
