"""Device files are complete, sourced and physically possible."""

from pathlib import Path

import jsonschema
import pytest

from projector import catalog
from projector.catalog import Device
from projector.catalog.device_file import read_device
from projector.errors import ConfigurationError
from projector.job import LowPrecision
from tests.catalog.files import CATALOG, SCHEMAS, content, files, tags

DEVICES = catalog.devices()
by_device = pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)


@pytest.mark.parametrize("path", files("devices"), ids=lambda path: path.stem)
def test_a_device_file_follows_the_schema(path: Path) -> None:
    jsonschema.validate(content(path), SCHEMAS["device"], cls=jsonschema.Draft202012Validator)


def test_every_source_has_a_citation_and_every_citation_a_use() -> None:
    others = (CATALOG / "hosts.yaml", CATALOG / "frameworks" / "caching-allocator.yaml")
    used = tags([content(path) for path in [*files("devices"), *others]])
    assert used == set(catalog.citations())


@by_device
def test_an_amd_peak_is_units_times_clock_times_rate(device: Device) -> None:
    if device.vendor != "AMD":
        assert not device.flops_per_unit_and_clock
        return
    assert device.compute_units is not None
    assert device.clock_hz is not None
    computed = {
        name: device.compute_units * device.clock_hz * rate / 1e12
        for name, rate in device.flops_per_unit_and_clock.items()
    }
    assert device.peak_tflops == pytest.approx(computed, abs=0.06)


@by_device
def test_nothing_runs_faster_than_the_peak(device: Device) -> None:
    formats = {member.value: catalog.peak_format(member) for member in LowPrecision}
    for rates in (device.gemm_tflops, device.gemm_burst_tflops, device.gemm_achievable_tflops):
        for name, rate in rates.items():
            assert rate < device.peak_tflops[formats.get(name, name)], name
    attention = [device.attention_forward_tflops, device.attention_backward_tflops]
    assert all(rate is None or rate < device.peak_tflops["bf16"] for rate in attention)
    assert device.memory_bandwidth_bytes_per_second is not None
    assert (device.elementwise_bytes_per_second or 0) < device.memory_bandwidth_bytes_per_second


@by_device
def test_sustained_rates_do_not_exceed_bursts(device: Device) -> None:
    both = device.gemm_tflops.keys() & device.gemm_burst_tflops.keys()
    assert all(device.gemm_tflops[name] <= device.gemm_burst_tflops[name] for name in both)


@by_device
def test_usable_memory_is_less_than_the_label_says(device: Device) -> None:
    assert device.memory_size_bytes is not None
    assert device.memory_capacity_bytes is None or device.memory_capacity_bytes < device.memory_size_bytes


@by_device
def test_curves_ascend_in_size(device: Device) -> None:
    for curve in device.collectives:
        sizes = [size for size, _ in curve.points]
        assert sizes == sorted(set(sizes))


@by_device
def test_a_mesh_line_rate_is_that_of_its_links(device: Device) -> None:
    link = device.intra_node
    if link is None or link.kind is not catalog.LinkKind.MESH or device.estimated("intra_node"):
        return
    assert link.domain_devices is not None
    assert link.bytes_per_second == pytest.approx(link.pair_bytes_per_second * (link.domain_devices - 1))


def test_mi350x_is_not_mi355x() -> None:
    air, liquid = catalog.device("MI350X"), catalog.device("MI355X")
    assert air.peak_tflops["bf16"] < liquid.peak_tflops["bf16"]
    assert air.gemm_tflops["bf16"] < liquid.gemm_tflops["bf16"]
    assert air.memory_capacity_bytes != liquid.memory_capacity_bytes


VALID = """\
name: TEST
aliases: [test]
vendor: AMD
architecture: gfx942
peak_tflops:
  bf16: {value: 1.0, source: amd-datasheet}
"""


@pytest.mark.parametrize(
    ("added", "complaint"),
    [
        pytest.param("memory: {value: 1}", "bad.yaml.memory: is not known here", id="unknown key"),
        pytest.param("compute_units: 304", "bad.yaml.compute_units: 304 is not a mapping", id="bare value"),
        pytest.param(
            "compute_units: {value: 304}",
            "bad.yaml.compute_units.source: is missing; expected str",
            id="without a source",
        ),
        pytest.param(
            "compute_units: {value: many, source: x}",
            "bad.yaml.compute_units.value: 'many'; expected float",
            id="text for a number",
        ),
        pytest.param(
            "launch_us: {value: 5, source: x, status: guessed}",
            "bad.yaml.launch_us.status: 'guessed'; expected estimated, assumed, or nothing",
            id="unknown status",
        ),
        pytest.param(
            "launch_us: {value: 5, source: x, wy: because}",
            "bad.yaml.launch_us.wy: is not known here",
            id="misspelt key of a fact",
        ),
        pytest.param(
            "intra_node: {name: x, kind: ring, gb_per_second: 1, source: x}",
            "bad.yaml.intra_node.kind: 'ring'; expected one of mesh, switch, fabric",
            id="unknown topology",
        ),
        pytest.param(
            "collectives: [{collective: all_reduce, ranks: 8, source: x, bytes_and_gb_per_second: [[1, 2, 3]]}]",
            "bad.yaml.collectives.bytes_and_gb_per_second: [[1, 2, 3]]; expected a list of [bytes, GB/s]",
            id="points of three numbers",
        ),
    ],
)
def test_a_wrong_device_file_is_refused_with_its_place(tmp_path: Path, added: str, complaint: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(f"{VALID}{added}\n", encoding="utf-8")
    with pytest.raises(ConfigurationError) as refused:
        read_device(path)
    assert str(refused.value) == complaint


@pytest.mark.parametrize("device", catalog.devices(), ids=lambda device: device.name)
def test_training_stays_below_the_ceiling_that_was_measured(device: catalog.Device) -> None:
    factor = device.training_factor or 1.0
    for name, rate in device.gemm_tflops.items():
        assert rate * factor <= device.gemm_achievable_tflops.get(name, rate * factor)
