"""Which layers have a window, experts, biases or linear attention, by Megatron-LM's arguments."""

import pytest

from projector.config import LoadedConfiguration
from projector.errors import ConfigurationError
from projector.job import Attention, MixtureOfExperts, UnmodelledMixer
from tests.config.megatron.builders import arguments, unmodelled

WINDOWS = {
    "none by default": ([], [None] * 8),
    "every layer, the own token included": (["--window-size", "127,0"], [128] * 8),
    "in brackets": (["--window-size", "'(127, 0)'"], [128] * 8),
    "all tokens to the left": (["--window-size=-1,0"], [None] * 8),
    "all but every second layer": (["--window-size", "127,0", "--window-attn-skip-freq", "2"], [128, None] * 4),
    "by a pattern": (
        ["--window-size", "127,0", "--window-attn-skip-freq", "'([0]+[1]*3)*2'"],
        [None, 128, 128, 128] * 2,
    ),
    "a period without a window": (["--window-attn-skip-freq", "2"], [None] * 8),
}


def windows(loaded: LoadedConfiguration) -> list[int | None]:
    return [layer.mixer.window for layer in loaded.job.model.layers if isinstance(layer.mixer, Attention)]


@pytest.mark.parametrize(("words", "wanted"), WINDOWS.values(), ids=WINDOWS)
def test_layers_with_a_window_are(words: list[str], wanted: list[int | None]) -> None:
    loaded = arguments(*words)
    assert windows(loaded) == wanted
    assert unmodelled(loaded) == {}


@pytest.mark.parametrize("text", ["127", "1,2,3", "-2,0", "wide"])
def test_a_window_without_two_sides_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"run\.sh: window_size"):
        arguments(f"--window-size={text}")


@pytest.mark.parametrize("frequency", ["4", "'([1]*3+[0])*2'"])
def test_linear_attention_leaves_every_fourth_layer_in_a_script_too(frequency: str) -> None:
    loaded = arguments("--experimental-attention-variant", "gated_delta_net", "--linear-attention-freq", frequency)
    kinds = [type(layer.mixer) for layer in loaded.job.model.layers]
    assert kinds == [UnmodelledMixer, UnmodelledMixer, UnmodelledMixer, Attention] * 2


@pytest.mark.parametrize("words", [[], ["--disable-bias-linear"]])
def test_the_router_has_a_bias_where_linear_layers_have_one(words: list[str]) -> None:
    """NVIDIA/Megatron-LM megatron/core/transformer/moe/router.py since megatron-core 0.15."""
    blocks = arguments("--num-experts", "8", *words).job.model.expert_blocks
    assert [block.router_bias for block in blocks if isinstance(block, MixtureOfExperts)] == [not words]


RECOMPUTED: dict[str, tuple[list[str], tuple[str, ...], dict[str, bool]]] = {
    "the attention core by default": ([], ("core_attn",), {}),
    "the named modules": (["--recompute-modules", "moe", "layernorm"], ("moe", "layernorm"), {}),
    "nothing": (["--recompute-modules"], (), {}),
    "a module of a fork, with a doubt": (
        ["--recompute-modules", "moe", "router"],
        ("moe", "router"),
        {"recomputation of 'router'": True},
    ),
}


@pytest.mark.parametrize(("words", "modules", "doubts"), RECOMPUTED.values(), ids=RECOMPUTED)
def test_selective_recomputation_takes(words: list[str], modules: tuple[str, ...], doubts: dict[str, bool]) -> None:
    loaded = arguments("--recompute-granularity", "selective", *words)
    assert loaded.job.recompute.modules == modules
    assert unmodelled(loaded) == doubts
