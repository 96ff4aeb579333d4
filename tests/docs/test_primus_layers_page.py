"""The page of layers is current where Primus's recipes and what it printed are at hand."""

from docs import primus_layers_page
from tests.config.primus_tree import REFERENCE, ROOT, needs_reference, needs_tree
from tests.performance.primus_layers import groups


@needs_tree
@needs_reference
def test_the_page_of_layers_shows_todays_times() -> None:
    assert primus_layers_page.PAGE.read_text(encoding="utf-8") == primus_layers_page.render(REFERENCE, ROOT)


def test_the_page_explains_every_group() -> None:
    text = " ".join(primus_layers_page.PAGE.read_text(encoding="utf-8").split())
    assert all(f"## {group.title} {' '.join(group.because.split())} |" in text for group in groups())
