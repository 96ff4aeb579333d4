"""The page of recipes is current where a checkout of Primus is at hand; `python -m docs PRIMUS_CHECKOUT` renews it."""

from docs import recipes_page
from tests.config.primus_tree import ROOT, needs_tree


@needs_tree
def test_the_page_of_recipes_tells_what_becomes_of_each_today() -> None:
    assert recipes_page.PAGE.read_text(encoding="utf-8") == recipes_page.render(ROOT)


@needs_tree
def test_every_recipe_of_a_language_model_reads() -> None:
    refused = {
        row.split("`")[1] for row in recipes_page.PAGE.read_text(encoding="utf-8").splitlines() if "| refused |" in row
    }
    others = {
        "megatron/configs/MI355X/lfm2_8B_A1B-FP8-te-precision.yaml",  # formats of Transformer Engine, no experiment
        "megatron/configs/MI355X/native_hf_to_megatron_sft.template.yaml",  # a form that names no model
    }
    assert {recipe for recipe in refused if "/diffusion/" not in recipe} == others


def test_the_page_explains_every_answer_that_it_gives() -> None:
    text = recipes_page.PAGE.read_text(encoding="utf-8")
    given = {row.split(" | ")[4] for row in text.splitlines() if row.startswith("| `")}
    assert {"verdict", "reads", "refused"} <= given
    assert all(f"- **{answer}**:" in text for answer in given)
