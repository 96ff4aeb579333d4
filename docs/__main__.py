"""Regenerates every reference page from its source."""

import yaml

from docs import accuracy_page, api_reference, cli_reference, conditions_reference, metrics_reference, readme

if __name__ == "__main__":
    definition = yaml.safe_load(api_reference.DEFINITION.read_text(encoding="utf-8"))
    api_reference.PAGE.write_text(api_reference.render(definition), encoding="utf-8")
    for page in (cli_reference, conditions_reference, metrics_reference, accuracy_page):
        page.PAGE.write_text(page.render(), encoding="utf-8")
    readme.PAGE.write_text(readme.render(readme.PAGE.read_text(encoding="utf-8")), encoding="utf-8")
