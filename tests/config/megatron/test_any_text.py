"""Whatever somebody hands in: a job, or one line that says what is wrong."""

from hypothesis import given, settings
from hypothesis import strategies as st

from projector.config.megatron.flags import flags
from projector.errors import InputError
from tests.config.megatron.builders import ARGUMENTS, BASE, load
from tests.config.megatron.test_mapping import FUNCTIONAL, PLAIN

NAMES = st.sampled_from([f"--{name}" for name in flags()] + [f"--{name}" for name in ARGUMENTS])
VALUES = st.sampled_from(
    [
        "1",
        "8",
        "-1",
        "0",
        "",
        "''",
        "true",
        "null",
        "[0,1]",
        "([0]*3+[1]*5)",
        "${X}",
        "$@",
        "x",
        "1e9",
        "fp8",
        "9" * 30,
        "|",
    ]
)
WORDS = st.lists(NAMES | VALUES | st.text(max_size=6), max_size=12)
LINES = st.lists(st.tuples(NAMES | st.text(max_size=6), VALUES), max_size=8)


def complaint(text: str) -> str:
    """What is wrong with a text, empty when it gives a job; anything but an `InputError` fails the test."""
    try:
        load(text)
    except InputError as error:
        return str(error)
    return ""


def readable(*texts: str) -> bool:
    return not any("\n" in complaint(text) for text in texts)


@settings(deadline=None)
@given(WORDS)
def test_words_give_a_job_or_a_line(words: list[str]) -> None:
    assert readable(f"{BASE} {' '.join(words)}")
    assert readable(f"#!/bin/bash\ntorchrun --nnodes {' '.join(words)} pretrain_gpt.py {BASE} {' '.join(words)}\n")


@settings(deadline=None)
@given(LINES)
def test_lines_give_a_job_or_a_line(lines: list[tuple[str, str]]) -> None:
    assert readable(FUNCTIONAL + "".join(f"  {key}: {value}\n" for key, value in lines))
    assert readable(PLAIN + "".join(f"{key.lstrip('-').replace('-', '_')}: {value}\n" for key, value in lines))


@settings(deadline=None)
@given(st.integers(0, len(FUNCTIONAL)), st.text(max_size=5), st.integers(0, 20))
def test_a_damaged_file_gives_a_job_or_a_line(place: int, inserted: str, removed: int) -> None:
    assert readable(*(whole[:place] + inserted + whole[place + removed :] for whole in (FUNCTIONAL, PLAIN, BASE)))
