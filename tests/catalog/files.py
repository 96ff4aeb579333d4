"""The catalog's files as tests read them, and a parser that notices keys stated twice."""

from pathlib import Path
from typing import Any

import yaml

from projector import catalog

CATALOG = Path(catalog.__file__).parent
SCHEMAS = yaml.safe_load((Path(__file__).parent / "schemas.yaml").read_text(encoding="utf-8"))


class _StrictLoader(yaml.SafeLoader):
    """YAML lets the last of two equal keys win; a fact stated twice is a mistake."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        assert not twice, f"{node.start_mark.name} states {twice} twice"
        return super().construct_mapping(node, deep)


def files(kind: str) -> list[Path]:
    """The files of a folder of the catalog."""
    return sorted((CATALOG / kind).glob("*.yaml"))


def content(path: Path) -> Any:  # noqa: ANN401 - whatever the file holds
    """What a file holds."""
    with path.open(encoding="utf-8") as stream:
        return yaml.load(stream, Loader=_StrictLoader)  # noqa: S506 - a safe loader


def tags(document: object) -> set[str]:
    """Every source tag within a document of facts."""
    if isinstance(document, dict):
        own = {document["source"]} if "source" in document else set()
        return own.union(*(tags(value) for value in document.values()))
    if isinstance(document, list):
        return set().union(*(tags(value) for value in document))
    return set()
