"""Keeps what the README, and other pages by hand, show of outputs and counts what it really is."""

import contextlib
import io
import re
import shlex
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry

from docs.accuracy_page import ROWS
from projection_operator.api.conditions import ConditionType, condition_of
from projection_operator.api.spec import parse_request
from projection_operator.metrics.requests import RequestCollector
from projection_operator.reconcile import Answer, Observed, PatchStatus, reconcile
from projection_operator.reconcile.question import build_question, spec_hash
from projection_operator.store import Store
from projector.api import project
from projector.cli import main
from tests.accuracy.rows import load

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "README.md"
PAGES_WITH_OUTPUTS = tuple(ROOT / "docs" / name for name in ("memory.md", "schedule.md"))
"""Pages with outputs of the command and nothing else that is renewed."""
SAMPLE = ROOT / "samples" / "projectionrequest.yaml"
DEFINITION = ROOT / "crds" / "projectionrequests.yaml"

COMMAND = re.compile(
    r"^(?P<prompt>```console\n\$ projector (?P<arguments>[^|\n]+?)(?: \| head -n (?P<lines>\d+))?\n)(?:.*\n)*?```$",
    re.MULTILINE,
)
TABLE = re.compile(r"^```console\nNAME .*\n.*\n```$", re.MULTILINE)
COUNT = re.compile(r"(?<=against )\d+(?= published measurements)")
SERIES = re.compile(r"^(?P<name>projection_\w+)\{.*\} \S+$", re.MULTILINE)


def _printed(arguments: str, lines: int | None) -> str:
    output = io.StringIO()
    with contextlib.chdir(ROOT), contextlib.redirect_stdout(output):
        main(shlex.split(arguments))
    return "\n".join(output.getvalue().rstrip().splitlines()[:lines]) + "\n"


def answered_sample() -> dict[str, Any]:
    """The sample request with the status that the operator gives it."""
    body = yaml.safe_load(SAMPLE.read_text(encoding="utf-8"))
    body["metadata"] |= {"namespace": "team-a", "uid": "1", "resourceVersion": "1", "generation": 1}
    request = parse_request(body)
    body["spec"]["profiling"] = {"mode": request.profiling_mode}
    question = build_question(request, Observed(), primus_root=None)
    answer = Answer(spec_hash=spec_hash(question, request, engine_version="1"), result=project(question))
    actions = reconcile(
        request, Observed(answer=answer), datetime(2026, 1, 1, tzinfo=UTC), primus_root=None, engine_version="1"
    )
    (patch,) = (action for action in actions if isinstance(action, PatchStatus))
    return {**body, "status": patch.status}


def _kubectl_get(body: Mapping[str, Any]) -> str:
    """The table that kubectl prints of an object that has just been made."""
    version = yaml.safe_load(DEFINITION.read_text(encoding="utf-8"))["spec"]["versions"][0]
    row = {"NAME": body["metadata"]["name"]}
    for column in version["additionalPrinterColumns"]:
        if not column.get("priority"):
            row[column["name"].upper()] = "0s" if column["type"] == "date" else str(_at(body, column["jsonPath"]))
    widths = [max(len(name), len(value)) for name, value in row.items()]
    lines = ("   ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) for cells in _rows(row))
    return "\n".join(line.rstrip() for line in lines)


def _rows(row: Mapping[str, str]) -> Iterator[list[str]]:
    yield list(row)
    yield list(row.values())


def _at(body: Mapping[str, Any], path: str) -> object:
    if "@.type" in path:
        return condition_of(body["status"], ConditionType.COMPLETED)[path.rpartition(".")[2]]
    value: Any = body
    for step in path.strip(".").split("."):
        value = value[step]
    return value


def _series(body: Mapping[str, Any]) -> dict[str, str]:
    """The first line of every metric of a request, as Prometheus scrapes it, with figures that can be read."""
    store, registry, lines = Store(), CollectorRegistry(), dict[str, str]()
    store.put(body)
    registry.register(RequestCollector(store))
    for family in registry.collect():
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            lines.setdefault(sample.name, f"{sample.name}{{{labels}}} {sample.value:.12g}")
    return lines


def with_outputs(text: str) -> str:
    """The page with every output of the command renewed."""

    def renewed(block: re.Match[str]) -> str:
        lines = int(block["lines"]) if block["lines"] else None
        return f"{block['prompt']}{_printed(block['arguments'], lines)}```"

    return COMMAND.sub(renewed, text)


def render(text: str) -> str:
    """The README with every output of a program renewed."""
    body = answered_sample()
    table, series = f"```console\n{_kubectl_get(body)}\n```", _series(body)
    text = TABLE.sub(lambda _: table, with_outputs(text))
    text = SERIES.sub(lambda line: series[line["name"]], text)
    return COUNT.sub(str(len(load(ROWS))), text)


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for page in PAGES_WITH_OUTPUTS:
        page.write_text(with_outputs(page.read_text(encoding="utf-8")), encoding="utf-8")
