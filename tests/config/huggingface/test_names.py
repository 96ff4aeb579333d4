"""What a config.json calls its keys, what it leaves out, and which classes it names beside its type."""

import dataclasses
import json
from typing import Any

import pytest

from projector import catalog
from projector.config import LoadedConfiguration
from projector.config.huggingface.facts import family, huggingface_facts
from projector.errors import ConfigurationError
from projector.job import ModelArchitecture
from tests.config.huggingface.builders import LLAMA, RUN, SMALL, load

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
AUTO = transformers.models.auto

pytestmark = pytest.mark.filterwarnings("ignore:.*:FutureWarning", "ignore:.*:DeprecationWarning")


def _class(name: str) -> Any:  # noqa: ANN401 - a configuration class
    found = getattr(transformers, name, None)
    names = AUTO.configuration_auto.CONFIG_MAPPING_NAMES
    return found or AUTO.configuration_auto.CONFIG_MAPPING[next(kind for kind in names if names[kind] == name)]


def _aliases() -> list[Any]:
    """Every alias of a class's `attribute_map` whose key decides something here."""
    cases = []
    for name in huggingface_facts().families:
        facts = family(name)
        assert facts is not None
        if not facts.config_class or facts.whole:
            continue
        mapped = _class(facts.config_class).attribute_map.items()
        wanted = [(alias, key) for alias, key in mapped if key in facts.keys and type(facts.defaults.get(key)) is int]
        cases += [pytest.param(name, alias, key, id=f"{name}-{alias}") for alias, key in wanted]
    return cases


def _read(values: dict[str, Any]) -> ModelArchitecture:
    return load(values, *RUN).job.model


@pytest.mark.parametrize(("name", "alias", "key"), _aliases())
def test_alias_of_a_class_is_read_as_its_key(name: str, alias: str, key: str) -> None:
    facts = family(name)
    assert facts is not None
    value = 2 * facts.defaults[key]
    configuration = _class(facts.config_class)(**SMALL.get(name, {}), **{alias: value})
    assert getattr(configuration, key) == value
    sizes = {"model_type": name, **SMALL.get(name, {})}
    assert _read({**sizes, alias: value}) == _read({**sizes, key: value})
    assert _read({**sizes, key: value}) != _read(sizes)


@pytest.mark.parametrize(("name", "key"), [("bloom", "hidden_size"), ("falcon", "hidden_size")])
def test_alias_that_a_constructor_takes_is_read_as_its_key(name: str, key: str) -> None:
    facts = family(name)
    assert facts is not None
    width = 2 * facts.defaults[key]
    assert getattr(_class(facts.config_class)(n_embed=width), key) == width
    assert _read({"model_type": name, "n_embed": width}) == _read({"model_type": name, key: width})


def test_published_file_of_bloom_has_176_billion_parameters() -> None:
    stated = {"n_embed": 14336, "n_layer": 70, "num_attention_heads": 112, "vocab_size": 250880}
    loaded = load({"architectures": ["BloomForCausalLM"], "model_type": "bloom", **stated}, *RUN)
    model = loaded.job.model
    assert (model.hidden, len(model.layers), model.layers[0].mixer.heads) == (14336, 70, 112)  # type: ignore[union-attr]
    assert loaded.assumed[0].what.startswith("Megatron-LM")
    assert loaded.unmodelled == load({"model_type": "bloom"}, *RUN).unmodelled


def test_first_code_of_falcon_is_read_by_its_own_names() -> None:
    stated = {"hidden_size": 8192, "n_layer": 60, "n_head": 128, "n_head_kv": 8, "new_decoder_architecture": True}
    published = catalog.model("falcon-40b").architecture
    assert _read({"model_type": "falcon", "vocab_size": 65024, **stated}).layers == published.layers


