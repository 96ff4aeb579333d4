from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projector.config.expressions import evaluate
from projector.errors import ConfigurationError

_LITERALS = st.integers(min_value=0, max_value=99).map(str)
_LISTS = st.lists(_LITERALS, max_size=4).map(lambda items: f"[{', '.join(items)}]")
_TERMS = st.one_of(
    _LISTS,
    st.tuples(_LISTS, st.integers(min_value=0, max_value=5)).map(lambda pair: f"{pair[0]}*{pair[1]}"),
    st.tuples(st.integers(min_value=0, max_value=5), _LISTS).map(lambda pair: f"{pair[0]} * {pair[1]}"),
)
_SUMS = st.recursive(
    st.lists(_TERMS, min_size=1, max_size=4).map("+".join),
    lambda inner: inner.map(lambda text: f"({text})"),
    max_leaves=3,
)


@given(_SUMS)
def test_list_arithmetic_is_that_of_python(text: str) -> None:
    assert evaluate(text, place="f") == eval(text, {"__builtins__": {}})  # noqa: S307 - the other implementation


VALUES = {
    "([0]*3+[1]*58)": [0] * 3 + [1] * 58,
    "1": 1,
    "-1.5e3": -1500.0,
    "[1, 'a', \"b\", None, true, [2]]": [1, "a", "b", None, True, [2]],
    "{'a': {'b': 1}}": {"a": {"b": 1}},
    "(1,)": [1],
    "()*0": None,
    "([1]*3+[0])*2": [1, 1, 1, 0] * 2,
}


@pytest.mark.parametrize(("text", "want"), [(text, want) for text, want in VALUES.items() if want is not None])
def test_a_literal_has_its_value(text: str, want: object) -> None:
    assert evaluate(text, place="f") == want


REFUSED = [
    "__import__('os').system('id')",
    "[0].__class__",
    "range(61)",
    "[x for x in [1]]",
    "a",
    "None()",
    "1 if 1 else 2",
    "[0][0]",
    "2**100",
    "1;2",
    "[1,,2]",
    "[1",
    "1]",
    "()*0",
    "",
    "'a'*9",
    "['a']*9",
    "[[0]*9]*9",
    "-[1]",
    "[1]*1.5",
    "{1: 2}",
    "lambda: 0",
    "f'{1}'",
    "\\",
]


@pytest.mark.parametrize("text", REFUSED)
def test_everything_else_is_refused_and_not_executed(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"exp\.yaml: moe_layer_freq: .*is not understood"):
        evaluate(text, place="exp.yaml: moe_layer_freq")


TOO_LARGE = [
    "[0]*1000000000",
    "[0]*9999+[0]*9999",
    "(" * 500 + "1" + ")" * 500,
    "9" * 40,
    "9999999999*9999999999",
    "1+" * 20_000,
]


@pytest.mark.parametrize("text", TOO_LARGE, ids=range(len(TOO_LARGE)))
def test_what_would_grow_without_bound_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        evaluate(text, place="f")


@given(st.text(alphabet="01.[](){}+-*,:'\"aN ", max_size=30))
def test_no_text_ends_in_anything_but_a_value_or_a_complaint(text: str) -> None:
    with suppress(ConfigurationError):
        evaluate(text, place="f")
