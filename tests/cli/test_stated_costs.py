"""Costs that a person states reach the answer: cost models, GPUs, hosts, clocks."""

import json
from pathlib import Path

import pytest

from projector.costs import plugins
from tests.cli.answer import document
from tests.cli.lines import SAMPLE, carried_out, complaint


def test_backends_are_listed_with_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    text = carried_out(capsys, "backends").out
    assert "analytical    yes" in text
    assert "gfx90a, gfx942, gfx950" in text
    listed = json.loads(carried_out(capsys, "backends", "--output", "json").out)["gemm"]
    assert [each["name"] for each in listed][:2] == ["analytical", "origami"]


def test_devices_list_a_gpu_of_ones_own_with_its_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("gpu_hardware_profiles: {mi9x: {peak_tflops_bf16: 5000, hbm_bandwidth_gbps: 16000}}")
    option = carried_out(capsys, "devices", "--gpu-file", str(file), "--output", "json").out
    variable = carried_out(
        capsys, "devices", "--output", "json", environment={"PRIMUS_HW_PROFILE_DIR": f"{tmp_path};"}
    ).out
    assert option == variable
    first = json.loads(option)["devices"][0]
    assert (first["name"], first["file"]) == ("mi9x", str(file))
    assert "described in" in carried_out(capsys, "devices", "--gpu-file", str(file)).out


def test_the_host_can_be_stated_and_holds_the_device_up_accordingly(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("performance", "--config", "mixtral-8x7b", *("--gpu-arch", "MI300X"), *("--target-nodes", "2"))
    given = ("expert_model_parallel_size=8", "micro_batch_size=1", "global_batch_size=64", "seq_length=4096")
    times = [
        document(capsys, *asked, *given, *said)["performance"]["iteration_time_ms"]
        for said in (("--host-factor", "0"), (), ("--host-factor", "1"), ("--host-factor", "2"))
    ]
    assert times[0] < times[1] == times[2] < times[3]


NODE = "{device: MI300X, %s}"
OUTSIDE = "outside_allocator: {bytes: 13850000000, source: amd-smi}"
RATES = "gemm: {columns: [m, k, n, tflops], rows: [[8192, 4096, 4096, 500]]}"


def test_a_stated_clock_is_refused_beside_rates_of_another(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A measured rate holds at the clock of its benchmark; memory that was measured has no clock."""
    file = tmp_path / "node.yaml"
    asked = ("performance", "--config", SAMPLE, "--target-nodes", "8", "--global-batch-size", "192")
    clocked = (*asked, "--calibration", str(file), "--gpu-clock-mhz", "1500")
    file.write_text(NODE % RATES)
    assert "--gpu-clock-mhz: 1500 MHz, and measured rates hold" in complaint(carried_out(capsys, *clocked))
    file.write_text(NODE % OUTSIDE)
    answered = document(capsys, *clocked)
    assert not any("measured" in each["what"] for each in answered["job"]["assumed"])


@pytest.mark.parametrize("spoken", [("--gemm-plugins",), ()], ids=["option", "environment"])
def test_a_cost_model_of_ones_own_decides_the_time_of_products(
    spoken: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_registered", {})
    module = tmp_path / "slow.py"
    module.write_text(
        "from projector.costs import register_gemm_backend\n"
        'register_gemm_backend("slow", lambda device: lambda work: work.flops / 1e14)\n',
        encoding="utf-8",
    )
    environment = {} if spoken else {"PRIMUS_GEMM_BACKEND_PLUGINS": str(module)}
    named = (*spoken, str(module)) if spoken else ()
    asked = ("performance", "--config", SAMPLE, *named, "--gemm-backend")
    own, ours = (
        {each["name"]: each["ms"] for each in document(capsys, *asked, name, **environment)["performance"]["waterfall"]}
        for name in ("slow", "analytical")
    )
    assert own["matrix products"] > 3 * ours["matrix products"]
    ended = carried_out(capsys, "backends", *named, environment=environment)
    assert "slow" in ended.out
