import pytest
from hypothesis import given
from hypothesis import strategies as st

from projector.config.variables import Counted, retype, substitute
from projector.errors import ConfigurationError, ConfigurationTooLarge

CASES = {
    "no variable keeps its text": ("true", {}, "true"),
    "a set variable": ("${TP}", {"TP": "8"}, 8),
    "a default": ("${TP:4}", {}, 4),
    "a set variable beats its default": ("${TP:4}", {"TP": "8"}, 8),
    "an empty value is set": ("${X:4}", {"X": ""}, ""),
    "an empty default": ("${X:}", {}, ""),
    "a default with colons": ("${URL:http://a:80}", {}, "http://a:80"),
    "text around": ("${MODEL:llama2_7B}.yaml", {}, "llama2_7B.yaml"),
    "several in one text": ("${A:x}/${B:y}", {"B": "z"}, "x/z"),
    "boolean in any case": ("${X:TRUE}", {}, True),
    "false": ("${X:False}", {}, False),
    "negative integer": ("${X:-3}", {}, -3),
    "leading zeros": ("${X:007}", {}, 7),
    "number": ("${X:8.0e-4}", {}, 8e-4),
    "number without point": ("${X:1e-5}", {}, 1e-5),
    "null stays text": ("${X:null}", {}, "null"),
    "a joined number": ("1${X:2}", {}, 12),
    "yes is no boolean here": ("${X:yes}", {}, "yes"),
    "a value is not searched again": ("${X}", {"X": "${Y:1}"}, "${Y:1}"),
    "dollar without braces": ("$X", {}, "$X"),
}


@pytest.mark.parametrize(("text", "variables", "want"), CASES.values(), ids=CASES.keys())
def test_a_text_with_variables_becomes(text: str, variables: dict[str, str], want: object) -> None:
    value = substitute(text, variables, place="f: k").value
    assert value == want
    assert type(value) is type(want)


def test_an_unset_variable_names_file_key_and_variable() -> None:
    with pytest.raises(
        ConfigurationError, match=r"exp\.yaml: data_path: the variable DATA is not set.*\$\{DATA:value\}"
    ):
        substitute("${DATA}", {}, place="exp.yaml: data_path")


def test_braces_that_never_close_cost_no_more_than_their_length() -> None:
    text = "${A:" * 1_000_000
    assert substitute(text, {}, place="f").value == text


def test_a_short_text_cannot_grow_without_bound() -> None:
    with pytest.raises(ConfigurationTooLarge, match="the variable A: variables put more than 5242880 characters"):
        substitute("${A}" * 10_000, Counted({"A": "x" * 4096}), place="f")


def test_only_variables_that_were_set_count_as_used() -> None:
    assert substitute("${A:1}${B}", {"B": "2"}, place="f").variables == ("B",)


@given(st.text().filter(lambda text: "${" not in text))
def test_a_text_without_variables_stays_itself(text: str) -> None:
    assert substitute(text, {}, place="f").value == text


@given(st.integers(min_value=-(10**17), max_value=10**17) | st.floats(allow_nan=False, allow_infinity=False))
def test_every_printed_number_is_read_back(number: float) -> None:
    assert retype(str(number)) == number
