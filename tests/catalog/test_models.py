"""Model files are complete, and cover what the public Primus presets name."""

from pathlib import Path

import jsonschema
import pytest

from projector import catalog
from projector.catalog.model_file import read_model
from projector.errors import ConfigurationError
from projector.job import Attention, DenseMLP, LatentAttention, MixtureOfExperts, UnmodelledMixer
from tests.catalog.files import SCHEMAS, content, files
from tests.config.primus_tree import ROOT, needs_tree

PRESETS = ROOT / "primus" / "configs" / "models" / "megatron"
NOT_MODELS = ("base", "language_model", "primus_megatron_model", "diffusion_model")


@pytest.mark.parametrize("path", files("models"), ids=lambda path: path.stem)
def test_a_model_file_follows_the_schema(path: Path) -> None:
    jsonschema.validate(content(path), SCHEMAS["model"], cls=jsonschema.Draft202012Validator)


def test_layers_repeat_in_the_order_of_the_file() -> None:
    layers = catalog.model("llama4-maverick").architecture.layers
    windows = [layer.mixer.chunk for layer in layers if isinstance(layer.mixer, Attention)]
    experts = [isinstance(layer.feed_forward, MixtureOfExperts) for layer in layers]
    assert windows == [8192, 8192, 8192, None] * 12
    assert experts == [False, True] * 24


def test_latent_attention_without_a_query_latent_has_none() -> None:
    mixer = catalog.model("deepseek-v2-lite").architecture.layers[0].mixer
    assert isinstance(mixer, LatentAttention)
    assert mixer.query_lora_rank is None


@needs_tree
def test_every_model_preset_of_primus_is_in_the_catalog() -> None:
    names = [path.stem for path in sorted(PRESETS.glob("*.yaml")) if not path.stem.endswith(NOT_MODELS)]
    assert len(names) > 50
    for name in names:
        assert catalog.model(name).architecture.layers


@needs_tree
@pytest.mark.parametrize("key", ["hidden_size", "num_layers", "ffn_hidden_size", "num_experts", "moe_ffn_hidden_size"])
def test_the_shapes_are_those_of_the_presets(key: str) -> None:
    different = {}
    for path in sorted(PRESETS.glob("*.yaml")):
        if path.stem.endswith(NOT_MODELS) or key not in content(path):
            continue
        stated = content(path)[key]
        known = _shape(path.stem, key)
        if isinstance(stated, int) and known is not None and stated != known:
            different[path.stem] = (stated, known)
    assert different == DELIBERATE.get(key, {})


DELIBERATE = {
    # GLM-4.7 has 92 layers; a sublayer of a hybrid stack counts as a layer in both.
    "num_layers": {"glm4_7": (90, 92)},
}


def _shape(name: str, key: str) -> int | None:
    """The catalog's value of a preset's key; None where the model has no such part."""
    model = catalog.model(name).architecture
    blocks = [layer.feed_forward for layer in model.layers]
    dense = next((block for block in blocks if isinstance(block, DenseMLP)), None)
    experts = next((block for block in blocks if isinstance(block, MixtureOfExperts)), None)
    shapes = {
        "hidden_size": model.hidden,
        "num_layers": len(model.layers),
        "ffn_hidden_size": dense.ffn if dense else None,
        "num_experts": experts.experts if experts else None,
        "moe_ffn_hidden_size": experts.expert_ffn if experts else None,
    }
    return shapes[key]


VALID = """\
name: test
sources: [nowhere]
status: unverified
hidden: 8
vocabulary: 16
mixers:
  attention: {kind: attention, heads: 2, key_value_heads: 1, head_dim: 4}
layers:
  - [2, [attention, none]]
"""


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        pytest.param("hidden: 8", "", "bad.yaml.hidden: is missing; expected int", id="missing key"),
        pytest.param("hidden: 8", "hidden: 8.5", "bad.yaml.hidden: 8.5; expected int", id="wrong type"),
        pytest.param("hidden: 8", "hidden: 8\nheads: 2", "bad.yaml.heads: is not known here", id="unknown key"),
        pytest.param(
            "kind: attention",
            "kind: atention",
            "bad.yaml.mixers.attention.kind: 'atention'; expected attention, latent, unmodelled",
            id="unknown mixer",
        ),
        pytest.param(
            "head_dim: 4",
            "head_dim: 4, windw: 3",
            "bad.yaml.mixers.attention.windw: is not known here",
            id="unknown field",
        ),
        pytest.param(
            "heads: 2, key",
            "key",
            "bad.yaml.mixers.attention.heads: is missing; expected int",
            id="missing field",
        ),
        pytest.param(
            "[attention, none]",
            "[attention, dense]",
            "bad.yaml.layers: [[2, ['attention', 'dense']]]; expected a list of [times, [mixer, feed-forward], ...] "
            "with names from mixers and feed_forwards",
            id="unknown block",
        ),
        pytest.param(
            "unverified",
            "checked",
            "bad.yaml.status: 'checked'; expected verified or unverified",
            id="unknown status",
        ),
        pytest.param(
            "hidden: 8",
            "hidden: 8\nnorm: batch",
            "bad.yaml.norm: 'batch'; expected one of rms, layer",
            id="unknown norm",
        ),
    ],
)
def test_a_wrong_model_file_is_refused_with_its_place(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(VALID.replace(old, new), encoding="utf-8")
    with pytest.raises(ConfigurationError) as refused:
        read_model(path)
    assert str(refused.value) == complaint


def test_a_layer_may_lack_a_feed_forward_block(tmp_path: Path) -> None:
    path = tmp_path / "good.yaml"
    path.write_text(VALID, encoding="utf-8")
    layers = read_model(path).architecture.layers
    assert [layer.feed_forward for layer in layers] == [None, None]


def test_hybrid_stacks_keep_the_order_of_their_pattern() -> None:
    layers = catalog.model("zebra_llama_300M_gdn_hybrid").architecture.layers
    letters = {LatentAttention: "*", UnmodelledMixer: "M", type(None): "-"}
    assert "".join(letters[type(layer.mixer)] for layer in layers) == "*-M-M-M-" * 3
