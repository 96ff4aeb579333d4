"""Rows of measured runs, as `ground_truth.yaml` writes them."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

MEMORY_QUANTITIES = (
    "mem_persistent_gib",
    "mem_alloc_gib",
    "mem_alloc_gb",
    "mem_reserved_gib",
    "mem_gb",
    "mem_device_gib",
    "mem_device_gb",
    "mem_params_opt_gib",
    "mem_activation_gib",
)
"""Memory columns that are scored. `mem_device_pct_of_288gb` repeats `mem_device_gib` of the same rows."""

TIME_QUANTITIES = (
    "iter_ms",
    "iter_ms_derived",
    "tokens_per_s_per_gpu",
    "model_tflops_per_gpu",
    "tflops_per_gpu",
    "hw_tflops_per_gpu",
)
"""Columns that state the speed of a run; a row is scored by the first it has, since the others restate it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One measured run."""

    id: str
    """Unique name."""
    source: str
    """Publication it comes from."""
    group: str
    """Runs that share layers and layout; decides whether constants may be fitted on it."""
    use: str
    """time, both, memory or memory-analytic."""
    score: str | None
    """interval, excluded, or None for relative error."""
    model: Mapping[str, Any]
    """Facts of the model with the row's overrides applied."""
    hardware: str
    """Device name."""
    devices: int | None
    """Devices of the run; None when not printed."""
    framework: str
    """Software, in the source's words."""
    parallel: Mapping[str, Any]
    """Layout columns."""
    train: Mapping[str, Any]
    """Training columns."""
    measured: Mapping[str, float]
    """Scored quantities by column name."""
    peers: Mapping[str, Mapping[str, float]]
    """What other tools predicted for this row."""
    notes: str = ""
    """What the source says beside the columns, such as the file that the figures stand in."""
    recipe: Mapping[str, str] = field(default_factory=dict)
    """What the recipe of a row of Megatron-Bridge sets itself, as text, with its `name`; empty for other rows."""
    first_iteration: bool = False
    """Memory was logged after the first iteration, whose backward pass runs without Adam's moments."""

    @property
    def fitted(self) -> bool:
        """Whether constants may be fitted on this row: an even SHA-256 of its group."""
        return int(hashlib.sha256(self.group.encode()).hexdigest(), 16) % 2 == 0


def _with_overrides(facts: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    merged = {key: dict(value) if isinstance(value, dict) else value for key, value in facts.items()}
    for key, value in overrides.items():
        head, _, tail = key.partition(".")
        if tail:
            merged.setdefault(head, {})[tail] = value
        else:
            merged[key] = value
    return merged


def _measured(entry: Mapping[str, Any]) -> dict[str, float]:
    columns = entry["measured"]
    wanted = {name: float(columns[name]) for name in MEMORY_QUANTITIES if name in columns}
    if entry["use"] != "memory":
        time = next((name for name in TIME_QUANTITIES if name in columns), None)
        if time is not None:
            wanted[time] = float(columns[time])
    return wanted


def _recipe(notes: Mapping[str, Any]) -> dict[str, str]:
    return {"name": str(notes.get("recipe_name", "")), **(notes.get("recipe") or {})}


def load(path: Path) -> list[Row]:
    """Read a file of rows; raises `KeyError` when a row lacks an obligatory column."""
    document = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    models = document.get("models", {})
    return [
        Row(
            id=entry["id"],
            source=entry["source"],
            group=entry["group"],
            use=entry["use"],
            score=entry.get("score"),
            model=_with_overrides(models.get(entry["model"], {}), entry.get("model_overrides") or {}),
            hardware=entry["hw"],
            devices=entry.get("num_gpus"),
            framework=entry.get("framework", ""),
            parallel=entry["parallel"],
            train=entry["train"],
            measured=_measured(entry),
            peers=entry.get("peers") or {},
            notes=notes if isinstance(notes := entry.get("notes"), str) else "",
            recipe=_recipe(notes) if isinstance(notes, dict) else {},
            first_iteration="figures are of iteration 1" in (notes or ""),
        )
        for entry in document["rows"]
    ]
