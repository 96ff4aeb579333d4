import pytest

from projector.config import Override, overrides_from_pairs, parse_overrides
from projector.errors import ConfigurationError

FORMS = {
    "key=value": (["a=1"], [("a", 1)]),
    "--key=value": (["--a=1"], [("a", 1)]),
    "--key value": (["--a", "1"], [("a", 1)]),
    "--flag": (["--a"], [("a", True)]),
    "--flag before another": (["--a", "--b", "2"], [("a", True), ("b", 2)]),
    "--flag before key=value": (["--a", "b=2"], [("a", True), ("b", 2)]),
    "a negative value": (["--a", "-3"], [("a", -3)]),
    "dots nest": (["lora.enabled=false"], [("lora.enabled", False)]),
    "the value keeps its equal signs": (["a=b=c"], [("a", "b=c")]),
    "an empty value": (["a="], [("a", "")]),
}


@pytest.mark.parametrize(("tokens", "want"), FORMS.values(), ids=FORMS.keys())
def test_an_override_may_be_written_as(tokens: list[str], want: list[tuple[str, object]]) -> None:
    assert parse_overrides(tokens) == tuple(Override(key=key, value=value) for key, value in want)


VALUES = {
    "TRUE": True,
    "false": False,
    "None": None,
    "null": None,
    "12": 12,
    "-1": -1,
    "1e-5": 1e-5,
    "0.1": 0.1,
    "[1, 2]": [1, 2],
    "['a']": ["a"],
    '"8"': "8",
    "'x y'": "x y",
    "full": "full",
    "2026-08-22": "2026-08-22",
    "([0]*3+[1]*58)": "([0]*3+[1]*58)",
    "__import__('os').system('id')": "__import__('os').system('id')",
    "Et*3|(tt|)*28,m|L": "Et*3|(tt|)*28,m|L",
    "1.2.3": "1.2.3",
}


@pytest.mark.parametrize(("text", "want"), VALUES.items())
def test_the_text_of_an_override_is_read_as(text: str, want: object) -> None:
    (override,) = overrides_from_pairs([("key", text)])
    assert override.value == want
    assert type(override.value) is type(want)


@pytest.mark.parametrize(
    "tokens", [["value"], ["-a"], ["--"], ["=1"], ["a b=1"], ["a..b=1"], ["a=[1,"], ["a=[f()]"], ["a={1:2}"]]
)
def test_an_override_of_another_form_is_refused(tokens: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="override"):
        parse_overrides(tokens)
