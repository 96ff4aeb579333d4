"""What a person who installs the distribution gets."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHADOW_CHECK = (
    "import operator, sysconfig, pathlib; "
    "home = pathlib.Path(sysconfig.get_path('stdlib')).resolve(); "
    "assert pathlib.Path(operator.__file__).resolve().parent == home, operator.__file__; "
    "assert operator.add(1, 2) == 3; print(operator.__file__)"
)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of what this checkout ships, since building writes beside its sources."""
    folder = tmp_path_factory.mktemp("wheel")
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("projector", "operator"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, source],
        check=True,
        timeout=120,
    )
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the wheel and sees this one's dependencies."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel],
        check=True,
        timeout=120,
    )
    return python


def test_the_operator_folder_does_not_shadow_the_standard_library_from_the_repository_root() -> None:
    subprocess.run([sys.executable, "-c", SHADOW_CHECK], cwd=ROOT, check=True)
    assert not (ROOT / "operator" / "__init__.py").exists()


def test_the_operator_folder_does_not_shadow_the_standard_library_when_installed(installed: Path) -> None:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    subprocess.run([installed, "-c", SHADOW_CHECK], cwd=ROOT, env=clean, check=True)


def test_the_wheel_holds_both_packages_their_data_and_no_tests(installed: Path) -> None:
    site = next((installed.parents[1] / "lib").glob("python*")) / "site-packages"
    for package, folder in (("projector", ROOT), ("projection_operator", ROOT / "operator")):
        shipped = (p for p in (folder / package).rglob("*") if p.suffix in {".py", ".yaml", ".json", ".typed"})
        missing = [p for p in shipped if not (site / p.relative_to(folder)).is_file()]
        assert not missing
    assert not (site / "tests").exists()
    assert not (site / "operator").exists()


def test_the_console_commands_are_those_of_the_design() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"].keys() == {"projector", "projection-operator"}
    assert {"benchmark", "test", "dev"} <= project["optional-dependencies"].keys()


def test_the_readme_names_the_command_that_continuous_integration_runs() -> None:
    ci = (ROOT / ".ci" / "run").read_text()
    command = re.search(r"^exec (.+)$", ci, re.MULTILINE)
    assert command
    assert re.search(rf"^\s*{command[1]}\b", (ROOT / "README.md").read_text(), re.MULTILINE)


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert phony
    listed = subprocess.run(["make", "help"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for target in phony[1].split():
        assert re.search(rf"^ +{target} ", listed, re.MULTILINE), target


def test_dependencies_point_one_way() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
