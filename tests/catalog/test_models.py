"""Model files are complete, and cover what public presets and recipes name."""

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from projector import catalog
from projector.catalog import CatalogModel, ModelStatus
from projector.catalog.model_file import read_model
from projector.errors import ConfigurationError, NotAvailable, PresetUnknown
from projector.job import (
    Attention,
    Batch,
    DenseMLP,
    LatentAttention,
    MixtureOfExperts,
    Parallelism,
    TrainingJob,
    UnmodelledMixer,
)
from projector.memory import unmodelled_layers
from tests.catalog.files import SCHEMAS, content, files
from tests.config.primus_tree import ROOT, needs_tree

ALL_PRESETS = ROOT / "primus" / "configs" / "models"
PRESETS = ALL_PRESETS / "megatron"
NOT_MODELS = ("base", "language_model", "primus_megatron_model", "diffusion_model", "encoders")
OF_A_JOB = re.compile(r"-fp8$|_lora_mxfp4$")
"""Endings of presets that add a training method to a model: nothing that a catalog of models has."""
MAXTEXT_AND_BRIDGE = Path(__file__).parent / "public_names.txt"
"""Names that MaxText and recipes of Megatron-Bridge give to models, one a line."""


@pytest.mark.parametrize("path", files("models"), ids=lambda path: path.stem)
def test_a_model_file_follows_the_schema(path: Path) -> None:
    stated = content(path)
    schema = SCHEMAS["refused_model" if "refused" in stated else "model"]
    jsonschema.validate(stated, schema, cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize("model", catalog.models(), ids=lambda model: model.name)
def test_no_model_with_a_recalled_source_is_verified(model: CatalogModel) -> None:
    recalled = any("(recalled)" in source for source in model.sources)
    assert not (recalled and model.status is ModelStatus.VERIFIED)


@pytest.mark.parametrize(
    "model", [model for model in catalog.models() if model.status is ModelStatus.TOTAL], ids=lambda model: model.name
)
def test_what_only_a_total_vouches_for_states_the_total_and_whose_it_is(model: CatalogModel) -> None:
    assert model.parameters
    assert any(source.startswith("parameters: ") for source in model.sources)
    assert any("(recalled)" in source for source in model.sources)


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
    names = {path.stem for path in ALL_PRESETS.rglob("*.yaml") if not path.stem.endswith(NOT_MODELS)}
    assert len(names) > 100
    assert _unknown({OF_A_JOB.sub("", name) for name in names}) == set()


@needs_tree
@pytest.mark.parametrize("key", ["hf_path", "hf_assets_path", "model_name"])
def test_every_repository_that_a_preset_takes_its_model_from_is_in_the_catalog(key: str) -> None:
    stated = {_found(content(path), key) for path in ALL_PRESETS.rglob("*.yaml")}
    assert _unknown({str(name) for name in stated if name and name != "default"}) == set()


def test_every_public_name_of_maxtext_and_megatron_bridge_is_in_the_catalog() -> None:
    lines = MAXTEXT_AND_BRIDGE.read_text(encoding="utf-8").splitlines()
    names = {line for line in lines if not line.startswith("#")}
    assert len(names) > 100
    assert _unknown(names) == set()


def _unknown(names: set[str]) -> set[str]:
    """Those of which the catalog knows neither an architecture nor why it has none."""
    unknown = set()
    for name in names:
        try:
            assert catalog.model(name).architecture.layers
        except PresetUnknown:
            unknown.add(name)
        except NotAvailable as refused:
            assert f"the model {name!r} " in str(refused)  # noqa: PT017 - either an answer or a refusal
    return unknown


def _found(stated: Any, key: str) -> object:  # noqa: ANN401 - whatever a preset holds
    """The value of a key at any depth of a preset, None where it has none."""
    if not isinstance(stated, dict):
        return None
    return stated.get(key) or next(filter(None, (_found(value, key) for value in stated.values())), None)


def test_a_model_that_is_no_decoder_is_refused_in_one_line_that_says_why() -> None:
    with pytest.raises(NotAvailable) as refused:
        catalog.model("diffusion/flux_12b")
    line = str(refused.value)
    assert "diffusion transformer" in line
    assert "\n" not in line
    assert "flux-12b" in {model.name for model in catalog.refused_models()}
    assert "flux-12b" not in {model.name for model in catalog.models()}


def test_what_a_description_leaves_out_is_named_and_forbids_a_verdict() -> None:
    job = TrainingJob(
        model=catalog.model("glm-5").architecture,
        parallelism=Parallelism(),
        batch=Batch(micro=1, global_=1, sequence_length=4096),
    )
    (entry,) = unmodelled_layers(job)
    assert "indexer" in entry.what
    assert entry.where == "model glm-5"
    assert entry.decides


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
            "bad.yaml.layers: [2, ['attention', 'dense']]; expected [times, [mixer, feed-forward], ...] "
            "with names from mixers and feed_forwards",
            id="unknown block",
        ),
        pytest.param(
            "hidden: 8",
            "refused: is no decoder of tokens",
            "bad.yaml.layers: is not known here",
            id="described and refused",
        ),
        pytest.param(
            "hidden: 8",
            "hidden: 8\nleaves_out: a vision tower",
            "bad.yaml.leaves_out: 'a vision tower'; expected a list of str",
            id="one part, not a list",
        ),
        pytest.param(
            "unverified",
            "checked",
            "bad.yaml.status: 'checked'; expected one of verified, total, unverified",
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
    model = read_model(path)
    assert isinstance(model, CatalogModel)
    layers = model.architecture.layers
    assert [layer.feed_forward for layer in layers] == [None, None]


def test_hybrid_stacks_keep_the_order_of_their_pattern() -> None:
    layers = catalog.model("zebra_llama_300M_gdn_hybrid").architecture.layers
    letters = {LatentAttention: "*", UnmodelledMixer: "M", type(None): "-"}
    assert "".join(letters[type(layer.mixer)] for layer in layers) == "*-M-M-M-" * 3
