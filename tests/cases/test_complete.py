"""Every case is judged, or it is said what is missing; nothing is both."""

import ast
from pathlib import Path

import yaml

HERE = Path(__file__).parent
CASES = HERE.parent / "accuracy" / "cases.yaml"


def known() -> set[str]:
    return {case["id"] for case in yaml.load(CASES.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)}


def names() -> set[str]:
    """Names of the tests that judge cases."""
    files = [path for path in HERE.glob("test_*.py") if path != Path(__file__)]
    nodes = [node for path in files for node in ast.parse(path.read_text(encoding="utf-8")).body]
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def judged(name: str) -> set[str]:
    """Cases that a test's name carries."""
    return {case for case in known() if f"_{case.lower().replace('-', '_')}_" in name}


def not_yet() -> dict[str, dict[str, str]]:
    missing: dict[str, dict[str, str]] = yaml.safe_load((HERE / "not_yet.yaml").read_text(encoding="utf-8"))
    return missing


def test_every_case_is_either_judged_or_listed_with_what_is_missing() -> None:
    tested = {case for name in names() for case in judged(name)}
    missing = set(not_yet()["cases"])
    assert tested | missing == known()
    assert tested & missing == set()


def test_parts_that_are_missing_belong_to_judged_cases_and_every_entry_says_why() -> None:
    tested = {case for name in names() for case in judged(name)}
    assert set(not_yet()["parts"]) <= tested
    assert all(reason for part in not_yet().values() for reason in part.values())


def test_every_test_names_its_case() -> None:
    assert {name for name in names() if not judged(name)} == set()
