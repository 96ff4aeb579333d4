"""Times of single layers beside those that AMD Primus's own simulation printed for its public recipes.

Compared is what Primus computes as it says: layers in 16 bits on one tensor- and context-parallel rank. Left out are
its 8- and 4-bit recipes, to which it gives the time of 16 bits, TP, which it does not apply to shapes, and the two ends
of a model, to which it gives a vocabulary of 100,352.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from projector.api import Question, project
from projector.errors import InputError
from projector.projection import LayerTime

GROUPS_FILE = Path(__file__).with_name("primus_layers.yaml")
KINDS = {"layer_dense": "dense layer", "layer_moe": "moe layer"}
"""Kinds of layers, as Primus and as the report name them."""
ALIKE = {"recompute_granularity": "null", "recompute_layer_ids": "null", "use_torch_fsdp2": "false"}
"""What Primus adds to layers later: recomputation, and gathering of sharded weights."""


class Pair(NamedTuple):
    """Milliseconds of one micro batch through a layer: forward and backward."""

    forward: float
    backward: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerRow:
    """A layer of a recipe on a GPU."""

    recipe: str
    """Name of the recipe's file, without its ending."""
    device: str
    """GPU."""
    kind: str
    """`dense layer` or `moe layer`."""
    primus: Pair
    """What Primus printed."""
    ours: Pair
    """What is projected."""

    @property
    def ratio(self) -> Pair:
        """Ours over Primus's."""
        return Pair(*(one / other for one, other in zip(self.ours, self.primus, strict=True)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Rows that differ for the same reason."""

    title: str
    """What they have in common."""
    because: str
    """Why they differ."""
    device: str
    """Pattern of GPUs."""
    kind: str
    """Pattern of kinds of layers."""
    recipes: tuple[str, ...]
    """Patterns of recipes."""
    forward: tuple[float, float]
    """Ours over Primus's, from and to."""
    backward: tuple[float, float]
    """The same of backward."""

    def holds(self, row: LayerRow) -> bool:
        """Whether a row belongs to the group, if to none before it."""
        named = any(fnmatch(row.recipe, pattern) for pattern in self.recipes)
        return named and fnmatch(row.device, self.device) and fnmatch(row.kind, self.kind)


@cache
def groups() -> tuple[Group, ...]:
    """The groups, in the order in which they are tried."""
    entries = yaml.safe_load(GROUPS_FILE.read_text(encoding="utf-8"))
    return tuple(
        Group(
            title=entry["title"],
            because=entry["because"].strip(),
            device=entry.get("device", "*"),
            kind=entry.get("kind", "*"),
            recipes=tuple(entry.get("recipes", ["*"])),
            forward=tuple(entry["forward"]),
            backward=tuple(entry["backward"]),
        )
        for entry in entries
    )


def group_of(row: LayerRow) -> Group | None:
    """The first group that holds a row."""
    return next((group for group in groups() if group.holds(row)), None)


def rows(reference: Path, root: Path) -> Iterator[LayerRow]:
    """Every layer that Primus and the engine answer, of the recipes in `root` on the GPU of their folder."""
    seen: set[str] = set()
    for record in json.loads(reference.read_text(encoding="utf-8"))["records"]:
        if record["config"] not in seen and _is_safe(record):
            seen.add(record["config"])
            yield from _rows(record, root)


def _is_safe(record: dict[str, Any]) -> bool:
    """A plain run of a 16-bit recipe without tensor or context parallelism."""
    plain = "layer_times" in record and not record["cli_overrides"] and record["options"].keys() == {"gpu_arch"}
    return plain and record["resolved"]["tp"] == record["resolved"]["cp"] == 1 and "FP" not in _name(record)


def _name(record: dict[str, Any]) -> str:
    return Path(record["config"]).stem


def _rows(record: dict[str, Any], root: Path) -> Iterator[LayerRow]:
    ours = _ours(root / record["config"], record["arch"], root)
    for key, kind in KINDS.items():
        if key in record["layer_times"] and kind in ours:
            theirs, found = record["layer_times"][key], ours[kind]
            yield LayerRow(
                recipe=_name(record),
                device=record["arch"],
                kind=kind,
                primus=Pair(theirs["forward_time_ms"], theirs["backward_time_ms"]),
                ours=Pair(found.forward_seconds * 1e3, found.backward_seconds * 1e3),
            )


def _ours(path: Path, device: str, root: Path) -> dict[str, LayerTime]:
    """Times of the recipe's layers by kind; none where it is refused."""
    question = Question(
        text=path.read_text(encoding="utf-8"),
        name=path.name,
        directory=path.parent,
        primus_root=root,
        format="primus",
        device=device,
        memory=False,
        overrides=ALIKE,
    )
    try:
        found = project(question).performance
    except InputError:
        return {}
    return {} if found is None else {each.name: each for each in found.layer_times}
