"""Generated pages are current; a difference is mended by `make docs` and read before it is committed."""

import re
from pathlib import Path

from docs import accuracy_page, conditions_reference, metrics_reference, readme
from projection_operator.options import Options

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
PATH = re.compile(r"`((?:projector|operator|crds|charts|samples|tests|docs|images)/[\w./-]+)`")


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
