"""What is said of keys that nothing reads."""

import time

from projector.config.keys import Keys
from projector.config.notes import Notes
from projector.config.switches import left_over
from projector.provenance import ConfigValue, Source


def keys(*names: str) -> Keys:
    values = {name: ConfigValue(key=name, value=8, source=Source.EXPERIMENT, file="run.yaml") for name in names}
    return Keys(values, file="run.yaml")


def decides(stated: Keys, **others: str) -> dict[str, bool]:
    notes = Notes()
    left_over(stated, notes, known={"logging"}, file="run.yaml", spellings=others)
    return {note.what: note.decides for note in notes.unmodelled}


def test_a_key_that_is_nearly_one_which_is_read_decides() -> None:
    stated = keys("parallelism.tensor_parallel_degre", "parallelism.something_else", "loging")
    stated.integer("parallelism.tensor_parallel_degree")
    assert decides(stated) == {
        "parallelism.tensor_parallel_degre": True,
        "parallelism.something_else": False,
        "loging": False,
    }


def test_a_key_that_is_stated_as_well_was_not_meant() -> None:
    stated = keys("hidden_size", "hidden_sizes")
    stated.integer("hidden_size")
    assert decides(stated) == {"hidden_sizes": False}


def test_other_names_of_a_key_count_as_it_does() -> None:
    stated = keys("no_rope_fussion")
    stated.boolean("apply_rope_fusion")
    assert decides(stated) == {"no_rope_fussion": False}
    assert decides(stated, no_rope_fusion="apply_rope_fusion") == {"no_rope_fussion": True}


def test_a_misspelt_key_is_named_before_all_others() -> None:
    stated = keys(*(f"unknown_{index}" for index in range(100)), "hiden_size")
    stated.integer("hidden_size")
    assert decides(stated)["hiden_size"]


def test_many_unknown_keys_take_little_time() -> None:
    stated = keys(*(f"{'key_of_length_' * 6}{index}" for index in range(5000)))
    for index in range(300):
        stated.integer(f"{'key_of_width_' * 6}{index}")
    began = time.process_time()
    decides(stated)
    assert time.process_time() - began < 5
