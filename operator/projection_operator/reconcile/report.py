"""The report: what is too long for a status, as the data of a ConfigMap."""

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from projection_operator.api.spec import Request
from projector.projection import MemoryLevel, Projection, component_tree

DATA_BYTES = 900 * 1024
"""Most that a report holds. The API server takes 1 MiB of data in a ConfigMap (k8s.io/api core/v1, MaxSecretSize);
the rest is left to metadata."""

DOCUMENT_KEY = "projection.json"
OMITTED_KEY = "omitted.txt"
NAME_CHARACTERS = 63


def report_name(request: Request) -> str:
    """Name of a request's report: the same after every restart, another one for another object of the same name."""
    digest = hashlib.sha256(request.uid.encode()).hexdigest()[:8]
    suffix = f"-report-{digest}"
    return request.key.name[: NAME_CHARACTERS - len(suffix)].rstrip("-.") + suffix


def report_data(projection: Projection) -> dict[str, str]:
    """Tables as CSV and the whole document as JSON, shortened where they would not fit in a ConfigMap.

    What was left out is named under `omitted.txt`.
    """
    document, tables = projection.to_dict(), _tables(projection)
    data: dict[str, str] = {}
    for omitted, shorten in _SHORTER:
        data = {**tables, DOCUMENT_KEY: json.dumps(shorten(document), separators=(",", ":"))}
        if omitted:
            data[OMITTED_KEY] = f"Too long for a ConfigMap and left out of {DOCUMENT_KEY}: {omitted}.\n"
        if _size(data) <= DATA_BYTES:
            return data
    # Only a table of thousands of stages gets here.
    return {OMITTED_KEY: "The report is too long for a ConfigMap; run the projector command for all of it.\n"}


def _without(document: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in keys}


_SHORTER: Sequence[tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]] = (
    ("", lambda document: document),
    ("job.values", lambda document: {**document, "job": _without(document["job"], "values")}),
    ("job and memory", lambda document: _without(document, "job", "memory")),
)


def _size(data: dict[str, str]) -> int:
    return sum(len(key.encode()) + len(text.encode()) for key, text in data.items())


def _tables(projection: Projection) -> dict[str, str]:
    tables: dict[str, str] = {}
    if projection.memory is not None:
        tables["stages.csv"] = _csv(
            [
                *("stage", "layers", "parameters"),
                *(f"{level}_bytes" for level in MemoryLevel),
                *("device_bytes_lower", "device_bytes_upper", "layers_in_flight", "peak_cause"),
            ],
            (
                [stage.stage, len(stage.layers), stage.parameters]
                + [stage.level_bytes(level) for level in MemoryLevel]
                + [stage.device_bytes_lower, stage.device_bytes_upper, stage.layers_in_flight, stage.peak_cause]
                for stage in projection.memory.stages
            ),
        )
        tables["components.csv"] = _csv(
            ["stage", "level", "component", "bytes"],
            (
                [stage.stage, part.level, part.name, part.size_bytes]
                for stage in projection.memory.stages
                for part in stage.components
            ),
        )
        tables["tree.csv"] = _csv(["stage", "component", "parameters", "saved_bytes"], _tree(projection))
    if projection.performance is not None:
        performance = projection.performance
        tables["waterfall.csv"] = _csv(
            ["name", "ms"], ([step.name, _ms(step.seconds)] for step in performance.waterfall)
        )
        tables["communication.csv"] = _csv(
            ["group", "collective", "bytes", "ms", "exposed_ms"],
            (
                [total.group, total.collective, total.message_bytes, _ms(total.seconds), _ms(total.exposed_seconds)]
                for total in performance.communication
            ),
        )
    return tables


def _tree(projection: Projection) -> Iterable[Sequence[object]]:
    """The component tree of every stage whose parameters are counted by component."""
    stages = () if projection.memory is None else projection.memory.stages
    for stage, parameters in zip(stages, projection.parameters.stages, strict=False):
        for row in component_tree(stage, parameters):
            yield [stage.stage, *row]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3f}"


def _csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
