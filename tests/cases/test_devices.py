"""What is said of GPUs: the catalog against data sheets, and a GPU that it does not know."""

import pytest

from projector import catalog
from projector.errors import DeviceUnknown
from tests.cases.asking import experiment

SHEETS = {"MI355X": (2_516.6, 5_033.2), "MI350X": (2_306.9, 4_613.7)}
"""Dense TFLOP/s in bf16 and fp8: data sheets of the AMD Instinct MI350 series."""


@pytest.mark.parametrize(("name", "peaks"), SHEETS.items(), ids=SHEETS.keys())
def test_prj_13_gfx950_has_the_figures_of_its_data_sheet(name: str, peaks: tuple[float, float]) -> None:
    device = catalog.device(name)
    assert (device.peak_tflops["bf16"], device.peak_tflops["fp8"]) == peaks
    assert device.memory_size_bytes == 288 * 2**30
    assert device.memory_bandwidth_bytes_per_second == 8e12
    # Eight dies of 32 compute units each.
    assert device.compute_units == 8 * 32


def test_prj_13_mi350x_is_not_mi355x() -> None:
    assert catalog.device("MI350X").peak_tflops != catalog.device("MI355X").peak_tflops


def test_obs_03_a_gpu_without_a_profile_gives_no_figure() -> None:
    asked = {"micro_batch_size": 1, "global_batch_size": 8, "seq_length": 4096}
    assert experiment(asked, model="llama3.1_8B.yaml", device="MI350X").target.device == "MI350X"
    with pytest.raises(DeviceUnknown, match="MI450X"):
        experiment(asked, model="llama3.1_8B.yaml", device="MI450X")
