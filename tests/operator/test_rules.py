"""The rights of the chart: no wildcard, nothing twice, nothing over the cluster that a namespace could give."""

from pathlib import Path
from typing import Any

import pytest
import yaml

CHART = Path(__file__).resolve().parents[2] / "charts" / "projection-operator"
RULES: dict[str, list[dict[str, list[str]]]] = yaml.safe_load(
    (CHART / "files" / "rules.yaml").read_text(encoding="utf-8")
)


def rights(scope: str) -> list[tuple[str, str, str]]:
    return [
        (group, resource, verb)
        for rule in RULES[scope]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


@pytest.mark.parametrize("scope", ["namespaced", "cluster"])
def test_no_right_is_a_wildcard_and_none_stands_twice(scope: str) -> None:
    granted = rights(scope)
    assert not [right for right in granted if "*" in right]
    assert len(granted) == len(set(granted))


def test_secrets_are_out_of_reach_and_nodes_are_the_only_thing_of_the_cluster() -> None:
    everything: list[Any] = rights("namespaced") + rights("cluster")
    assert not [right for right in everything if right[1].startswith("secrets")]
    assert rights("cluster") == [("", "nodes", "list")]


def test_the_template_renders_this_file() -> None:
    template = (CHART / "templates" / "rbac.yaml").read_text(encoding="utf-8")
    assert '.Files.Get "files/rules.yaml"' in template
    assert "verbs" not in template
