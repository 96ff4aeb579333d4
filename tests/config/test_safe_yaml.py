import time
from contextlib import suppress

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from projector.config.safe_yaml import MAXIMUM_DEPTH, MAXIMUM_NODES, parse_mapping
from projector.errors import ConfigurationError, ConfigurationTooLarge

_SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20
)


@given(st.dictionaries(st.text(), _VALUES), st.booleans())
def test_values_are_those_of_pyyaml(mapping: dict[str, object], flow: bool) -> None:  # noqa: FBT001 - a strategy's value
    text = yaml.safe_dump(mapping, default_flow_style=flow, allow_unicode=True)
    assert parse_mapping(text, name="f") == yaml.safe_load(text)


YAML_1_1 = """
plain: 1e-5
float: 1.0e-5
octal: 010
sexagesimal: 1:30
switch: on
no: no
nothing: ~
empty:
quoted: "1"
base: &base {a: 1, b: {c: 2}}
alias: *base
merged: {<<: *base, a: 3}
several: {<<: [{x: 1, y: 1}, {x: 2, z: 2}]}
""".replace("no: no", "'no': no")


def test_yaml_1_1_and_merge_keys_mean_what_pyyaml_says() -> None:
    assert parse_mapping(YAML_1_1, name="f") == yaml.safe_load(YAML_1_1)


def test_a_date_stays_text() -> None:
    assert parse_mapping("day: 2026-08-22", name="f") == {"day": "2026-08-22"}


def _bomb(levels: int, width: int = 10) -> str:
    lines = [f"a0: &a0 [{', '.join(['x'] * width)}]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * width)}]" for level in range(1, levels)]
    return "\n".join(lines)


TOO_LARGE = {
    "an alias bomb": _bomb(9),
    "aliases of a long text": f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 300)}]\n",
    "an alias bomb of merge keys": "a: &a {x: 1}\n"
    + "".join(f"b{i}: {{<<: [{', '.join(['*a'] * 5000)}]}}\n" for i in range(50)),
    "a file of 6 MiB": "a: " + "x" * (6 * 1024 * 1024),
    "deep flow nesting": "a: " + "[" * 100_000,
    "deep block nesting": "\n".join(" " * depth + "a:" for depth in range(MAXIMUM_DEPTH + 8)),
    "too many values": "a: [" + "1," * 300_000 + "]",
}


@pytest.fixture(scope="module")
def permitted_seconds() -> float:
    """Processor time of a file with nearly as many values as are allowed."""
    start = time.process_time()
    parse_mapping(f"a: [{'1,' * (MAXIMUM_NODES * 9 // 10)}]", name="f.yaml")
    return time.process_time() - start


@pytest.mark.parametrize("text", TOO_LARGE.values(), ids=TOO_LARGE.keys())
def test_what_exceeds_a_limit_costs_no_more_than_what_is_allowed(text: str, permitted_seconds: float) -> None:
    start = time.process_time()
    with pytest.raises(ConfigurationTooLarge, match=r"f\.yaml"):
        parse_mapping(text, name="f.yaml")
    assert time.process_time() - start < 5 * permitted_seconds, "a limit must bound the work, too"


WRONG = {
    "empty": ("", "the file is empty"),
    "a list": ("- a", "the file is a list"),
    "a text": ("abc", "the file is a text"),
    "two documents": ("a: 1\n---\nb: 2\n", "f.yaml:2:1: a second document"),
    "a duplicate key": ("a: 1\nb: 2\na: 3\n", "f.yaml:3:1: the key 'a' occurs twice"),
    "a nested duplicate key": ("x:\n  a: 1\n  a: 1\n", "f.yaml:3:3: the key 'a' occurs twice"),
    "a key that is a boolean": ("yes: 1", "f.yaml:1:1: the key True is a boolean"),
    "a key that is a number": ("x: {1: 2}", "the key 1 is a number"),
    "a key that is a list": ("? [a]\n: 1", "f.yaml:1:"),
    "a tag of Python": ("a: !!python/object/apply:os.system [id]", "f.yaml:1:4: the tag"),
    "a tag of its own": ("a: !secret x", "the tag '!secret' is not allowed"),
    "an unknown alias": ("a: *b", "f.yaml:1:4"),
    "an alias inside its anchor": ("a: &a [*a]", r"\*a"),
    "a broken flow": ("a: [1, 2", "f.yaml:"),
    "a tab": ("a:\n\tb: 1", "f.yaml:2:1"),
    "a control character": ("a: \x00", "f.yaml"),
    "a merge of a text": ("a: {<<: b}", "takes a mapping"),
    "a number without end": ("a: " + "9" * 10_000, "f.yaml:1:4: '9999.*is not a usable number"),
}


@pytest.mark.parametrize(("text", "complaint"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_named_with_its_place(text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        parse_mapping(text, name="f.yaml")


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="not UTF-8 text at byte 3"):
        parse_mapping(b"a: \xff", name="f.yaml")


@given(st.text(alphabet="a:[]{}&*!|>-? \n#'\"<,%@`\t0", max_size=40))
def test_no_text_ends_in_anything_but_a_mapping_or_a_complaint(text: str) -> None:
    with suppress(ConfigurationError):
        assert isinstance(parse_mapping(text, name="f"), dict)
