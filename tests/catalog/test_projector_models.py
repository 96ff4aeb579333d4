"""`projector models` says of every name whether it is modelled, partly modelled or refused, from the engine itself."""

import re

import pytest

from projector import catalog
from projector.job import Batch, Parallelism, TrainingJob
from projector.memory import unmodelled_layers
from projector.report.catalog import models_document, models_report
from tests.catalog.counting import counts

DOCUMENT = models_document()
BY_NAME = {model["name"]: model for model in DOCUMENT["models"]}


def test_every_file_is_told_once_in_order() -> None:
    names = [*(model.name for model in catalog.models()), *(model.name for model in catalog.refused_models())]
    assert [model["name"] for model in DOCUMENT["models"]] == sorted(names)
    assert len(names) > 200


@pytest.mark.parametrize("model", catalog.models(), ids=lambda model: model.name)
def test_partly_is_what_the_engine_would_not_model_of_a_job(model: catalog.CatalogModel) -> None:
    job = TrainingJob(
        model=model.architecture,
        parallelism=Parallelism(),
        batch=Batch(micro=1, global_=1, sequence_length=4096),
    )
    told = BY_NAME[model.name]
    entries = unmodelled_layers(job)
    assert told["standing"] == ("partly" if entries else "modelled")
    assert len(told["not_modelled"]) == len(entries)
    assert all(text.startswith(entry.what) for text, entry in zip(told["not_modelled"], entries, strict=True))


@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("qwen3-next-80b-a3b", ["gated delta net (GDN) in 36 of 48 layers"]),
        ("nemotron-3-nano-30b-a3b", ["Mamba-2 in 23 of 52 layers"]),
        ("glm-5", ["indexer and sparse attention of GLM-5 (DSA)"]),
        ("gpt-oss-120b", []),
        ("llama4-17b16e", []),
    ],
)
def test_what_is_missing_is_named_with_its_share_of_the_layers(name: str, without: list[str]) -> None:
    assert BY_NAME[name]["not_modelled"] == without


def test_a_whole_model_has_its_count_of_parameters_and_a_refused_one_has_none() -> None:
    assert BY_NAME["mixtral-8x7b-v0.1"]["parameters"] == counts(catalog.model("mixtral-8x7b").architecture).total
    flux = BY_NAME["flux-12b"]
    assert flux["standing"] == "refused"
    assert "diffusion" in flux["refused"]
    assert flux["parameters"] is None
    assert flux.keys() == BY_NAME["llama2-7b"].keys()


@pytest.mark.parametrize(
    ("name", "status", "mark"),
    [("mistral-nemo-12b", "verified", ""), ("yi-34b", "total", " #"), ("zebra-llama-1b", "unverified", " ~")],
)
def test_a_mark_tells_what_vouches_for_the_facts(name: str, status: str, mark: str) -> None:
    assert BY_NAME[name]["status"] == status
    assert re.search(rf"^{re.escape(name + mark)} {{2,}}\w", models_report(DOCUMENT), re.MULTILINE)


def test_the_text_has_a_line_a_model_and_the_reasons_below() -> None:
    text = models_report(DOCUMENT)
    table, *_ = text.split("\n\n")
    rows = [line.split() for line in table.splitlines()[1:]]
    assert {row[0] for row in rows} >= BY_NAME.keys()
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(r"\nlfm2-8b-a1b: LFM2 short convolution in 18 of 24 layers\n", text)
    assert "\nhstu: is a generative recommendation model" in text
