"""Model arguments of a Primus module -> `ModelArchitecture`."""

import pytest

from projector.errors import ConfigurationError
from projector.job import (
    Attention,
    DenseMLP,
    LatentAttention,
    MixtureOfExperts,
    NormKind,
    PositionKind,
    UnmodelledMixer,
)
from tests.config.builders import MOE, experiment_text, flat_text, llama_text, load

PATTERNS: dict[str, tuple[object, int, list[int]]] = {
    "every layer": (1, 4, [1, 1, 1, 1]),
    "every layer, as text": ("1", 4, [1, 1, 1, 1]),
    "every second": (2, 5, [1, 0, 1, 0, 1]),
    "every second, as text": ("2", 5, [1, 0, 1, 0, 1]),
    "three dense, then experts": ("([0]*3+[1]*58)", 61, [0] * 3 + [1] * 58),
    "a list": ([0, 1, 1, 0], 4, [0, 1, 1, 0]),
    "a pattern cut for a proxy": ("([0]*3+[1]*58)", 4, [0, 0, 0, 1]),
    "unstated": (None, 3, [1, 1, 1]),
    "one layer": ("([0]*1)", 1, [0]),
}


@pytest.mark.parametrize(("freq", "layers", "want"), PATTERNS.values(), ids=PATTERNS.keys())
def test_experts_stand_in_the_layers_of_moe_layer_freq(freq: object, layers: int, want: list[int]) -> None:
    loaded = load(flat_text(**MOE, moe_layer_freq=freq, num_layers=layers))
    got = [int(isinstance(layer.feed_forward, MixtureOfExperts)) for layer in loaded.job.model.layers]
    assert got == want


@pytest.mark.parametrize(
    "freq", ["range(8)", "[1].append(0)", "([0]*3+[1]*4)", "[2]*8", 0, "every", 1.5, "[0.5]*8", True]
)
def test_a_pattern_that_is_none_is_refused(freq: object) -> None:
    with pytest.raises(ConfigurationError, match=r"exp\.yaml: moe_layer_freq"):
        load(flat_text(**MOE, moe_layer_freq=freq))


def test_a_cut_pattern_is_said() -> None:
    loaded = load(flat_text(**MOE, moe_layer_freq="[1]*61"))
    assert any("first 8 of 61 entries of moe_layer_freq" in note.what for note in loaded.assumed)


def test_what_no_file_states_takes_the_defaults_of_megatron() -> None:
    model = load(flat_text(ffn_hidden_size=None)).job.model
    assert model.norm is NormKind.LAYER
    assert model.position is PositionKind.LEARNED
    assert model.tied_embeddings
    attention = Attention(heads=16, key_value_heads=16, head_dim=64, bias_qkv=True, bias_output=True)
    assert model.layers[0].mixer == attention
    assert model.layers[0].feed_forward == DenseMLP(ffn=4096, gated=False, bias=True)


def test_the_catalog_s_llama_is_the_public_one() -> None:
    model = load(llama_text()).job.model
    assert (len(model.layers), model.hidden, model.vocabulary, model.tied_embeddings) == (32, 4096, 128256, False)
    assert model.layers[0].mixer == Attention(heads=32, key_value_heads=8, head_dim=128)
    assert model.layers[0].feed_forward == DenseMLP(ffn=14336)


def test_the_catalog_s_deepseek_v3_is_the_public_one() -> None:
    loaded = load(experiment_text({"config": "pre_trainer", "model": "deepseek_v3"}))
    model = loaded.job.model
    experts = [layer.feed_forward for layer in model.layers if isinstance(layer.feed_forward, MixtureOfExperts)]
    assert (len(model.layers), len(experts), model.multi_token_prediction_layers) == (61, 58, 1)
    assert experts[0].experts == 256
    assert experts[0].router_balance_bias
    assert model.layers[0].mixer == LatentAttention(
        heads=128,
        query_lora_rank=1536,
        key_value_lora_rank=512,
        query_key_nope_dim=128,
        query_key_rope_dim=64,
        value_dim=128,
    )
    assert loaded.job.parallelism.expert == 8, "the Primus preset of the model states it"


VOCABULARIES: dict[str, tuple[dict[str, object], int, int]] = {
    "stated": ({"vocab_size": 1000}, 1000, 128),
    "stated for a null tokenizer": ({"vocab_size": 1000, "tokenizer_type": "NullTokenizer"}, 1001, 128),
    "padded by the person": ({"padded_vocab_size": 1024, "vocab_size": 1000}, 1024, 1),
    "of the tokenizer's model": ({"vocab_size": None, "tokenizer_model": "meta-llama/Llama-3.1-70B"}, 128256, 128),
    "of the tokenizer's type": ({"vocab_size": None, "tokenizer_type": "MixtralTokenizer"}, 32000, 128),
}


@pytest.mark.parametrize(("values", "vocabulary", "divisor"), VOCABULARIES.values(), ids=VOCABULARIES.keys())
def test_the_vocabulary_is(values: dict[str, object], vocabulary: int, divisor: int) -> None:
    job = load(flat_text(**values)).job
    assert (job.model.vocabulary, job.software.vocabulary_divisible_by) == (vocabulary, divisor)


def test_an_unknown_tokenizer_says_what_to_state() -> None:
    with pytest.raises(
        ConfigurationError, match=r"tokenizer_model: the vocabulary of 'me/mine' is not known; state vocab_size"
    ):
        load(flat_text(vocab_size=None, tokenizer_type="HuggingFaceTokenizer", tokenizer_model="me/mine"))


def test_where_the_vocabulary_comes_from_is_said() -> None:
    assert any("vocabulary 128256" in note.what for note in load(llama_text()).assumed)


MIXERS: dict[str, tuple[dict[str, object], str, list[int]]] = {
    "gated delta net": (
        {"experimental_attention_variant": "gated_delta_net", "linear_attention_freq": 4},
        "gated delta net",
        [1, 1, 1, 0, 1, 1, 1, 0],
    ),
    "Kimi linear pattern": (
        {"experimental_attention_variant": "kda", "linear_attention_freq": "([1]*3+[0])*2"},
        "kda",
        [1, 1, 1, 0, 1, 1, 1, 0],
    ),
    "short convolutions": (
        {"lfm_layer_types": ["conv", "full_attention"] * 4},
        "LFM2 short convolution",
        [1, 0] * 4,
    ),
    "mamba": ({"model_type": "mamba"}, "Mamba", [1] * 8),
    "a hybrid stack": ({"model_type": "mamba", "spec": ["m", "gdn_hybrid_stack_spec"]}, "GDN", [1] * 8),
}


@pytest.mark.parametrize(("values", "name", "want"), MIXERS.values(), ids=MIXERS.keys())
def test_layers_that_cannot_be_modelled_are_named(values: dict[str, object], name: str, want: list[int]) -> None:
    mixers = [layer.mixer for layer in load(flat_text(**values)).job.model.layers]
    assert [int(isinstance(mixer, UnmodelledMixer)) for mixer in mixers] == want
    assert all(name in mixer.name for mixer in mixers if isinstance(mixer, UnmodelledMixer))
