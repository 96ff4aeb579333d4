"""Generated pages are current; a difference is mended by `make docs` and read before it is committed."""

import re
from pathlib import Path

from docs import accuracy_page, metrics_reference, readme

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


def test_the_accuracy_page_shows_what_the_engine_does_today() -> None:
    assert accuracy_page.PAGE.read_text(encoding="utf-8") == accuracy_page.render()


def test_the_metrics_page_lists_what_the_operator_registers() -> None:
    assert metrics_reference.PAGE.read_text(encoding="utf-8") == metrics_reference.render()


def test_the_readme_shows_what_the_command_prints() -> None:
    text = readme.PAGE.read_text(encoding="utf-8")
    assert readme.BLOCK.search(text)
    assert text == readme.render(text)


def test_links_between_pages_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
