"""The samples say what they claim to say."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from projector.api import Question, project
from projector.config import LoadedConfiguration, read_file
from projector.projection import Verdict

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "samples"
EXPERIMENT = SAMPLES / "experiments" / "llama3.1-70b-mi300x.yaml"
RECIPE = ROOT / "projector" / "catalog" / "recipes" / "llama3.1-70b-bf16-mi300x.yaml"
PRIMUS_ROOT = Path(os.environ.get("PRIMUS_ROOT", ROOT.parent / "shared" / "primus"))
PUBLIC = PRIMUS_ROOT / "examples" / "megatron" / "configs" / "MI300X" / "llama3.1_70B-BF16-pretrain.yaml"

needs_primus = pytest.mark.skipif(
    not PUBLIC.is_file(),
    reason=f"no Primus checkout at {PRIMUS_ROOT}; set PRIMUS_ROOT to compare with the public recipe",
)


CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "megatron-llama3-8b.sh": {},
    "torchtitan-llama3-8b.toml": {},
    "huggingface-qwen3-30b-a3b.json": {
        "overrides": {"seq_length": "4096"},
        "companions": {"deepspeed.json": (SAMPLES / "configurations" / "deepspeed-zero3.json").read_text("utf-8")},
    },
}
"""Configurations of other formats, with what has to be given beside them."""


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_configuration_of_another_format_is_projected_with_nothing_open_that_decides(name: str) -> None:
    text = (SAMPLES / "configurations" / name).read_text(encoding="utf-8")
    answer = project(Question(text=text, name=name, device="MI300X", nodes=4, **CONFIGURATIONS[name]))
    assert answer.format == name.partition("-")[0]
    assert answer.memory is not None
    assert answer.memory.verdict is Verdict.FITS
    assert not [note for note in answer.unmodelled if note.decides]


def documents(name: str) -> dict[str, Any]:
    """The objects of a sample by kind."""
    objects = yaml.safe_load_all((SAMPLES / name).read_text(encoding="utf-8"))
    return {item["kind"]: item for item in objects}


def effective(loaded: LoadedConfiguration) -> dict[str, object]:
    """Every effective value of an experiment file by key."""
    return {key: value.value for key, value in loaded.values.items()}


@needs_primus
def test_the_experiment_is_the_job_of_the_public_recipe() -> None:
    sample, public = (read_file(file, primus_root=PRIMUS_ROOT) for file in (EXPERIMENT, PUBLIC))
    assert effective(sample) == effective(public)
    assert sample.job == public.job


@needs_primus
def test_the_experiment_states_what_the_public_recipe_states_and_no_more() -> None:
    sample, public = (yaml.safe_load(file.read_text(encoding="utf-8")) for file in (EXPERIMENT, PUBLIC))
    assert sample == public


def test_the_experiment_needs_no_primus_checkout() -> None:
    values = effective(read_file(EXPERIMENT))
    overrides = yaml.safe_load(EXPERIMENT.read_text(encoding="utf-8"))["modules"]["pre_trainer"]["overrides"]
    assert {key: values[key] for key in overrides} == overrides


def test_the_recipe_that_ships_is_the_experiment() -> None:
    assert RECIPE.read_text(encoding="utf-8") == EXPERIMENT.read_text(encoding="utf-8"), (
        f"copy it to {RECIPE.name} again"
    )


@pytest.mark.parametrize("name", ["projectionrequest.yaml", "llama3.1-70b-as-written.yaml"])
def test_a_request_holds_the_experiment_word_for_word(name: str) -> None:
    training = documents(name)["ProjectionRequest"]["spec"]["training"]
    assert training["inline"] == EXPERIMENT.read_text(encoding="utf-8"), f"copy {EXPERIMENT.name} into {name} again"


def test_the_config_map_holds_the_experiment_word_for_word() -> None:
    objects = documents("projectionrequest-configmap.yaml")
    reference = objects["ProjectionRequest"]["spec"]["training"]["configMapRef"]
    assert reference["name"] == objects["ConfigMap"]["metadata"]["name"]
    assert objects["ConfigMap"]["data"][reference["key"]] == EXPERIMENT.read_text(encoding="utf-8")


def test_the_requests_ask_about_the_same_cluster_and_differ_in_the_batch() -> None:
    names = ("projectionrequest.yaml", "projectionrequest-configmap.yaml", "llama3.1-70b-as-written.yaml")
    asked, from_map, as_written = (documents(name)["ProjectionRequest"]["spec"] for name in names)
    assert asked["target"] == from_map["target"] == as_written["target"]
    assert asked["batch"] == from_map["batch"] == {"global": 192}
    assert "batch" not in as_written
