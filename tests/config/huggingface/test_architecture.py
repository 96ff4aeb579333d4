"""A config.json becomes the architecture that the class of `transformers` builds from it."""

import dataclasses
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from projector import catalog
from projector.config.huggingface.facts import Family, family, huggingface_facts
from projector.errors import ConfigurationError, InputError, LayoutImpossible
from projector.job import Attention, DecoderLayer, ModelArchitecture, UnmodelledMixer
from tests.catalog.counting import counts
from tests.config.huggingface.builders import LLAMA, RUN, SMALL, load

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
PUBLISHED: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[2] / "catalog" / "published_configs.yaml").read_text(encoding="utf-8")
)
FAMILIES = huggingface_facts().families
LAYERS = 8
SAID_NOT_COUNTED = ("kimi_k2", "glm_moe_dsa", "deepseek_v32", "lfm2")
"""Types without a class, or with a part of the layers that the reader says is not counted."""
NARROW_WINDOW = 1024
"""Windows from this many tokens up are left out of some models of the catalog."""
UNMODELLED_PARTS = ("input_layernorm", "operator_norm", "linear_attn", "conv.", "mamba.")
"""Parts of a layer whose mixer is not modelled, as `transformers` names them; its norm is counted with the mixer."""
BESIDE = {"phimoe": ["lm_head.bias"], "bloom": ["word_embeddings_layernorm."]}
"""Parts that the reader says are not counted."""

pytestmark = pytest.mark.filterwarnings("ignore:.*:FutureWarning", "ignore:.*:DeprecationWarning")


def known(name: str) -> Family:
    """The facts about a family that there is."""
    found = family(name)
    assert found is not None
    return found


MODELLED = [name for name in FAMILIES if known(name).config_class and not known(name).whole]


@cache
def config_class(name: str) -> Any:  # noqa: ANN401 - a class of transformers
    """A configuration class by its name."""
    mapping = transformers.models.auto.configuration_auto
    direct = getattr(transformers, name, None)
    return direct or next(
        mapping.CONFIG_MAPPING[kind] for kind, named in mapping.CONFIG_MAPPING_NAMES.items() if named == name
    )


def as_file(configuration: Any, **more: object) -> str:  # noqa: ANN401 - an instance of such a class
    """The text of its config.json, without rope, whose values JSON cannot always hold."""
    values = {**configuration.to_dict(), **more}
    return json.dumps({key: value for key, value in values.items() if key != "time_step_limit"})


def comparable(model: ModelArchitecture) -> ModelArchitecture:
    """The model without what the catalog names differently, and without windows wider than the catalog describes."""
    return replace(
        model,
        name="",
        layers=tuple(map(_without_names, model.layers)),
        multi_token_prediction_layers=0,
        leaves_out=(),
    )


def _without_names(layer: DecoderLayer) -> DecoderLayer:
    if isinstance(layer.mixer, UnmodelledMixer):
        return replace(layer, mixer=UnmodelledMixer(name="?"))
    wide = isinstance(layer.mixer, Attention) and (layer.mixer.window or 0) >= NARROW_WINDOW
    return replace(layer, mixer=replace(layer.mixer, window=None)) if wide else layer  # type: ignore[type-var]


def _published(name: str) -> Any:  # noqa: ANN401 - an instance of a configuration class
    kind = getattr(transformers, str(catalog.model(name).huggingface_class)).config_class
    return kind(**PUBLISHED[name]["config"])


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configuration_is_the_model_of_the_catalog(name: str) -> None:
    configuration, described = _published(name), catalog.model(name).architecture
    loaded = load(as_file(configuration), *RUN)
    if known(configuration.model_type).whole:
        assert any(isinstance(layer.mixer, UnmodelledMixer) for layer in described.layers)
        return
    assert comparable(loaded.job.model) == comparable(described)
    assert bool(described.leaves_out) == any(note.decides for note in loaded.unmodelled)


