"""Every public recipe of Primus, against what Primus itself resolves, and without its tree."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from projector.config import ConfigValue, LoadedConfiguration, Source, read_file
from projector.config.keys import Keys
from projector.config.megatron import job
from projector.config.megatron.facts import megatron_facts
from projector.config.primus.facts import primus_facts
from projector.config.safe_yaml import parse_mapping
from projector.errors import InputError, NotAvailable
from tests.config.primus_tree import REFERENCE, ROOT, needs_reference, needs_tree, recipes, reference

pytestmark = needs_tree

DIFFERENT_ON_PURPOSE: dict[tuple[str, str], str] = {}
"""(recipe, key) whose value differs from the one that Primus resolves, with the reason."""
DIFFERENT_WITHOUT_TREE: dict[str, str] = {}
"""Recipes whose job differs when presets come from the catalog, with the reason."""


def _names() -> list[str]:
    return sorted(reference()) if REFERENCE.is_file() else []


def _load(recipe: str | Path, *, tree: bool = True) -> LoadedConfiguration:
    return read_file(ROOT / recipe, primus_root=ROOT if tree else None)


@needs_reference
@pytest.mark.parametrize("recipe", _names())
def test_a_recipe_resolves_to_the_values_of_primus(recipe: str) -> None:
    values = _load(recipe).values
    want = reference()[recipe]
    every_key = {key for keys in reference().values() for key in keys}
    got = {key: values[key].value for key in every_key if key in values}
    different = {key for key in got.keys() | want.keys() if (key in got, got.get(key)) != (key in want, want.get(key))}
    assert {key for key in different if (recipe, key) not in DIFFERENT_ON_PURPOSE} == set()
    assert {key: type(value) for key, value in got.items()} == {key: type(got[key]) for key in want}


def _differences(left: object, right: object, path: str = "job") -> list[str]:
    if left == right:
        return []
    if is_dataclass(left) and type(left) is type(right):
        names = [field.name for field in fields(left)]
        return [
            text for name in names for text in _differences(getattr(left, name), getattr(right, name), f"{path}.{name}")
        ]
    if isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
        pairs = zip(left, right, strict=True)
        return [text for index, (a, b) in enumerate(pairs) for text in _differences(a, b, f"{path}[{index}]")]
    return [f"{path}: {left} with the tree, {right} without"]


@needs_reference
@pytest.mark.parametrize("recipe", [name for name in _names() if name not in DIFFERENT_WITHOUT_TREE])
def test_a_recipe_gives_the_same_job_without_a_primus_tree(recipe: str) -> None:
    with_tree, without = _load(recipe), _load(recipe, tree=False)
    assert _differences(with_tree.job, without.job)[:5] == []
    assert {note.what for note in with_tree.unmodelled} == {note.what for note in without.unmodelled}


@pytest.mark.parametrize(
    "path", recipes(), ids=lambda path: str(path.relative_to(ROOT)) if isinstance(path, Path) else "none"
)
def test_every_file_loads_or_is_refused_with_one_clear_line(path: Path) -> None:
    recipe = str(path)
    try:
        outcome: LoadedConfiguration | InputError = _load(recipe)
    except InputError as error:
        outcome = error
    assert isinstance(outcome, NotAvailable) == ("diffusion" in path.parts)
    assert isinstance(outcome, LoadedConfiguration) or ("\n" not in str(outcome) and len(str(outcome)) < 400)


class _Recorded(Keys):
    """Keys that can still be asked what was read of them when the file is loaded."""

    all: ClassVar[list[Keys]] = []

    def __init__(self, values: Mapping[str, ConfigValue], **options: Any) -> None:  # noqa: ANN401 - as its base has them
        super().__init__(values, **options)
        self.all.append(self)


def test_what_the_loader_reads_and_a_preset_states_is_in_the_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "Keys", _Recorded)
    monkeypatch.setattr(_Recorded, "all", [])
    for recipe in _names():
        _load(recipe)
    assert len(_Recorded.all) == len(_names())
    facts = primus_facts()
    read = {key for keys in _Recorded.all for key in keys.read}
    presets = {Source.MODULE_PRESET, Source.MODEL_PRESET}
    stated = {key for keys in _Recorded.all for key, value in keys.values.items() if value.source in presets}
    heads = {key.partition(".")[0] for key in facts.known - megatron_facts().ignored}
    assert {key for key in read & stated if key.partition(".")[0] not in heads} == set()
    # Adapters are read as one section, details without effect included.
    assert {key for key in read & megatron_facts().ignored if not key.startswith("lora.")} == set()


def test_every_key_of_the_presets_is_known() -> None:
    facts = primus_facts()
    folders = [ROOT / "primus/configs/modules/megatron", ROOT / "primus/configs/models/megatron"]
    keys = {
        key
        for folder in folders
        for path in folder.glob("*.yaml")
        for key in parse_mapping(path.read_bytes(), name=path.name)
    }
    heads = {key.partition(".")[0] for key in facts.known}
    # diffusion_model is no model of this reader; `bases` is a key that Primus does not read.
    assert keys - heads - {"extends"} == set()


def test_the_recipes_hold_no_key_that_is_unknown() -> None:
    unknown = {
        note.what
        for path in recipes("examples/megatron/configs")
        if "diffusion" not in path.parts and path.name in {name.rpartition("/")[2] for name in _names()}
        for note in read_file(path, primus_root=ROOT).unmodelled
        if "not a key that the project knows" in note.effect
    }
    assert unknown == set()
