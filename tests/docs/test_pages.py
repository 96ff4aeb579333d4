"""Generated pages are current; a difference is mended by `make docs` and read before it is committed."""

import re
from pathlib import Path

import pytest
import yaml

from docs import accuracy_page, conditions_reference, metrics_reference, readme
from projection_operator.options import Options
from projector.api import Question, project
from projector.config import FORMATS

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
PATH = re.compile(r"`((?:projector|operator|crds|charts|samples|tests|docs|images)/[\w./-]+)`")


@pytest.mark.xdist_group("scoring")
def test_the_accuracy_page_shows_what_the_engine_does_today() -> None:
    assert accuracy_page.PAGE.read_text(encoding="utf-8") == accuracy_page.render()


def test_the_metrics_page_lists_what_the_operator_registers() -> None:
    assert metrics_reference.PAGE.read_text(encoding="utf-8") == metrics_reference.render()


def test_the_conditions_page_explains_every_reason() -> None:
    assert conditions_reference.PAGE.read_text(encoding="utf-8") == conditions_reference.render()


def test_the_readme_shows_what_the_programs_print() -> None:
    text = readme.PAGE.read_text(encoding="utf-8")
    assert all(shown.search(text) for shown in (readme.COMMAND, readme.TABLE, readme.SERIES, readme.COUNT))
    assert text == readme.render(text)


@pytest.mark.parametrize("page", readme.PAGES_WITH_OUTPUTS, ids=lambda page: page.stem)
def test_a_page_shows_what_the_command_prints(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert readme.COMMAND.search(text)
    assert text == readme.with_outputs(text)


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_paths_that_pages_name_are_there() -> None:
    for page in PAGES:
        for path in PATH.findall(page.read_text(encoding="utf-8")):
            assert (ROOT / path).exists(), f"{page.name}: {path}"


def test_the_readme_leads_to_every_page() -> None:
    linked = {Path(target).name for target in LINK.findall(readme.PAGE.read_text(encoding="utf-8"))}
    assert {page.name for page in PAGES} - {readme.PAGE.name} <= linked


def test_the_port_that_the_readme_and_the_image_name_is_the_default() -> None:
    port = Options().metrics_port
    assert f"`/metrics` on port {port} " in readme.PAGE.read_text(encoding="utf-8")
    assert f"EXPOSE {port}\n" in (ROOT / "images" / "operator" / "Dockerfile").read_text(encoding="utf-8")


def test_the_example_of_the_own_format_is_read_and_answered() -> None:
    text = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    answer = project(Question(text=example))
    assert (answer.format, answer.target.devices, answer.layout.expert) == ("projector", 32, 8)


def test_the_page_of_formats_names_every_format() -> None:
    text = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[.*\]\(#.*\) \| `(\w+)` \| `(\w+)` \|", text, re.MULTILINE)
    definition = yaml.safe_load((ROOT / "crds" / "projectionrequests.yaml").read_text(encoding="utf-8"))
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert {option for option, _ in rows} == set(FORMATS)
    assert {word for _, word in rows} == set(schema["properties"]["training"]["properties"]["format"]["enum"])
    assert all(word.lower() == option for option, word in rows)
