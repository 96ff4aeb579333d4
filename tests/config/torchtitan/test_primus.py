"""Primus experiments with the framework torchtitan: presets from a tree or the catalog, the same job."""

from pathlib import Path

import pytest

from projector.config import Source, parse_overrides, read, read_file
from projector.config.primus.facts import framework_facts
from projector.config.safe_yaml import parse_mapping
from projector.config.switches import sections_of
from projector.config.torchtitan.facts import torchtitan_facts
from projector.config.tree import build, flatten
from projector.errors import InputError
from projector.job import AttentionBackend, LowPrecision, RecomputeGranularity
from tests.config.builders import experiment_text
from tests.config.primus_tree import ROOT, needs_tree, recipes

LLAMA = {"framework": "torchtitan", "config": "pre_trainer.yaml", "model": "llama3.1_8B.yaml"}


def experiment(**overrides: object) -> str:
    return experiment_text({**LLAMA, "overrides": overrides})


def test_the_defaults_of_primus_apply_without_a_tree() -> None:
    loaded = read(experiment(), name="exp.yaml")
    job = loaded.job
    assert loaded.format == "primus"
    assert (job.model.name, job.batch.micro, job.batch.sequence_length) == ("llama3.1-8b", 8, 2048)
    # Unlike TorchTitan, Primus neither checkpoints nor leaves the model uncompiled unless told to.
    assert job.recompute.granularity is RecomputeGranularity.NONE
    assert job.software.compiled_layers
    assert loaded.unmodelled == ()
    assert job.software.attention_backend is AttentionBackend.FLASH
    assert loaded.values["training.seq_len"].source is Source.CATALOG


def test_overrides_come_in_torchtitans_keys_or_shared_names() -> None:
    for key in ("training.local_batch_size", "micro_batch_size"):
        loaded = read(experiment(), name="exp.yaml", overrides=parse_overrides([f"{key}=3"]))
        assert loaded.job.batch.micro == 3
        assert loaded.values["training.local_batch_size"].source is Source.OVERRIDE
    with pytest.raises(InputError, match="override model: the model preset is read before"):
        read(experiment(), name="exp.yaml", overrides=parse_overrides(["model=llama3.1_70B.yaml"]))


def test_a_preset_with_float8_trains_in_float8() -> None:
    text = experiment_text({**LLAMA, "model": "llama3.1_8B-fp8.yaml"})
    assert read(text, name="exp.yaml").job.precision.low_precision is LowPrecision.FP8


def test_an_unknown_preset_is_one_clear_line() -> None:
    text = experiment_text({**LLAMA, "model": "llama3.1_9B.yaml"})
    with pytest.raises(InputError, match=r"no model preset 'llama3.1_9B.yaml' for torchtitan; did you mean llama3"):
        read(text, name="exp.yaml")


@needs_tree
@pytest.mark.parametrize(
    "path",
    recipes("examples/torchtitan/configs"),
    ids=lambda path: f"{path.parent.name}/{path.name}" if isinstance(path, Path) else "none",
)
def test_a_recipe_is_the_same_job_with_and_without_a_primus_tree(path: Path) -> None:
    recipe = ROOT / path
    with_tree, without = read_file(recipe, primus_root=ROOT), read_file(recipe)
    assert with_tree.job == without.job
    assert {note.what for note in with_tree.unmodelled} == {note.what for note in without.unmodelled}
    assert not [note for note in with_tree.unmodelled if "not a key that the project knows" in note.effect]


@needs_tree
@pytest.mark.parametrize("kind", ["modules", "models"])
def test_every_key_of_the_presets_is_known(kind: str) -> None:
    known = torchtitan_facts().known
    for path in (ROOT / "primus/configs" / kind / "torchtitan").glob("*.yaml"):
        content = parse_mapping(path.read_bytes(), name=path.name)
        content.pop("extends", None)
        keys = flatten(build(content, source=Source.MODULE_PRESET, file=path.name, variables={}))
        unknown = {key for key in keys if key not in known and known.isdisjoint(sections_of(key))}
        assert unknown == set()


@needs_tree
def test_the_catalog_has_the_trees_model_presets() -> None:
    facts = framework_facts("torchtitan")
    files = {path.stem: path for path in (ROOT / "primus/configs/models/torchtitan").glob("*.yaml")}
    assert set(files) == set(facts.models)
    for stem, path in files.items():
        stated = parse_mapping(path.read_bytes(), name=path.name)["model"]
        stated.pop("hf_assets_path")
        assert facts.models[stem]["model"] == stated
