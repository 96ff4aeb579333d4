"""The table of flags and the words of a command line, against Python's own argparse as Megatron-LM calls it."""

import argparse
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projector.config.megatron.argument_list import parse
from projector.config.megatron.facts import megatron_facts
from projector.config.megatron.flags import Flag, Kind, find_flag, flags, keys_of_flags
from projector.config.shell import Word

TYPES = {Kind.INTEGER: int, Kind.INTEGERS: int, Kind.NUMBER: float, Kind.NUMBERS: float}


def peer() -> argparse.ArgumentParser:
    """A parser made of the table, as Megatron-LM makes its own."""
    parser = argparse.ArgumentParser(allow_abbrev=False, argument_default=argparse.SUPPRESS)
    for flag in flags().values():
        options: dict[str, Any] = {"dest": flag.key}
        if flag.kind.is_switch:
            options["action"] = "store_true" if flag.kind is Kind.ON else "store_false"
        else:
            options["type"] = TYPES.get(flag.kind, str)
            options |= {"nargs": "*"} if flag.kind.is_list else {}
        parser.add_argument(f"--{flag.name}", **options)
    return parser


PEER = peer()
INTEGERS = st.integers(-(10**9), 10**9).map(str) | st.sampled_from(["4_096", "+7"])
NUMBERS = st.floats(-1e9, 1e9, allow_nan=False).map(str).filter(lambda text: "e" not in text) | st.just("1e-5")
TEXTS = st.text("abcXYZ019./:,[]()*+_", min_size=1, max_size=8)


@st.composite
def stated(draw: st.DrawFn) -> list[str]:
    """The words of one argument."""
    flag: Flag = draw(st.sampled_from(list(flags().values())))
    values = {int: INTEGERS, float: NUMBERS}.get(TYPES.get(flag.kind, str), TEXTS)
    if flag.kind.is_switch:
        return [f"--{flag.name}"]
    if flag.kind.is_list:
        return [f"--{flag.name}", *draw(st.lists(values, min_size=1, max_size=3))]
    value = draw(values)
    return draw(st.sampled_from([[f"--{flag.name}", value], [f"--{flag.name}={value}"]]))


@settings(deadline=None)
@given(st.lists(stated(), max_size=8))
def test_words_are_read_as_argparse_reads_them(groups: list[list[str]]) -> None:
    words = [word for group in groups for word in group]
    ours = parse([Word(text=word, line=1) for word in words], name="arguments")
    assert {key: value.value for key, value in ours.values.items()} == vars(PEER.parse_args(words))
    assert not ours.unusable
    assert not ours.stray


# Facts of the parser in megatron-core 0.19.2, taken from `parser._actions` by hand.
PARSER_FACTS = {
    "num-layers": ("num_layers", Kind.INTEGER),
    "fp8-format": ("fp8", Kind.TEXT),
    "disable-bias-linear": ("add_bias_linear", Kind.OFF),
    "no-masked-softmax-fusion": ("masked_softmax_fusion", Kind.OFF),
    "no-rope-fusion": ("apply_rope_fusion", Kind.OFF),
    "no-gradient-accumulation-fusion": ("gradient_accumulation_fusion", Kind.OFF),
    "no-create-attention-mask-in-dataloader": ("create_attention_mask_in_dataloader", Kind.OFF),
    "no-load-optim": ("no_load_optim", Kind.ON),
    "swiglu": ("swiglu", Kind.ON),
    "recompute-modules": ("recompute_modules", Kind.TEXTS),
    "rampup-batch-size": ("rampup_batch_size", Kind.INTEGERS),
    "cp-comm-type": ("cp_comm_type", Kind.TEXTS),
    "microbatch-group-size-per-virtual-pipeline-stage": ("microbatch_group_size_per_vp_stage", Kind.INTEGER),
    "moe-layer-freq": ("moe_layer_freq", Kind.TEXT),
    "window-size": ("window_size", Kind.TEXT),
    "norm-epsilon": ("layernorm_epsilon", Kind.NUMBER),
}


@pytest.mark.parametrize("name", PARSER_FACTS)
def test_the_table_has(name: str) -> None:
    flag = find_flag(f"--{name}")
    assert flag is not None
    assert (flag.key, flag.kind) == PARSER_FACTS[name]


def test_every_key_is_read_or_ignored_or_reported() -> None:
    facts = megatron_facts()
    switches = {each.key for each in facts.unmodelled}
    assert not facts.ignored & switches
    assert len(keys_of_flags()) > 800
