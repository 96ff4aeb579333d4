"""JSON is read as JSON, whatever YAML would make of it, and within the limits of YAML."""

import json
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projector.config.safe_json import parse_json_or_yaml
from projector.config.safe_yaml import MAXIMUM_DEPTH, MAXIMUM_NODES
from projector.errors import ConfigurationError, ConfigurationTooLarge, InputError

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@given(st.dictionaries(st.text(), VALUES), st.sampled_from([None, 2, "\t"]))
def test_json_text_is_what_json_says(mapping: dict[str, Any], indent: int | str | None) -> None:
    assert parse_json_or_yaml(json.dumps(mapping, indent=indent), name="a.json") == mapping


@given(st.text() | st.text("{}[]:,\"\\'e1 \t\n-"))
def test_any_text_is_a_mapping_or_one_clear_error(text: str) -> None:
    for content in (text, "{" + text):
        with suppress(InputError):
            assert isinstance(parse_json_or_yaml(content, name="a.json"), dict)


def test_number_that_yaml_takes_for_text_is_a_number() -> None:
    assert parse_json_or_yaml('{"reduce_bucket_size": 5e8}', name="a.json") == {"reduce_bucket_size": 5e8}


def test_braces_without_quotes_are_yaml() -> None:
    assert parse_json_or_yaml("{model: llama3.1-70b}", name="a.yaml") == {"model": "llama3.1-70b"}


@pytest.mark.parametrize(
    ("text", "kind", "wanted"),
    [
        ('{"a": 1, "a": 2}', ConfigurationError, r"a.json: the key 'a' occurs twice; keep one of them"),
        ('{"a": 1,\n "b": [}', ConfigurationError, r"a.json:2:8: not JSON"),
        ('{"a": ' + "9" * 5000 + "}", ConfigurationError, r"a number is too long"),
        ('{"a":' * (MAXIMUM_DEPTH + 1) + "1" + "}" * (MAXIMUM_DEPTH + 1), ConfigurationTooLarge, r"nested deeper"),
        ('{"a":' + "[" * 150_000 + "]" * 150_000 + "}", ConfigurationTooLarge, r"nested deeper"),
        ('{"a": [' + "1," * MAXIMUM_NODES + "1]}", ConfigurationTooLarge, r"more than 200000 values"),
        ('{"a": "' + "x" * (6 << 20) + '"}', ConfigurationTooLarge, r"larger than 5 MiB"),
    ],
    ids=["twice", "broken", "long number", "deep", "very deep", "many", "large"],
)
def test_wrong_json_is_one_clear_line(text: str, kind: type[InputError], wanted: str) -> None:
    with pytest.raises(kind, match=wanted):
        parse_json_or_yaml(text, name="a.json")


def _seconds(keys: int) -> float:
    from projector.config import read  # noqa: PLC0415 - for this alone

    model = {"model_type": "llama", **{f"key{index}": index for index in range(keys)}}
    text = json.dumps({**model, "seq_length": 1, "micro_batch_size": 1})
    started = time.process_time()
    with pytest.raises(ConfigurationError, match="seq_length, micro_batch_size are not stated"):
        read(text, name="config.json")
    return time.process_time() - started


def test_many_unknown_keys_are_read_in_linear_time() -> None:
    few, many = (min(_seconds(keys) for _ in range(3)) for keys in (10_000, 80_000))
    assert many < 8 * few * 2.5
