"""Which reader a configuration comes to."""

import re

import pytest

from projector.config import FORMATS, read
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
