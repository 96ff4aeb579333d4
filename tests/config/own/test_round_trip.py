"""A job of any dialect, written in the project's own format, reads back as the same job with the same doubts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings

from projector import catalog
from projector.api import Question, project
from projector.catalog.model_file import read_model
from projector.config import LoadedConfiguration, read, read_file
from projector.config.own.writing import document, model_mapping, runs, write
from projector.errors import ConfigurationError, InputError
from projector.job import DecoderLayer, UnmodelledMixer
from projector.projection import Verdict
from projector.provenance import Assumption
from tests.config.builders import flat_text
from tests.config.own.jobs import DIALECTS, SMALL, WHOLE, load, notes
from tests.config.primus_tree import ROOT, needs_tree, recipes

SAMPLES = sorted((Path(__file__).parents[3] / "samples" / "experiments").glob("*.yaml"))


def assert_kept(loaded: LoadedConfiguration, text: str) -> None:
    back = read(text, name="own.yaml")
    assert back.job == loaded.job
    assert (back.nodes, back.devices_per_node) == (loaded.nodes, loaded.devices_per_node)
    assert back.unmodelled == loaded.unmodelled
    assert back.assumed == loaded.assumed
    assert back.ignored == ()


@settings(max_examples=100, deadline=None)
@given(notes())
def test_any_job_reads_back(loaded: LoadedConfiguration) -> None:
    assert_kept(loaded, write(loaded))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_reads_back(path: Path) -> None:
    loaded = read_file(path)
    assert_kept(loaded, write(loaded))
    assert_kept(loaded, json.dumps(document(loaded)))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_configuration_of_every_dialect_reads_back(dialect: str) -> None:
    text, overrides = DIALECTS[dialect]
    loaded = load(text, *overrides)
    assert loaded.format == dialect.partition(",")[0]
    assert_kept(loaded, write(loaded))


def test_what_is_quoted_of_other_formats_does_not_change_the_format() -> None:
    loaded = load(SMALL)
    quoted = (
        "torchrun -m torchtitan.train",
        "[model]",
        "--module llama3 --config llama3_8b",
        "modules:",
        "--num-layers 4",
    )
    notes = tuple(Assumption(what=text, why="it is there") for text in quoted)
    for each in (write, lambda kept: json.dumps(document(kept)), lambda kept: json.dumps(document(kept), indent=2)):
        assert_kept(replace(loaded, assumed=notes), each(replace(loaded, assumed=notes, ignored=quoted)))


@needs_tree
def test_every_public_recipe_that_reads_reads_back() -> None:
    kept = 0
    for path in recipes():
        try:
            loaded = read_file(path, primus_root=ROOT)
        except InputError:
            continue
        assert_kept(loaded, write(loaded))
        kept += 1
    assert kept > 150


@pytest.mark.parametrize("model", catalog.models(), ids=lambda model: model.name)
def test_every_model_of_the_catalog_reads_back(model: catalog.CatalogModel, tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(
        yaml.safe_dump({**model_mapping(model.architecture), "sources": ["here"], "status": "verified"}),
        encoding="utf-8",
    )
    assert read_model(path).architecture == model.architecture  # type: ignore[union-attr]
    loaded = load(SMALL, f"model.catalog={model.name}")
    assert loaded.job.model == model.architecture
    assert_kept(loaded, write(loaded))


@pytest.mark.parametrize(
    ("kinds", "wanted"),
    [
        ("a", ["1 a"]),
        ("aaa", ["3 a"]),
        ("abb", ["1 a", "2 b"]),
        ("abababab", ["4 ab"]),
        ("aaabaaabaaab", ["3 aaab"]),
        ("abcabca", ["2 abc", "1 a"]),
    ],
)
def test_layers_that_repeat_are_written_once(kinds: str, wanted: list[str]) -> None:
    layers = [DecoderLayer(mixer=UnmodelledMixer(name=kind), feed_forward=None) for kind in kinds]
    names = dict(zip(layers, kinds, strict=True))
    assert [f"{times} {''.join(names[layer] for layer in group)}" for times, group in runs(layers)] == wanted


def test_what_decides_the_verdict_goes_with_the_job() -> None:
    text = flat_text(context_parallel_size=1, cpu_offloading=True)
    loaded = read(text, name="exp.yaml")
    assert any(note.decides for note in loaded.unmodelled)
    answers = [project(Question(text=each)) for each in (text, write(loaded))]
    assert [answer.memory.verdict for answer in answers if answer.memory] == [Verdict.UNKNOWN] * 2


def test_both_files_get_the_same_answer() -> None:
    text = WHOLE.replace("zerobubble", "1f1b")
    answers = [project(Question(text=each)) for each in (text, write(load(text)))]
    assert answers[0].memory == answers[1].memory
    assert answers[0].performance == answers[1].performance


def test_every_value_is_stated_so_that_no_default_is_left() -> None:
    sources = {value.source for value in load(write(load(WHOLE))).values.values()}
    assert sources == {"experiment file"}


def test_a_conversion_of_a_conversion_changes_nothing_but_its_heading() -> None:
    once = write(load(WHOLE))
    assert write(load(once)).splitlines()[1:] == once.splitlines()[1:]


def test_names_of_others_stay_inside_their_comment() -> None:
    loaded = load(SMALL)
    unsafe = LoadedConfiguration(job=loaded.job, ignored=("lr\nmodel: {catalog: gpt3-175b}", "a\u2028b\x85c"))
    text = write(unsafe)
    assert_kept(LoadedConfiguration(job=loaded.job), text)
    assert text.splitlines()[-1].startswith("# ")


def test_a_text_that_would_become_a_variable_is_refused() -> None:
    loaded = load(SMALL, "model.name='${HOME}'")
    with pytest.raises(ConfigurationError, match=r"'\$\{HOME\}' would be read as a variable"):
        write(loaded)
