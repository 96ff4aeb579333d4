"""Cost models of matrix products in modules that PRIMUS_GEMM_BACKEND_PLUGINS names."""

import json

import pytest

from projector.catalog import Device
from projector.costs import GemmBackend
from projector.costs.gemm import AnalyticalGemm
from projector.operations import Gemm
from tests.cli.lines import SAMPLE, carried_out, complaint, understood

VARIABLE = "PRIMUS_GEMM_BACKEND_PLUGINS"
HERE = "tests.cli.test_plugins"


def twofold(device: Device) -> GemmBackend:
    """A cost model that takes twice as long."""
    own = AnalyticalGemm(device)

    def seconds(work: Gemm) -> float:
        return 2 * own(work)

    return seconds


def products(capsys: pytest.CaptureFixture[str], backend: str, modules: str) -> float:
    line = ("performance", "--config", SAMPLE, "--gemm-backend", backend, "--output", "json")
    document = json.loads(carried_out(capsys, *line, environment={VARIABLE: modules}).out)
    found = {step["name"]: float(step["ms"]) for step in document["performance"]["waterfall"]}
    return found["matrix products"]


@pytest.mark.parametrize("modules", [HERE, f"json; {HERE}", f"{HERE},json"])
def test_a_cost_model_of_a_module_is_chosen_by_its_name(capsys: pytest.CaptureFixture[str], modules: str) -> None:
    own, other = (products(capsys, backend, modules) for backend in ("analytical", "twofold"))
    assert other == pytest.approx(2 * own, rel=0.05)


def test_without_a_choice_no_module_is_imported_and_the_variable_is_named() -> None:
    said = understood("performance", "--config", SAMPLE, **{VARIABLE: "no.such.module"})
    assert said.without_effect == (f"{VARIABLE} (environment: --gemm-backend chooses none of its cost models)",)


@pytest.mark.parametrize(
    ("modules", "wanted"),
    [
        ("no_such_module", f"{VARIABLE}: no_such_module cannot be imported: ModuleNotFoundError"),
        ("a b", f"{VARIABLE}: 'a b' is not the name of a module"),
        (";", f"{VARIABLE}: ';' is not the name of a module"),
        ("json", "--gemm-backend: 'twofold'; one of analytical, origami"),
    ],
)
def test_a_module_that_does_not_do_is_one_clear_line(
    capsys: pytest.CaptureFixture[str], modules: str, wanted: str
) -> None:
    line = ("performance", "--config", SAMPLE, "--gemm-backend", "twofold")
    assert complaint(carried_out(capsys, *line, environment={VARIABLE: modules})).startswith(wanted)
