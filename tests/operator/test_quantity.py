"""Sizes survive the way into a status and back."""

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from projection_operator.api.quantity import bytes_of, quantity

ROOT = Path(__file__).resolve().parents[2]


DEFINITION = yaml.safe_load((ROOT / "crds" / "projectionrequests.yaml").read_text(encoding="utf-8"))
STATUS = DEFINITION["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
PATTERN = re.compile(STATUS["memory"]["properties"]["perDevice"]["properties"]["expected"]["pattern"])


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0"),
        (1023, "1023"),
        (1024, "1Ki"),
        (206_141_652_992, "191.98Gi"),
        (7_625_673_605, "7.102Gi"),
        (1 << 41, "2048Gi"),
    ],
)
def test_sizes_are_written_as_people_read_them(size: int, text: str) -> None:
    assert quantity(size) == text


@settings(deadline=None)
@given(st.integers(min_value=0, max_value=1 << 50))
def test_every_size_matches_the_schema_and_loses_at_most_half_a_permille(size: int) -> None:
    text = quantity(size)
    assert PATTERN.match(text)
    assert len(text) <= 32
    assert abs(bytes_of(text) - size) <= size * 0.0005 + 1  # whole bytes


@pytest.mark.parametrize("text", ["", "Gi", "-1Gi", "1e3", "1.2.3Mi", "1GB", " 1Gi"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a number"):
        bytes_of(text)
