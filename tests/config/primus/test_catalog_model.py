"""A model of the catalog that Primus has no preset for is stated whole in Megatron-LM's arguments, or refused."""

import pytest

from projector.config.primus.catalog_model import preset_values
from projector.errors import NotAvailable


@pytest.mark.parametrize("name", ["qwen2.5-0.5b", "phi-4", "opt-13b", "glm-4.5-air", "mistral-7b-v0.3"])
def test_a_model_that_arguments_can_state_needs_no_preset(name: str) -> None:
    assert preset_values(name, place="model")["num_layers"] > 1


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("nemotron-nano-9b-v2", id="Mamba layers between the others"),
        pytest.param("qwen3-next-80b-a3b", id="gated delta net"),
        pytest.param("mistral-7b", id="sliding window"),
        pytest.param("gemma2-9b", id="norms behind the blocks"),
        pytest.param("olmo2-7b", id="norms of all heads together"),
        pytest.param("deepseek-v3.2", id="indexer"),
        pytest.param("qwen3-vl-8b", id="vision tower"),
    ],
)
def test_a_model_that_arguments_cannot_state_is_refused(name: str) -> None:
    with pytest.raises(NotAvailable, match=f"model: Primus has no preset of '{name}', and .* cannot state its layers"):
        preset_values(name, place="model")