def test_key_and_its_alias_may_agree_and_must_not_differ() -> None:
    agreed = {"model_type": "gpt2", "n_embd": 1536, "hidden_size": 1536}
    assert _read(agreed).hidden == 1536
    with pytest.raises(ConfigurationError, match=r"config.json: hidden_size: hidden_size is 768 and n_embd is 1536"):
        load({**agreed, "hidden_size": 768}, *RUN)


def _assumed(loaded: LoadedConfiguration) -> str:
    return "\n".join(f"{item.what}: {item.why}" for item in loaded.assumed)


def test_size_that_a_class_fills_is_assumed() -> None:
    said = _assumed(load({"model_type": "llama", "num_hidden_layers": 80}, *RUN))
    for key in ("hidden_size", "intermediate_size", "num_attention_heads", "vocab_size"):
        assert f"{key} {getattr(transformers.LlamaConfig(), key)}" in said
    assert "num_hidden_layers" not in said
    assert "LlamaConfig" not in _assumed(load(LLAMA, *RUN))


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("hidden_sise", "hidden_size"),
        ("num_hidden_layer", "num_hidden_layers"),
        ("num_key_value_head", "num_key_value"),
    ],
)
def test_key_that_is_nearly_one_that_is_absent_is_refused(wrong: str, right: str) -> None:
    sizes = {key: value for key, value in LLAMA.items() if not key.startswith(right)}
    with pytest.raises(ConfigurationError, match=rf"config.json: {wrong}: is not a key .* did you mean {right}"):
        load({**sizes, wrong: 4}, *RUN)


@pytest.mark.parametrize("nested", [False, True], ids=["", "in a section"])
def test_key_that_is_nearly_one_that_is_stated_is_only_named(*, nested: bool) -> None:
    text = {**LLAMA, "hidden_sise": 4}
    loaded = load({"model_type": "llava", "text_config": text} if nested else text, *RUN)
    assert "hidden_sise" in {note.what for note in loaded.unmodelled}


def _decisive(values: dict[str, Any]) -> list[str]:
    return [note.what for note in load(values, *RUN).unmodelled if note.decides]


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"architectures": ["MixtralForCausalLM"]}, ["the layers of MixtralForCausalLM"]),
        ({"architectures": ["LLaMAForCausalLM"]}, []),
        ({"auto_map": {"AutoModelForCausalLM": "modeling_x.XForCausalLM"}}, ["the code of modeling_x.XForCausalLM"]),
        ({"auto_map": {"AutoConfig": "configuration_llama.LlamaConfig"}}, []),
        ({"auto_map": {"AutoModelForCausalLM": "modeling_llama.LlamaForCausalLM"}}, []),
    ],
    ids=str,
)
def test_class_of_another_family_leaves_no_verdict(change: dict[str, Any], wanted: list[str]) -> None:
    assert _decisive({**LLAMA, **change}) == wanted


def _causal() -> list[str]:
    names = AUTO.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return [name for name in huggingface_facts().families if name in names and family(name).config_class]  # type: ignore[union-attr]


@pytest.mark.parametrize("name", _causal())
def test_class_of_a_type_is_no_other_family(name: str) -> None:
    described = AUTO.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[name]
    facts = family(name)
    assert facts is not None
    sizes = {facts.fields["model"]["layers"]: 8, **SMALL.get(name, {})}
    loaded = load({"model_type": name, "architectures": [described], **sizes}, *RUN)
    assert not [note for note in loaded.unmodelled if "the layers of" in note.what]


@pytest.mark.parametrize("width", [512, 1024])
def test_table_of_opt_is_noted_only_where_it_has_another_width(width: int) -> None:
    sizes = {item.name: item.default for item in dataclasses.fields(transformers.OPTConfig)}
    stated = {"model_type": "opt", "hidden_size": 1024, "vocab_size": sizes["vocab_size"], "num_attention_heads": 16}
    loaded = load(json.dumps({**stated, "word_embed_proj_dim": width}), *RUN)
    assert any("token table" in note.what for note in loaded.unmodelled) is (width != 1024)