@pytest.mark.parametrize("name", [name for name in MODELLED if name not in SAID_NOT_COUNTED and "_vl" not in name])
def test_class_has_as_many_parameters(name: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    facts = known(name)
    sizes = {facts.fields["model"]["layers"]: LAYERS, **SMALL.get(name, {})}
    configuration = transformers.CONFIG_MAPPING[name](**sizes)
    model = load(as_file(configuration), *RUN).job.model
    with torch.device("meta"):
        network = transformers.AutoModelForCausalLM.from_config(configuration)
    unmodelled = [index for index, layer in enumerate(model.layers) if isinstance(layer.mixer, UnmodelledMixer)]
    apart = [f"layers.{index}.{part}" for index in unmodelled for part in UNMODELLED_PARTS] + BESIDE.get(name, [])
    theirs = sum(
        parameter.numel() for name, parameter in network.named_parameters() if not any(part in name for part in apart)
    )
    assert counts(model).total == theirs


@pytest.mark.parametrize("name", MODELLED)
def test_defaults_are_those_of_the_class(name: str) -> None:
    facts = known(name)
    stated = {item.name: item.default for item in dataclasses.fields(config_class(facts.config_class))}
    beyond = {"full_attention_interval", "sliding_window_pattern"}  # arguments of the constructor alone
    assert {key: stated[key] for key in facts.defaults if key not in beyond} == {
        key: value for key, value in facts.defaults.items() if key not in beyond
    }


def _listed(name: str) -> bool:
    """Whether the class of a type lists the kinds of its layers."""
    return "layer_types" in {item.name for item in dataclasses.fields(config_class(known(name).config_class))}


@pytest.mark.parametrize("name", [name for name in MODELLED if _listed(name) and not known(name).latent])
@pytest.mark.parametrize("switched", [False, True], ids=["", "switched"])
def test_kinds_of_layers_are_those_of_the_class(name: str, *, switched: bool) -> None:
    facts = known(name)
    values: dict[str, Any] = {facts.fields["model"]["layers"]: LAYERS, **SMALL.get(name, {})}
    switch = facts.mixers.get("switch")
    if switch is not None:
        values |= {switch: switched, "max_window_layers": 3, "sliding_window": 512}
    configuration = config_class(facts.config_class)(**values)
    kinds = configuration.layer_types
    model = load(json.dumps({"model_type": name, **values}), *RUN).job.model
    windows = bool(getattr(configuration, "sliding_window", None))
    wanted = ["full_attention" if kind == "sliding_attention" and not windows else kind for kind in kinds]
    assert [_kind(layer) for layer in model.layers] == [
        kind if kind.endswith("attention") and "linear" not in kind else "unmodelled" for kind in wanted
    ]


def _kind(layer: DecoderLayer) -> str:
    if not isinstance(layer.mixer, Attention):
        return "unmodelled"
    if layer.mixer.compression_ratio:
        return "compressed_sparse_attention" if layer.mixer.index_heads else "heavily_compressed_attention"
    windowed = "sliding_attention" if layer.mixer.window else "full_attention"
    return "chunked_attention" if layer.mixer.chunk else windowed


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("qwen2_moe", {"decoder_sparse_step": 2, "mlp_only_layers": [3]}),
        ("qwen3_moe", {"decoder_sparse_step": 3}),
        ("llama4_text", {"interleave_moe_layer_step": 2}),
        ("deepseek_v3", {"first_k_dense_replace": 3}),
        ("jamba", {"expert_layer_period": 4, "expert_layer_offset": 2, "num_experts": 4}),
    ],
)
def test_layers_with_experts_are_those_of_the_class(name: str, values: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    configuration = transformers.CONFIG_MAPPING[name](num_hidden_layers=LAYERS, **values)
    with torch.device("meta"):
        network = transformers.AutoModelForCausalLM.from_config(configuration)
    routed = {
        int(name.split("layers.")[1].split(".")[0]) for name, _ in network.named_parameters() if ".experts." in name
    }
    model = load(json.dumps({"model_type": name, "num_hidden_layers": LAYERS, **values}), *RUN).job.model
    blocks_with = {index for index, layer in enumerate(model.layers) if layer.feed_forward in model.expert_blocks}
    assert blocks_with == routed


@pytest.mark.parametrize("name", [name for name in FAMILIES if known(name).whole])
def test_family_that_is_not_modelled_says_so_in_every_layer(name: str) -> None:
    sizes = {"hidden_size": 512, "num_hidden_layers": 4, "vocab_size": 1000}
    model = load(json.dumps({"model_type": name, **sizes}), *RUN).job.model
    assert {layer.mixer for layer in model.layers} == {UnmodelledMixer(name=known(name).whole)}


def test_text_part_of_a_multimodal_model_is_read_and_the_rest_named() -> None:
    configuration = transformers.CONFIG_MAPPING["gemma3"](text_config={"num_hidden_layers": 12, "vocab_size": 262208})
    loaded = load(as_file(configuration), *RUN)
    assert len(loaded.job.model.layers) == 12
    assert [(note.what.split(" (")[0], note.decides) for note in loaded.unmodelled][:1] == [
        ("the vision encoder", True)
    ]
    assert loaded.values["text_config.num_hidden_layers"].file == "config.json"


@pytest.mark.parametrize(
    ("arguments", "field", "wanted"),
    [
        (("num_hidden_layers=4",), "layers", 4),
        (("num_layers=3",), "layers", 3),
        (("hidden_size=2048",), "hidden", 2048),
        (("vocab_size=1000",), "vocabulary", 1000),
        (("padded_vocab_size=1024",), "vocabulary", 1024),
        (("tie_word_embeddings=true",), "tied_embeddings", True),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_architecture_may_be_overridden(arguments: tuple[str, ...], field: str, wanted: object) -> None:
    value = getattr(load(LLAMA, *RUN, *arguments).job.model, field)
    assert (len(value) if isinstance(value, tuple) else value) == wanted


def test_nested_architecture_is_overridden_by_the_names_of_its_section() -> None:
    nested = {"model_type": "llava", "text_config": {**LLAMA}, "vision_config": {"hidden_size": 64}}
    for name in ("num_hidden_layers=4", "text_config.num_hidden_layers=4", "num_layers=4"):
        assert len(load(nested, *RUN, name).job.model.layers) == 4


def test_name_in_the_catalog_is_its_model() -> None:
    model = load({"model": "meta-llama/Llama-3.1-70B"}, *RUN).job.model
    assert model == catalog.model("llama3.1-70b").architecture
    cut: ModelArchitecture = load("model: llama3.1-70b", *RUN, "num_layers=2").job.model
    assert cut == replace(model, layers=model.layers[:2])


def test_key_that_nobody_knows_is_named() -> None:
    loaded = load({**LLAMA, "router_of_dreams": 3}, *RUN)
    assert [(note.what, note.decides) for note in loaded.unmodelled] == [("router_of_dreams", False)]


def test_keys_that_do_not_matter_are_listed() -> None:
    loaded = load({**LLAMA, "rope_theta": 1e4, "rope_scaling": {"factor": 8.0}, "rms_norm_eps": 1e-5}, *RUN)
    assert set(loaded.ignored) == {"architectures", "rope_theta", "rope_scaling.factor", "rms_norm_eps"}


@pytest.mark.parametrize(
    ("change", "kind", "wanted"),
    [
        (
            {"model_type": "bert"},
            ConfigurationError,
            r"config.json: model_type: models of the type 'bert' are not known",
        ),
        ({"model_type": 7}, ConfigurationError, r"model_type is missing"),
        ({"num_attention_heads": 12}, LayoutImpossible, r"not a multiple of 12 heads"),
        ({"num_key_value_heads": 3}, LayoutImpossible, r"16 attention heads do not divide over 3"),
        ({"num_hidden_layers": 10**9}, ConfigurationError, r"num_hidden_layers: 1000000000 is a number"),
        ({"hidden_size": "wide"}, ConfigurationError, r"hidden_size: 'wide' is a text; expected an integer"),
        ({"layer_types": ["full_attention"]}, ConfigurationError, r"layer_types: 1 entries for 8 layers"),
        ({"hidden_size": {"a": 1}}, ConfigurationError, r"a mapping stands where hidden_size has one value"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, dict) else "",
)
def test_wrong_value_is_one_clear_line(change: dict[str, Any], kind: type[InputError], wanted: str) -> None:
    with pytest.raises(kind, match=wanted):
        load({**LLAMA, **change}, *RUN)


def test_head_that_predicts_no_tokens_decides() -> None:
    loaded = load({**LLAMA, "architectures": ["LlamaForSequenceClassification"]}, *RUN)
    assert [note.decides for note in loaded.unmodelled] == [True]
