"""Vocabularies of tokenizers, against what training logs and tables show."""

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
def test_every_tokenizer_of_the_presets_is_known() -> None:
    presets = [content(path) for path in (ROOT / "primus" / "configs" / "models" / "megatron").glob("*.yaml")]
    named = {
        (preset.get("tokenizer_type"), preset["tokenizer_model"]) for preset in presets if preset.get("tokenizer_model")
    }
    assert len(named) > 30
    assert [pair for pair in sorted(named, key=str) if catalog.tokenizer_vocabulary(*pair) is None] == []


def _entries(name: str) -> int:
    found = catalog.tokenizer_vocabulary(None, f"deepseek-ai/{name}")
    assert found is not None
    return found.entries
