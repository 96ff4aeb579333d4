"""Vocabularies of tokenizers, against what training logs and tables show."""

from collections import Counter
from dataclasses import replace

import jsonschema
import pytest

from projector import catalog
from projector.job import Attention, LatentAttention
from tests.catalog.counting import counts
from tests.catalog.files import CATALOG, content
from tests.config.primus_tree import ROOT, needs_tree

SCHEMA = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "required": ["entries", "source", "status", "models"],
        "additionalProperties": False,
        "properties": {
            "entries": {"type": "integer", "minimum": 1},
            "table_entries": {"type": "integer", "minimum": 1},
            "source": {"type": "string", "minLength": 1},
            "status": {"enum": ["verified", "unverified"]},
            "types": {"type": "array", "items": {"type": "string"}},
            "models": {"type": "array", "minItems": 1, "uniqueItems": True, "items": {"type": "string"}},
        },
    },
}


def test_the_file_follows_the_schema() -> None:
    jsonschema.validate(content(CATALOG / "tokenizers.yaml"), SCHEMA)


def test_no_tokenizer_with_a_recalled_source_is_verified() -> None:
    families = content(CATALOG / "tokenizers.yaml").items()
    assert [name for name, each in families if "(recalled)" in each["source"] and each["status"] == "verified"] == []


@pytest.mark.parametrize(
    ("kind", "model", "entries"),
    [
        ("Llama3Tokenizer", "meta-llama/Llama-3.1-70B", 128256),
        ("HuggingFaceTokenizer", "meta-llama/Llama-3.1-8B", 128256),
        ("Llama3Tokenizer", None, 128256),
        ("MixtralTokenizer", "mistralai/Mixtral-8x22B-v0.1", 32000),
        ("DeepSeekV2Tokenizer", "qwen/qwen2.5-7b", 151665),
        ("HuggingFaceTokenizer", None, None),
        ("HuggingFaceTokenizer", "somebody/something", None),
        (None, None, None),
    ],
)
def test_the_repository_decides_and_the_type_stands_in(
    kind: str | None, model: str | None, entries: int | None
) -> None:
    found = catalog.tokenizer_vocabulary(kind, model)
    assert (found and found.entries) == entries


@pytest.mark.parametrize("model", [m for m in catalog.models() if m.huggingface_id], ids=lambda model: model.name)
def test_the_table_of_a_model_holds_its_tokenizer(model: catalog.CatalogModel) -> None:
    found = catalog.tokenizer_vocabulary(None, model.huggingface_id)
    if found is not None:
        assert found.entries <= found.table_entries == model.vocabulary


def test_deepseek_v3_has_the_parameters_of_a_training_log() -> None:
    # AMD-AGI/Primus, raw log: 4 layers (1 dense), one prediction module, EP 8, "9103257600" parameters on a rank.
    model = catalog.model("deepseek-v3").architecture
    cut = replace(model, layers=(model.layers[0], *model.layers[-3:]), vocabulary=_entries("DeepSeek-V3"))
    assert counts(cut, expert=8, devices=8).per_device_max == 9_103_257_600


def test_deepseek_v2_lite_has_the_parameters_of_a_training_log() -> None:
    # AMD-AGI/Primus, raw log: multi-head attention in place of latent attention, EP 8, "3182940928" parameters.
    model = catalog.model("deepseek-v2-lite").architecture
    plain = Attention(heads=16, key_value_heads=16, head_dim=128, query_key_norm=True)
    layers = tuple(
        replace(layer, mixer=plain) if isinstance(layer.mixer, LatentAttention) else layer for layer in model.layers
    )
    cut = replace(model, layers=layers, vocabulary=_entries("DeepSeek-V2-Lite"))
    assert counts(cut, expert=8, devices=8).per_device_max == 3_182_940_928


@needs_tree
@pytest.mark.parametrize(("key", "least"), [("tokenizer_model", 30), ("tokenizer_path", 8)])
def test_every_tokenizer_of_the_presets_is_known(key: str, least: int) -> None:
    presets = [content(path) for path in (ROOT / "primus" / "configs" / "models").rglob("*.yaml")]
    named = {preset[key] for preset in presets if "/" in (preset.get(key) or "") and "assets/" not in preset[key]}
    assert len(named) > least
    assert [name for name in sorted(named) if catalog.tokenizer_vocabulary(None, name) is None] == []


def test_one_name_has_one_vocabulary() -> None:
    families = content(CATALOG / "tokenizers.yaml").values()
    names = [name.lower() for family in families for name in (*family["models"], *family.get("types", []))]
    assert [name for name, count in Counter(names).items() if count > 1] == []


def _entries(name: str) -> int:
    found = catalog.tokenizer_vocabulary(None, f"deepseek-ai/{name}")
    assert found is not None
    return found.entries
