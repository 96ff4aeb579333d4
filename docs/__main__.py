"""Regenerates every reference page from its source.

`python -m docs [PRIMUS_CHECKOUT]`; the page of recipes needs a checkout of AMD-AGI/Primus, or PRIMUS_ROOT, and the page
of layers PRIMUS_REFERENCE as well, what Primus printed for them.
"""

import os
import sys
from pathlib import Path

import yaml

from docs import (
    accuracy_page,
    api_reference,
    cli_reference,
    conditions_reference,
    metrics_reference,
    primus_layers_page,
    readme,
    recipes_page,
)
from tests.config.primus_tree import REFERENCE

if __name__ == "__main__":
    definition = yaml.safe_load(api_reference.DEFINITION.read_text(encoding="utf-8"))
    api_reference.PAGE.write_text(api_reference.render(definition), encoding="utf-8")
    for page in (cli_reference, conditions_reference, metrics_reference, accuracy_page):
        page.PAGE.write_text(page.render(), encoding="utf-8")
    checkout = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("PRIMUS_ROOT")
    if checkout:
        recipes_page.PAGE.write_text(recipes_page.render(Path(checkout)), encoding="utf-8")
        if REFERENCE.is_file():
            layers = primus_layers_page.render(REFERENCE, Path(checkout))
            primus_layers_page.PAGE.write_text(layers, encoding="utf-8")
    readme.PAGE.write_text(readme.render(readme.PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for shown in readme.PAGES_WITH_OUTPUTS:
        shown.write_text(readme.with_outputs(shown.read_text(encoding="utf-8")), encoding="utf-8")
