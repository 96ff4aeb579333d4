"""Calibration files are read in full, and a mistake in one names its place."""

import pytest

from projector.config.calibration_file import read_calibration_file
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


ONE_CURVE = "{collective: all_gather, ranks: 8, bytes_and_us: [[2, 1]]}"


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
    assert read_calibration_file("{device: H100, launch: {}}").outside_allocator is None


def test_curves_are_seconds_whether_times_or_bus_bandwidth_state_them() -> None:
    text = """{device: B200, collectives: [
      {collective: all_reduce, ranks: 8, bytes_and_us: [[1048576, 40], [4194304, 60.5]]},
      {collective: all_reduce, ranks: 16, nodes: 2, bytes_and_bus_gb_per_s: [[1048576, 20]]},
      {collective: send_recv, nodes: 2, bytes_and_us: [[1048576, 40]]}]}"""
    one, two, pair = read_calibration_file(text).rates.curves
    assert (one.ranks, one.nodes, [size for size, _ in one.seconds]) == (8, 1, [1048576, 4194304])
    assert [seconds for _, seconds in one.seconds] == pytest.approx([40e-6, 60.5e-6])
    assert two.seconds[0][1] == pytest.approx(2 * 15 / 16 * 1048576 / 20e9)
    assert (pair.collective, pair.ranks, pair.nodes) == ("send_recv", 2, 2)


def test_bandwidths_dispatch_and_launch_costs_are_read_in_si_units() -> None:
    rates = read_calibration_file(
        """{device: B200, memory_bandwidth_gb_per_s: {permutation: {achieved: 4000}, cross_entropy: {achieved: 2500}},
        expert_dispatch: {gb_per_s: 600, latency_us: 90}, launch: {kernel_gap_us: 1.5, kernel_forward_us: 5}}"""
    ).rates
    assert rates.bandwidths == {"permutation": 4000e9, "cross_entropy": 2500e9}
    assert rates.dispatch[:2] == (600e9, None)
    assert rates.dispatch.seconds == pytest.approx(90e-6)
    assert rates.kernel_gap_seconds == 1.5e-6
    assert rates.host == pytest.approx({"kernel_forward_seconds": 5e-6})


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
        ("device: A", r"calibration file: holds nothing that the engine reads; one of outside_allocator, gemm"),
        ("{device: A, speed: 5, what: x}", r"calibration file: holds nothing .* reads, but 'speed'; one of"),
        ("{device: A, collectives: 5}", r"collectives: 5; expected a list of maps of collective, ranks"),
        ("{device: A, collectives: [5]}", r"collectives\[0\]: 5 is not a map; keys collective"),
        (
            "{device: A, collectives: [{collective: gather}]}",
            r"\[0\]\.collective: 'gather'; expected one of all_",
        ),
        ("{device: A, collectives: [{collective: all_reduce}]}", r"\[0\]\.ranks: 1; expected a whole number from 2"),
        (
            "{device: A, collectives: [{collective: all_reduce, ranks: 8, nodes: 3, bytes_and_us: [[1, 1]]}]}",
            r"\[0\]\.ranks: 8 on 3 nodes; expected as many ranks on each",
        ),
        (
            "{device: A, collectives: [{collective: send_recv, ranks: 4, bytes_and_us: [[1, 1]]}]}",
            r"\[0\]\.ranks: 4 on 1 nodes; expected 2 for send_recv",
        ),
        (
            "{device: A, collectives: [{collective: all_reduce, ranks: 8}]}",
            r"\[0\]: needs one of its two forms; bytes_and_us or bytes_and_bus_gb_per_s",
        ),
        (
            "{device: A, collectives: [{collective: all_reduce, ranks: 8, bytes_and_us: [[2, 1], [2, 3]]}]}",
            r"bytes_and_us: \[2, 2\]; expected ascending bytes",
        ),
        (
            "{device: A, collectives: [{collective: all_reduce, ranks: 8, bytes_and_us: [[2, 0]]}]}",
            r"bytes_and_us\[0\]\.figure: 0; expected a number above 0",
        ),
        (
            "{device: A, collectives: [{collective: all_reduce, ranks: 8, bytes_and_us: [[2]]}]}",
            r"bytes_and_us\[0\]: \[2\]; expected two values",
        ),
        (
            f"{{device: A, collectives: [{ONE_CURVE}, {ONE_CURVE}]}}",
            r"collectives\[1\]: a second curve of all_gather over 8 ranks on 1 nodes",
        ),
        ("{device: A, expert_dispatch: {rate: 5}}", r"expert_dispatch\.rate: is not a known key"),
        ("{device: A, expert_dispatch: {gb_per_s: 0}}", r"expert_dispatch\.gb_per_s: 0; expected a number above 0"),
        ("{device: A, launch: {kernel_gap: 5}}", r"launch\.kernel_gap: is not a known key; did you mean kernel_gap_us"),
        ("{device: A, launch: {hook_us: -1}}", r"launch\.hook_us: -1; expected a number from 0"),
        ("{device: A, collectives_one_node: {all_gather: {bus: 5}}}", r"all_gather\.bus: is not a known key"),
    ],
)
def test_a_mistake_names_key_value_and_what_would_be_right(text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        read_calibration_file(text)
