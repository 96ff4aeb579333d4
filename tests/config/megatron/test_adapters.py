"""The keys below `lora` become adapters, and none of them is lost."""

import pytest

from projector.errors import InputError
from projector.job import LowRankAdapters
from tests.config.builders import MOE, flat_text, llama_text, load

LATENT = {"multi_latent_attention": True, "qk_layernorm": True, "kv_lora_rank": 512, "add_bias_linear": False}

STATED: dict[str, tuple[dict[str, object], LowRankAdapters | None]] = {
    "nothing": ({}, None),
    "off": ({"enabled": False, "dim": 8}, None),
    "defaults": ({"enabled": True}, LowRankAdapters(rank=32)),
    "all": (
        {
            "enabled": True,
            "dim": 16,
            "alpha": 32,
            "dropout": 0.1,
            "dropout_position": "post",
            "target_modules": ["linear_qkv", "linear_proj"],
            "a2a_experimental": True,
            "lora_A_init_method": "xavier",
        },
        LowRankAdapters(
            rank=16,
            targets=("linear_qkv", "linear_proj"),
            dropout=0.1,
            dropout_on_input=False,
            all_to_all=True,
        ),
    ),
}


@pytest.mark.parametrize(("stated", "wanted"), STATED.values(), ids=STATED.keys())
def test_adapters_are_what_the_keys_say(stated: dict[str, object], wanted: LowRankAdapters | None) -> None:
    found = load(llama_text(lora=stated) if stated else llama_text())
    assert found.job.adapters == wanted
    assert found.unmodelled == ()


def test_keys_without_influence_are_listed() -> None:
    ignored = load(llama_text(lora={"enabled": True, "alpha": 32})).ignored
    assert "lora.alpha" in ignored


WRONG: dict[str, tuple[dict[str, object], str]] = {
    "no rank": ({"dim": 0}, "lora.dim: 0 is a number; expected an integer of at least 1"),
    "all dropped": ({"dropout": 1.0}, "lora.dropout: 1.0 is a number; expected a number from 0 to below 1"),
    "position": ({"dropout_position": "both"}, "lora.dropout_position: 'both' is not known"),
    "a text": ({"target_modules": "linear_qkv"}, "lora.target_modules: .*expected a list of texts"),
    "another attention": ({"target_modules": ["linear_q_up_proj"]}, "no layer of .* has one of linear_q_up_proj"),
    "none": ({"target_modules": []}, "no layer of .* has one of no names.*some of linear_qkv"),
}


@pytest.mark.parametrize(("stated", "complaint"), WRONG.values(), ids=WRONG.keys())
def test_adapters_that_cannot_be_are_refused_in_one_line(stated: dict[str, object], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        load(llama_text(lora={"enabled": True, **stated}))


def test_a_target_without_a_layer_is_assumed_to_have_no_adapter() -> None:
    notes = load(flat_text(lora={"enabled": True}, **LATENT)).assumed
    assert [note.what for note in notes if "adapter" in note.what] == ["no adapter on linear_qkv"]


NAMED: dict[str, tuple[dict[str, object], bool]] = {
    "wildcards": ({"target_modules": ["*.layers.0.*.linear_qkv"]}, True),
    "router": ({"target_modules": ["linear_qkv", "router"]}, True),
    "an adapter for each expert": ({"share_expert_adapters": False}, True),
    "another format": ({"lora_dtype": "fp32"}, False),
    "a near miss": ({"rank": 8}, True),
}


@pytest.mark.parametrize(("stated", "decides"), NAMED.values(), ids=NAMED.keys())
def test_what_is_not_modelled_of_adapters_is_named(stated: dict[str, object], decides: bool) -> None:  # noqa: FBT001 - a case
    notes = load(flat_text(**MOE, lora={"enabled": True, **stated})).unmodelled
    assert [note.decides for note in notes] == [decides]
