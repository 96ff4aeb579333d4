"""Which reader a configuration comes to."""

import re

import pytest

from projector.config import FORMATS, overrides_from_pairs, read
from projector.errors import ConfigurationError
from tests.config.builders import llama_text


@pytest.mark.parametrize("format_", [name for name in FORMATS if name != "primus"])
def test_a_format_that_does_not_do_is_told_what_the_content_looks_like(format_: str) -> None:
    with pytest.raises(ConfigurationError, match=f"the content looks like primus, not {format_}"):
        read(llama_text(), name="exp.yaml", format=format_)


def test_a_format_that_nobody_knows_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match=re.escape("format: 'megatrn' is not a format; did you mean megatron")):
        read(llama_text(), name="exp.yaml", format="megatrn")


def test_a_file_beside_a_format_that_takes_none_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"ds\.json: .*primus.*huggingface"):
        read(llama_text(), name="exp.yaml", companions={"ds.json": "{}"})


TOML = "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nlocal_batch_size = 1\nseq_len = 128\n"


def test_two_names_of_one_key_may_not_contradict_one_another() -> None:
    names = ("tensor_model_parallel_size", "parallelism.tensor_parallel_degree")
    for first, second in (names, names[::-1]):
        with pytest.raises(ConfigurationError, match=f"{first} says 4, {second} says 2; say one of the two"):
            read(TOML, name="run.toml", overrides=overrides_from_pairs([(first, "4"), (second, "2")]))
        same = overrides_from_pairs([(first, "4"), (second, "4")])
        assert read(TOML, name="run.toml", overrides=same).job.parallelism.tensor == 4
    later = overrides_from_pairs([(names[0], "4"), (names[0], "2")])
    assert read(TOML, name="run.toml", overrides=later).job.parallelism.tensor == 2
