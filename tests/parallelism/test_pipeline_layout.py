"""Layout strings mean what Megatron-LM makes of them."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projector.errors import LayoutImpossible
from projector.parallelism.pipeline_layout import parse

PUBLIC = {
    "DeepSeek-V3 on H100 (Megatron-MoE-ModelZoo)": ("Et|(tt|)*30mL", 32, 61),
    "the sample of Megatron's own help": ("Et*3|(tt|)*29,m|L", 32, 61),
    "80 layers, PP8 VPP5": ("Et*2|(t*2|)*34,t*3|(t*2|)*3,tL", 40, 80),
    "embedding alone": ("E(|tt)*30,|mL", 32, 60),
    "43 layers": ("Et*10|t*12|t*12|t*9mL", 4, 43),
}


@pytest.mark.parametrize(("text", "stages", "layers"), PUBLIC.values(), ids=PUBLIC)
def test_published_strings(text: str, stages: int, layers: int) -> None:
    parsed = parse(text)
    assert (len(parsed), "".join(parsed).count("t")) == (stages, layers)


@given(st.lists(st.text("Etm", max_size=4), min_size=1, max_size=8), st.randoms())
def test_commas_and_white_space_mean_nothing(stages: list[str], random: Random) -> None:
    plain = "|".join(stages)
    spaced = "".join(symbol + random.choice(["", ",", " ", "\n"]) for symbol in plain)
    assert parse(spaced) == parse(plain) == tuple(stages)


@given(st.text("t|", min_size=1, max_size=5), st.integers(0, 9))
def test_a_repeated_group_is_written_out(group: str, count: int) -> None:
    assert parse(f"E({group})*{count}L") == tuple(f"E{group * count}L".split("|"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("E(t|*3", r"`\(` without `\)`"),
        ("Et)|L", r"`\)` without `\(`"),
        ("Ex|L", "unknown symbol `x`"),
        ("E" + "(" * 3000, "brackets nested deeper than 32"),
        ("Et*|L", "without a sensible count"),
        ("E((t*9999)*9999)*9999L", "more than 100000 symbols"),
        ("Et*99999999999999L", "without a sensible count"),
    ],
)
def test_what_is_outside_the_grammar_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(LayoutImpossible, match=complaint):
        parse(text)
