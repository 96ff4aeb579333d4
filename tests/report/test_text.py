import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projector.projection import Projection, Verdict
from projector.report import show
from projector.report.text import report
from projector.report.units import adding_up, duration, gib, ranges
from tests.report.builders import a_memory, a_projection, a_stage, without_halves


def lines_of(text: str, after: str) -> list[str]:
    """Lines behind the one that starts with `after`, up to the next empty line."""
    lines = text.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith(after))
    block = lines[start + 1 :]
    return block[: block.index("")] if "" in block else block


def numbers_of(line: str) -> list[float]:
    """The cells of a line that are numbers, without those that belong to a word."""
    return [float(cell.replace(",", "")) for cell in re.findall(r"(?<=\s)-?[\d,]+\.\d+(?=\s|$)", line)]


@pytest.mark.parametrize(
    ("verdict", "word"),
    [
        (Verdict.FITS, "FITS"),
        (Verdict.AT_RISK, "AT RISK"),
        (Verdict.DOES_NOT_FIT, "DOES NOT FIT"),
        (Verdict.UNKNOWN, "UNKNOWN"),
    ],
)
def test_verdict_comes_first_with_margin_and_usable_capacity(verdict: Verdict, word: str) -> None:
    first = report(a_projection(verdict=verdict)).splitlines()
    assert first[0] == "llama3.1-70b on 64 x MI300X (8 nodes x 8)"
    assert first[2].startswith(f"memory    {word}: 126.67 GiB of 191.98 GiB usable per GPU, 65.31 GiB spare")


def test_too_much_memory_is_told_as_an_excess() -> None:
    memory = replace(a_memory(), stages=(a_stage(activations_gib=160.0),), verdict=Verdict.DOES_NOT_FIT)
    text = report(replace(a_projection(), memory=memory))
    assert "DOES NOT FIT: 226.67 GiB of 191.98 GiB usable per GPU, 34.69 GiB too" in text


def test_worst_stage_is_named_with_the_cause_of_its_peak() -> None:
    stages = (a_stage(0, activations_gib=50.0), a_stage(1, activations_gib=70.0))
    text = report(replace(a_projection(stages=2), memory=replace(a_memory(), stages=stages)))
    assert "stage 1 of 2 needs most; its peak: backward of the last layer, with" in text
    assert any(line.startswith("1 * ") for line in text.splitlines())


@pytest.mark.parametrize("stages", [1, 2, 4, 5, 16])
def test_printed_components_add_up_to_the_printed_levels(stages: int) -> None:
    memory = a_memory(stages=stages)
    block = lines_of(report(a_projection(stages=stages)), "component" if stages > 1 else "-------------------")
    running = [0.0] * len(numbers_of(block[-1]))
    for line in block:
        figures = numbers_of(line)
        if line.startswith("="):
            assert figures == pytest.approx(running, abs=1e-9), line
        else:
            running = [total + figure for total, figure in zip(running, figures, strict=True)]
    assert running[0] == pytest.approx(memory.stages[0].device_bytes / 2**30, abs=0.005)


def test_many_stages_show_the_first_the_worst_and_the_last_side_by_side() -> None:
    stages = tuple(a_stage(rank, activations_gib=90.0 if rank == 5 else 50.0) for rank in range(16))
    text = report(replace(a_projection(stages=16), memory=replace(a_memory(), stages=stages)))
    header = next(line for line in text.splitlines() if line.startswith("component") and "stage" in line)
    assert header.split()[1:] == ["stage", "0", "stage", "5", "stage", "15"]
    assert [line.split("  ")[0] for line in lines_of(text, "stage  ")[:3]] == ["0-4", "5 *", "6-15"]


def test_printed_waterfall_adds_up_to_the_iteration() -> None:
    block = lines_of(report(a_projection()), "----------------------")
    steps = [numbers_of(line) for line in block]
    assert sum(row[0] for row in steps[:-1]) == pytest.approx(steps[-1][0])
    assert sum(row[1] for row in steps[:-1]) == pytest.approx(100.0)


