"""GEMM backends by name: refused with what is missing, offered by packages, and origami beside the catalog's rates."""

import importlib.metadata
import re
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from projector.catalog import device, devices, origami_targets
from projector.costs import gemm_backend, gemm_backends, load_gemm_modules, plugins, register_gemm_backend
from projector.costs.figures import gemm_rate
from projector.costs.gemm import AnalyticalGemm
from projector.costs.origami import OrigamiGemm, origami_package
from projector.errors import ConfigurationError, NotAvailable
from projector.job import LowPrecision
from projector.operations import Gemm

with_origami = pytest.mark.skipif(
    origami_package() is None, reason="rocm-origami is not installed (extra origami; needs ROCm's headers to build)"
)
AMD = [each.name for each in devices() if each.architecture in origami_targets() and "bf16" in each.gemm_tflops]
LINEAR = [(6144, 4096), (28672, 4096), (4096, 14336), (10240, 8192), (57344, 8192), (8192, 28672), (24576, 5120)]
"""Columns and summed width of linear layers of Llama-3.1-8B, Llama-3.1-70B and DeepSeek-V2."""


@pytest.mark.parametrize("module", [None, ModuleType("origami")], ids=["absent", "another package of that name"])
def test_without_its_package_origami_is_refused_and_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType | None
) -> None:
    monkeypatch.setitem(sys.modules, "origami", module)
    with pytest.raises(NotAvailable, match=r"rocm-origami.*projection-operator\[origami\]"):
        gemm_backend("origami", device("MI300X"))


def test_origami_is_refused_for_a_gpu_that_it_does_not_know() -> None:
    with pytest.raises(NotAvailable, match=r"H100.*origami knows gfx90a, gfx942, gfx950"):
        gemm_backend("origami", device("H100"))


@with_origami
@pytest.mark.parametrize("low", [None, LowPrecision.FP8])
@pytest.mark.parametrize("name", AMD)
def test_origami_runs_its_reference_products_at_the_rate_of_the_catalog(name: str, low: LowPrecision | None) -> None:
    part = device(name)
    cost = OrigamiGemm(part)
    work = [Gemm(m=m, n=n, k=k, low_precision=low) for m, n, k in origami_targets()[part.architecture].shapes]
    rate = sum(each.flops for each in work) / sum(map(cost, work))
    assert rate == pytest.approx(gemm_rate(part, low), rel=0.03)


@with_origami
@pytest.mark.parametrize("name", AMD)
def test_origami_agrees_with_our_own_model_on_large_linear_layers(name: str) -> None:
    part = device(name)
    origami, own = OrigamiGemm(part), AnalyticalGemm(part)
    for outputs, inputs in LINEAR:
        for m, n, k in ((8192, outputs, inputs), (8192, inputs, outputs), (outputs, inputs, 8192)):
            work = Gemm(m=m, n=n, k=k)
            assert origami(work) == pytest.approx(own(work), rel=0.3), (m, n, k)


@with_origami
def test_origami_answers_for_the_oldest_compiler_target_too() -> None:
    part = device("MI250X")
    assert part.architecture == "gfx90a"
    work = Gemm(m=8192, n=8192, k=8192)
    assert work.flops / OrigamiGemm(part)(work) == pytest.approx(gemm_rate(part, None), rel=0.2)


PLUGIN = """
from projector.costs import register_gemm_backend

def thrice(device):
    return lambda work: 3.0 * work.m

register_gemm_backend("thrice", thrice)
"""


def test_a_module_that_registers_a_backend_is_chosen_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_registered", {})
    (tmp_path / "our_products.py").write_text(PLUGIN, encoding="utf-8")
    load_gemm_modules((str(tmp_path / "our_products.py"),))
    assert gemm_backend("thrice", device("MI300X"))(Gemm(m=2, n=1, k=1)) == 6.0
    assert [(each.name, each.installed) for each in gemm_backends()][-1] == ("thrice", True)
    monkeypatch.setattr(plugins, "_registered", {})
    monkeypatch.syspath_prepend(tmp_path)
    load_gemm_modules(("our_products",))
    assert gemm_backend("thrice", device("MI300X"))(Gemm(m=2, n=1, k=1)) == 6.0


MODULES = {
    "is not there": ("no_such_module_of_ours", None, "no_such_module_of_ours cannot be imported: ModuleNotFoundError"),
    "is no file": ("nowhere.py", None, "nowhere.py cannot be imported: FileNotFoundError"),
    "fails": ("fails.py", "1 / 0", "fails.py cannot be imported: ZeroDivisionError"),
    "registers nothing": ("silent.py", "x = 1", "silent.py registers no GEMM backend; a call of projector.costs"),
    "takes our name": (
        "taken.py",
        PLUGIN.replace('"thrice"', '"origami"'),
        "'origami' as a GEMM backend; a name other",
    ),
    "registers no callable": ("flat.py", PLUGIN.replace(", thrice)", ", 3)"), "thrice cannot be called; a callable"),
}


@pytest.mark.parametrize(("name", "text", "complaint"), MODULES.values(), ids=MODULES)
def test_a_module_is_refused_that(
    name: str, text: str | None, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_registered", {})
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path(name).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=re.escape(complaint)):
        load_gemm_modules((name,))


BACKENDS: dict[str, tuple[Any, str]] = {
    "raises when it is made": (lambda _: 1 / 0, "ours failed: ZeroDivisionError"),
    "raises on a product": (lambda _: lambda work: work.columns, "ours failed: AttributeError"),
    "is no callable": (lambda _: 3.0, "ours failed: 3.0 is no callable"),
    "takes no time": (lambda _: lambda _: 0.0, "ours failed: 0.0 seconds for Gemm"),
    "has no number": (lambda _: lambda _: float("nan"), "ours failed: nan seconds for Gemm"),
    "has a text": (lambda _: lambda _: "3", "ours failed: '3' seconds for Gemm"),
}


@pytest.mark.parametrize(("maker", "complaint"), BACKENDS.values(), ids=BACKENDS)
def test_a_backend_is_named_that(maker: Any, complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401 - wrong on purpose
    monkeypatch.setattr(plugins, "_registered", {})
    register_gemm_backend("ours", maker)
    with pytest.raises(NotAvailable, match=re.escape(complaint)):
        gemm_backend("ours", device("MI300X"))(Gemm(m=2, n=1, k=1))


def twice(part: object) -> object:
    """A backend of another package."""
    assert part is not None
    return lambda work: 2.0 * work.m


def offered(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    entry = EntryPoint(name="twice", value=value, group="projector.gemm_backends")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **wanted: EntryPoints([entry]).select(**wanted))


def test_an_installed_package_offers_a_backend_by_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, "tests.costs.test_backends:twice")
    assert gemm_backend("twice", device("MI300X"))(Gemm(m=3, n=1, k=1)) == 6.0
    assert [each.name for each in gemm_backends()] == ["analytical", "origami", "twice"]


def test_a_package_that_does_not_load_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, "no_such_module:backend")
    with pytest.raises(NotAvailable, match=r"the package of twice cannot be loaded: ModuleNotFoundError"):
        gemm_backend("twice", device("MI300X"))
