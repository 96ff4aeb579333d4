"""GPUs of a person's own: in the catalog's form, or Primus's profiles; mistakes name file, key and what is right."""

from pathlib import Path

import pytest

from projector import catalog
from projector.api import Question, project
from projector.config.gpu_file import named_device, read_gpu_file, read_gpu_files
from projector.errors import ConfigurationError
from projector.report.text import report

PROFILE = """
gpu_hardware_profiles:
  mi999x:
    peak_tflops_bf16: 5033.2
    peak_tflops_fp8: 10066.4
    hbm_bandwidth_gbps: 16000
    n_cu: 512
    n_xcd: 16
    base_clock_mhz: 2400
    aliases: [gfx999]
"""
MI300X = Path(catalog.__file__).with_name("devices") / "mi300x.yaml"


def test_a_file_of_the_catalog_reads_back_to_the_same_device() -> None:
    (found,) = read_gpu_file(MI300X.read_text(encoding="utf-8"), place="mine.yaml")
    assert found.file == "mine.yaml"
    assert {**_facts(found), "file": None} == _facts(catalog.device("MI300X"))


def _facts(device: catalog.Device) -> dict[str, object]:
    return {name: getattr(device, name) for name in catalog.Device.__dataclass_fields__}


def test_a_profile_of_primus_takes_proportions_from_the_catalog_and_marks_them_as_estimates() -> None:
    (found,) = read_gpu_file(PROFILE)
    like = catalog.device("MI355X")
    assert found.peak_tflops["bf16"] == 5033.2
    assert "fp16" not in found.peak_tflops
    assert found.gemm_tflops["bf16"] == pytest.approx(2 * like.gemm_tflops["bf16"])
    assert found.compute_units == 512
    assert found.memory_capacity_bytes is None
    assert found.estimated("gemm_tflops.bf16")
    assert not found.estimated("memory_bandwidth_bytes_per_second")


def test_a_profile_of_a_known_gpu_keeps_what_it_does_not_state() -> None:
    text = "gpu_hardware_profiles: {mi300x: {peak_tflops_bf16: 1307.4, hbm_bandwidth_gbps: 5325}}"
    (found,) = read_gpu_file(text)
    known = catalog.device("MI300X")
    assert found.gemm_tflops == pytest.approx(known.gemm_tflops)
    assert found.elementwise_bytes_per_second == known.elementwise_bytes_per_second
    assert found.memory_capacity_bytes == known.memory_capacity_bytes


def test_an_own_gpu_goes_before_the_catalog_by_name_and_alias() -> None:
    own = read_gpu_files({"a.yaml": PROFILE})
    assert named_device("GFX999", own) is own[0]
    assert named_device("mi300x", own) is catalog.device("MI300X")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (PROFILE.replace("16000", "fast"), r"mine.yaml: gpu_hardware_profiles.mi999x.hbm_bandwidth_gbps: 'fast'; exp"),
        (PROFILE.replace("16000", "-1"), r"hbm_bandwidth_gbps: -1; expected a number above 0"),
        (PROFILE.replace("n_cu: 512", "n_cu: 1.5"), r"n_cu: 1.5; expected a whole number"),
        (PROFILE.replace("n_cu", "ncu"), r"mi999x.ncu: is not a known key; did you mean n_cu"),
        (PROFILE.replace("    peak_tflops_bf16: 5033.2\n", ""), r"peak_tflops_bf16: is missing; expected a number"),
        (PROFILE.replace("[gfx999]", "gfx999"), r"aliases: 'gfx999'; expected a list of names"),
        ("gpu_hardware_profiles: []", r"expected GPUs by name"),
        ("gpu_hardware_profiles: {a: 1}", r"gpu_hardware_profiles.a: 1; expected keys peak_tflops_bf16"),
        ("name: X\nvendor: AMD", r"mine.yaml.architecture: is missing; expected str"),
        ("name: X\nvendor: AMD\narchitecture: y\nclock_mhz: {value: 0}", r"mine.yaml.clock_mhz: 0; expected a number"),
        ("name: X\nvendor: AMD\narchitecture: y\nclock_mhz: {value: .inf}", r"mine.yaml.clock_mhz: inf; expected a n"),
        (
            "name: X\nvendor: A\narchitecture: y\nsmall_communicator_mib: {two: {value: 1, source: a}}",
            r"mine.yaml: cannot be read: invalid literal",
        ),
        ("name: X\nvendor: AMD\narchitecture: y\nspeed: 3", r"mine.yaml.speed: is not known here"),
        (
            "name: X\nvendor: AMD\narchitecture: y\nclock_mhz: {value: a, source: b}",
            r"clock_mhz.value: 'a'; expected fl",
        ),
    ],
)
def test_a_mistake_names_file_key_and_what_is_right(text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        read_gpu_file(text, place="mine.yaml")


def test_two_files_for_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="two files describe a GPU called"):
        read_gpu_files({"a": PROFILE, "b": PROFILE})


def question(**asked: object) -> Question:
    sizes = {"seq_length": "4096", "micro_batch_size": "1"}
    return Question(text='{"model": "llama3.1-8b"}', overrides=sizes, **asked)  # type: ignore[arg-type]


def test_the_only_gpu_of_the_only_file_is_projected_on_and_what_was_derived_is_said() -> None:
    projection = project(question(gpu_files={"a.yaml": PROFILE}))
    assert projection.target.device == "mi999x"
    said = {each.what: each.why for each in projection.assumed}
    assert "the only one that a file describes" in said["GPU mi999x"]
    assert "as MI355X" in said["rates of mi999x"]
    assert "per GPU, whose capacity nobody states" in " ".join(report(projection).split())
