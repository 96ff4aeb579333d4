"""Calibration files are read in full, and a mistake in one names its place."""

import pytest

from projector.config import read_calibration_file
from projector.errors import ConfigurationError

MEASURED = """
device: MI300X
outside_allocator:
  bytes: 13.85e+9
  groups: 6
  source: rocm-smi less torch.cuda.memory_reserved, iteration 3
rates:
  gemm: {bf16: 520}
"""


def test_what_was_measured_is_read_and_other_sections_are_listed() -> None:
    found = read_calibration_file(MEASURED)
    assert found.device == "MI300X"
    assert found.without_effect == ("rates",)
    assert found.outside_allocator is not None
    outside = found.outside_allocator
    assert (outside.size_bytes, outside.groups, outside.dispatch_buffer_bytes) == (13_850_000_000, 6, 0)
    assert outside.source.startswith("rocm-smi")


def test_json_is_read_too_and_all_but_bytes_and_source_may_be_left_out() -> None:
    found = read_calibration_file('{"device": "H100", "outside_allocator": {"bytes": 5, "source": "nvidia-smi"}}')
    assert found.outside_allocator is not None
    assert found.outside_allocator.groups is None
    assert read_calibration_file("device: H100").outside_allocator is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("outside_allocator: {bytes: 5, source: x}", r"calibration file\.device: is missing; the GPU it was"),
        ("device: 7", r"calibration file\.device: 7; expected the GPU"),
        ("{device: A, outside_allocator: 12}", r"outside_allocator: 12 is not a map; keys bytes, groups"),
        ("{device: A, outside_allocator: {source: x}}", r"outside_allocator\.bytes: is missing"),
        ("{device: A, outside_allocator: {bytes: 5}}", r"outside_allocator\.source: is missing; how and where"),
        ("{device: A, outside_allocator: {bytes: 1.5, source: x}}", r"bytes: 1\.5; expected a whole number from 1"),
        ("{device: A, outside_allocator: {bytes: true, source: x}}", r"bytes: True; expected a whole number"),
        ("{device: A, outside_allocator: {bytes: -1, source: x}}", r"bytes: -1; expected a whole number"),
        ("{device: A, outside_allocator: {bytes: .inf, source: x}}", r"bytes: inf; expected a whole number"),
        ("{device: A, outside_allocator: {bytes: 5, groups: six, source: x}}", r"groups: 'six'; expected a whole"),
        (
            "{device: A, outside_allocator: {bytes: 5, dispatch_buffer_bytes: 6, source: x}}",
            r"dispatch_buffer_bytes: 6; expected a whole number from 0 to 5",
        ),
        ("{device: A, outside_allocator: {byte: 5, source: x}}", r"\.byte: is not a known key; did you mean bytes"),
        ("[1]", "calibration file"),
        ("#" * 1_100_000, "1100000 characters"),
        ("{device: A, gemm: 5}", r"gemm: 5 is not a map"),
        (
            "{device: A, gemm: {columns: [m, k, n, tflop], rows: [[1, 1, 1, 1]]}}",
            r"columns\.tflop: is not a known column",
        ),
        ("{device: A, gemm: {columns: [m, k, n], rows: [[1, 1, 1]]}}", r"columns: is missing; a column tflops"),
        ("{device: A, gemm: {columns: [m, k, n, tflops], rows: [[1, 1, 1]]}}", r"rows\[0\]: .*expected 4 values"),
        (
            "{device: A, gemm: {columns: [m, k, n, tflops], rows: [[1, 1, 1, -2]]}}",
            r"rows\[0\]\.tflops: -2; expected a",
        ),
        (
            "{device: A, gemm: {columns: [m, k, n, tflops], rows: [[1, 1, 1.5, 2]]}}",
            r"rows\[0\]\.n: 1\.5; expected a whole",
        ),
        (
            "{device: A, gemm: {regime: long, columns: [m, k, n, tflops], rows: [[1, 1, 1, 2]]}}",
            r"regime: 'long'; .*burst",
        ),
        ("{device: A, collectives_one_node: {all_gather: {bus: 5}}}", r"all_gather\.bus: is not a known key"),
    ],
)
def test_a_mistake_names_key_value_and_what_would_be_right(text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        read_calibration_file(text)