def test_waterfall_bars_start_where_the_one_before_ends() -> None:
    block = lines_of(report(a_projection()), "----------------------")[:-1]
    starts = [line.index("#") for line in block]
    ends = [line.rindex("#") for line in block]
    assert all(begin <= end + 1 for begin, end in zip(starts[1:], ends, strict=False))
    assert starts == sorted(starts)


@pytest.mark.parametrize("stages", [1, 3, 16])
def test_report_stays_within_80_columns_of_plain_text(stages: int) -> None:
    for text in (report(a_projection(stages=stages)), show.report(a_projection(stages=stages))):
        assert max(map(len, text.splitlines())) <= 80
        assert text.isascii()
        assert "\x1b" not in text
        assert text.endswith("\n")


def test_unmodelled_assumed_and_ignored_are_named() -> None:
    text = report(a_projection())
    said = "- lora_rank (lora_rank: 16): frozen weights are counted; without it nothing is said to fit"
    assert said in " ".join(text.split())
    assert "- device MI300X: nothing names a GPU; --gpu-arch states one" in text
    assert "lr, save" in text


def test_warnings_come_before_what_the_answer_rests_on() -> None:
    text = report(a_projection())
    assert "Warnings\n--------\n- few micro batches for the stages\n" in text
    assert text.index("Warnings\n") < text.index("Not modelled\n")


def test_sections_without_content_are_left_out() -> None:
    text = report(without_halves(a_projection()))
    for title in ("Warnings", "Memory per GPU", "Time per iteration", "Assumed", "Not modelled", "Without influence"):
        assert title not in text


def test_component_tree_shows_parents_once_and_the_exact_total() -> None:
    block = lines_of(report(a_projection()), "component ")
    assert [line.split()[0] for line in block[:5]] == [
        "embedding",
        "dense_layer",
        "self_attention",
        "mlp",
        "output_layer",
    ]
    assert block[5].split() == ["=", "model", "7,000"]


def test_show_groups_every_value_by_source_and_file_with_the_strongest_first() -> None:
    text = show.report(a_projection())
    assert lines_of(text, "--------------------------") == [
        "override",
        "  moe_layer_freq = [0, 1]",
        "experiment file: job.yaml",
        "  lr = 1e-05",
        "module preset: modules/pre_trainer.yaml",
        "  save = null",
    ]


def test_control_characters_of_names_do_not_reach_the_terminal() -> None:
    hostile: Projection = replace(a_projection(), model="model\x1b]0;owned\x07\r", ignored=("a\x1b[2Jb",))
    for text in (report(hostile), show.report(hostile)):
        assert not any(mark < " " and mark != "\n" for mark in text)


@given(st.lists(st.integers(0, 1 << 44), max_size=30))
def test_rounded_parts_add_up_to_the_rounded_sum(parts: list[int]) -> None:
    printed = adding_up(parts, 1 << 30)
    assert round(sum(printed), 2) == pytest.approx(round(sum(parts) / (1 << 30), 2), abs=1e-6)
    assert all(abs(shown - part / (1 << 30)) <= 0.0100001 for shown, part in zip(printed, parts, strict=True))


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((), "none"), ((3,), "3"), ((0, 1, 2), "0-2"), ((0, 1, 5, 7, 8), "0-1, 5, 7-8")],
)
def test_ranges_join_consecutive_numbers(numbers: tuple[int, ...], text: str) -> None:
    assert ranges(numbers) == text


def test_gib_is_a_power_of_two_and_durations_choose_their_unit() -> None:
    assert gib(191.98 * 2**30) == "191.98 GiB"
    assert duration(0.0123) == "12.3 ms"
    assert duration(9.9994) == "9,999.4 ms"
    assert duration(12.3) == "12.30 s"
