"""What a Primus module switches on that is not modelled, and what it must state."""

from typing import Any

import pytest

from projector.config.megatron.facts import megatron_facts
from projector.config.switches import Switch
from projector.errors import InputError
from tests.config.builders import MOE, experiment_text, flat_text, load


@pytest.mark.parametrize("fact", megatron_facts().unmodelled, ids=lambda fact: fact.key)
def test_a_key_that_is_not_modelled_is_silent_only_at_its_neutral_values(fact: Switch) -> None:
    def notes(value: object) -> list[str]:
        tree: Any = value
        for part in reversed(fact.key.split(".")):
            tree = {part: tree}
        return [note.what for note in load(flat_text(**tree)).unmodelled if fact.what in note.what]

    for neutral in (*fact.neutral, None):
        assert notes(neutral) == []
    other: object = "custom" if fact.key == "fp8_recipe" else 7
    assert len(notes(other)) == 1


TOO_LARGE: dict[str, tuple[dict[str, object], str]] = {
    "layers": ({"num_layers": 10_000_000}, "num_layers: 10000000 is a number; expected an integer of at most 4096"),
    "prediction layers": ({"mtp_num_layers": 10**6}, "mtp_num_layers: .* at most 4096"),
    "sizes": ({"hidden_size": 10**15}, "hidden_size: .* at most 1000000000000"),
    "experts of a token": ({**MOE, "moe_router_topk": 9}, "moe_router_topk: 9 is a number; .* at most 8"),
}


@pytest.mark.parametrize(("values", "complaint"), TOO_LARGE.values(), ids=TOO_LARGE.keys())
def test_a_size_beyond_reason_is_refused_with_its_limit(values: dict[str, object], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        load(flat_text(**values))


@pytest.mark.parametrize("key", ["model", "config", "extends"])
def test_a_mapping_where_a_name_belongs_is_named_in_plain_words(key: str) -> None:
    text = experiment_text({"config": "pre_trainer", "model": "llama3.1_8B", key: {"a": "b"}})
    if key == "extends":
        text = experiment_text({}, extends={"a": "b"})
    with pytest.raises(InputError, match=f"{key}: a mapping is not a"):
        load(text)


MISSING = ["num_layers", "hidden_size", "num_attention_heads", "micro_batch_size", "global_batch_size", "seq_length"]


@pytest.mark.parametrize("key", MISSING)
def test_a_size_that_nothing_states_is_asked_for(key: str) -> None:
    with pytest.raises(InputError, match=f"{key}: is missing"):
        load(flat_text(**{key: None}))
