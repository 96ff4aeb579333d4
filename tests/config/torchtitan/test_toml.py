"""TOML from people nobody knows: values, limits, one clear line for what is wrong."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projector.config import LoadedConfiguration, detect, read
from projector.config.torchtitan.toml import parse_toml
from projector.errors import ConfigurationError, ConfigurationTooLarge, InputError
from tests.config.torchtitan.files import KIMI_K2_OF_A_FORK, LLAMA_405B_2025

LONGEST_SECONDS = 1.0
"""Processor time that no file may exceed (docs/fuzzing.md)."""
HEAD = "[model]\nname = 'llama3'\nflavor = '8B'\n"
WRONG = {
    "no TOML": ("[model]\nname = llama3", ConfigurationError, r"run: not TOML: .*line 2"),
    "a key twice": ("[a]\nb = 1\nb = 2", ConfigurationError, r"run: not TOML: .*"),
    "not UTF-8": (b"[a]\nb = '\xff'", ConfigurationError, r"run: not UTF-8 text at byte \d+"),
    "too long": ("[a]\n" + "# " + "x" * 300_000, ConfigurationTooLarge, r"run: more than 256 KiB of TOML"),
    "deep lists": ("[a]\nb = " + "[" * 5000 + "]" * 5000, ConfigurationTooLarge, r"run: "),
    "deep keys": ("[a]\n" + "b." * 5000 + "c = 1", ConfigurationTooLarge, r"run:2: a key of more than 32 parts"),
    "deep tables": ("[" + "b." * 5000 + "c]\nd = 1", ConfigurationTooLarge, r"run:1: a key of more than 32 parts"),
    "an endless number": ("[a]\nb = " + "9" * 10_000, ConfigurationTooLarge, r"run: "),
}


@pytest.mark.parametrize(("text", "kind", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_one_line_in_little_time(
    text: str | bytes, kind: type[ConfigurationError], message: str
) -> None:
    start = time.process_time()
    with pytest.raises(kind, match=message) as caught:
        parse_toml(text, name="run")
    assert time.process_time() - start < LONGEST_SECONDS
    assert "\n" not in str(caught.value)


def test_dates_are_text_and_tables_nest() -> None:
    content = parse_toml("[a.b]\nc = 1979-05-27\nd = [1, 2.5, true, 'x']\n[[e]]\nf = 1\n", name="run")
    assert content == {"a": {"b": {"c": "1979-05-27", "d": [1, 2.5, True, "x"]}}, "e": [{"f": 1}]}


@pytest.mark.parametrize("section", ["[[training]]\nseq_len = 1", "[job]\n[parallelism]\n[quantize]\nlinear = 3"])
def test_a_section_that_is_one_value_is_one_clear_line(section: str) -> None:
    with pytest.raises(InputError, match=r"^run: (training: .* stands where a section is|quantize.linear)") as caught:
        read(f"{HEAD}{section}\n", name="run")
    assert "\n" not in str(caught.value)


def attempt(text: str) -> LoadedConfiguration | InputError:
    """What reading gives, an error of the kind that people can mend included."""
    try:
        return read(text, name="run", format="torchtitan")
    except InputError as error:
        return error


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "training.local_batch_size",
                "training.seq_len",
                "training.dtype",
                "parallelism.tensor_parallel_degree",
                "parallelism.pipeline_parallel_degree",
                "parallelism.pipeline_parallel_schedule",
                "parallelism.module_fqns_per_model_part",
                "parallelism.pipeline_parallel_split_points",
                "activation_checkpoint.selective_ac_option",
                "model.converters",
                "model.n_layers",
                "optimizer.name",
                "compile.enable",
            ]
        ),
        st.one_of(
            st.integers(-3, 10**13).map(str),
            st.booleans().map(lambda value: str(value).lower()),
            st.sampled_from(["'op'", "'1F1B'", "'layers.1'", "[]", "['layers.2']", "[['layers.0']]", "{a = 1}", "1.5"]),
        ),
        max_size=5,
    )
)
def test_any_values_give_a_job_or_one_clear_line(values: dict[str, str]) -> None:
    sections: dict[str, list[str]] = {"model": []}
    for key, value in values.items():
        section, _, name = key.partition(".")
        sections.setdefault(section, []).append(f"{name} = {value}")
    text = HEAD + "\n".join(
        [*sections.pop("model"), *(f"[{name}]\n" + "\n".join(body) for name, body in sections.items())]
    )
    outcome = attempt(text)
    if isinstance(outcome, InputError):
        assert "\n" not in str(outcome)
    else:
        assert outcome.job.batch.micro >= 1
        assert {*outcome.ignored} <= set(outcome.values)


@given(st.integers(0, len(KIMI_K2_OF_A_FORK)), st.text(max_size=3), st.integers(0, 20))
def test_a_mutated_file_is_read_or_refused_with_one_line(at: int, inserted: str, cut: int) -> None:
    text = KIMI_K2_OF_A_FORK[:at] + inserted + KIMI_K2_OF_A_FORK[at + cut :]
    outcome = attempt(text)
    assert isinstance(outcome, LoadedConfiguration) or "\n" not in str(outcome)


def test_a_file_is_recognised_with_windows_line_ends() -> None:
    text = LLAMA_405B_2025.replace("\n", "\r\n")
    assert detect(text, name="run") == "torchtitan"
    assert read(text, name="run").job == read(LLAMA_405B_2025, name="run").job


def test_every_value_names_its_file() -> None:
    values = read(LLAMA_405B_2025, name="llama3_405b.toml").values
    assert {value.file for value in values.values()} == {"llama3_405b.toml"}
    assert values["parallelism.tensor_parallel_degree"].value == 8


@pytest.mark.parametrize(
    "line", ["[experimental]\ncustom_import = 'my.module'", "[training]\ngradient_accumulation_steps = 8"]
)
def test_code_and_sections_of_ones_own_decide(line: str) -> None:
    assert any(note.decides for note in read(f"{HEAD}{line}\n", name="run.toml").unmodelled)
