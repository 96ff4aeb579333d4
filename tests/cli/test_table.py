"""Every row of the option table works, is named as without effect, or is refused; none is dropped silently."""

from pathlib import Path

import pytest

from docs import cli_reference
from projector.cli.options import OPTIONS, TABLE
from projector.cli.row import CONFIGURED, PROJECTIONS, Fate, Row
from projector.cli.variables import VARIABLES
from tests.cli.lines import SAMPLE, SAMPLES, carried_out, complaint, understood

VALUES = {
    "--config": SAMPLE,
    "--exp": SAMPLE,
    "--format": "primus",
    "--primus-root": str(SAMPLES),
    "--gpu-arch": "mi325x",
    "--scaling": "weak",
    "--sync-free-stage": "2",
    "--pipeline-schedule-algorithm": "zerobubble",
    "--memory-mode": "simulate",
    "--profiling-mode": "simulate",
    "--gemm-backend": "origami",
    "--gpu-file": SAMPLE,
    "--memory-safety-margin": "0.05",
    "--expandable-segments": "false",
    "--output": "json",
    "--width": "100",
    "--color": "never",
    "PRIMUS_ROOT": str(SAMPLES),
    "PRIMUS_GPU_ARCH": "mi325x",
    "PRIMUS_GEMM_BACKEND": "origami",
    "PRIMUS_HW_PROFILE_DIR": str(Path(SAMPLE).parent),
    "PRIMUS_WORKLOAD": "megatron",
    "PRIMUS_OPT_HBM_EFF": "0.5",
    "PRIMUS_MOE_PERMUTE_FIRST_PRINCIPLES": "0",
    "PRIMUS_MOE_EXPERT_OVH_CALIBRATED": "1",
    "PRIMUS_ATTN_CALIBRATED": "1",
    "PRIMUS_ATTN_ELEM_EFF": "0.5",
    "PRIMUS_ATTN_MISC_ETA": "0.5",
    "PRIMUS_ATTN_FP_ETA": "0.5",
    "PRIMUS_ATTN_SWA_FULLBAND": "0",
    "PRIMUS_ATTN_CSA_SCATTER_ETA": "0.5",
    "PRIMUS_V4_INDEXER_TRAINABLE": "1",
    "PRIMUS_USE_V4_TRITON_CSA_ATTENTION": "true",
}
WHAT_RUNS_ANYWAY = {"--memory-mode", "--profiling-mode", "PRIMUS_WORKLOAD"}


def spellings(rows: tuple[Row, ...], fate: Fate) -> list[object]:
    """(row, one of its names, one of its commands) for every row with that fate."""
    return [
        pytest.param(row, name, command, id=f"{command} {name}")
        for row in rows
        if row.fate is fate
        for command in row.commands
        for name in (row.name, *row.aliases)
    ]


def words(row: Row, name: str, command: str) -> list[str]:
    """A command line that uses the option."""
    value = [] if row.value is None else [VALUES.get(name, "7")]
    needed = ["--config", SAMPLE] if command in CONFIGURED and row.name != "--config" else []
    return [command, *needed, name, *value]


def without(row: Row, name: str, command: str) -> list[str]:
    """The same command line without the option."""
    needed = ["--config", "another"] if command in CONFIGURED else []
    return [command, *needed] if row.name == "--config" else words(row, name, command)[: 1 + len(needed)]


@pytest.mark.parametrize(("row", "name", "command"), spellings(OPTIONS, Fate.REFUSED))
def test_refused_option_says_not_available_yet_and_what_works(
    capsys: pytest.CaptureFixture[str], row: Row, name: str, command: str
) -> None:
    line = complaint(carried_out(capsys, *words(row, name, command)))
    assert line == f"{row.name}: not available yet; what works instead: {row.becomes}"


@pytest.mark.parametrize(("row", "name", "command"), spellings(VARIABLES, Fate.REFUSED))
def test_refused_variable_says_not_available_yet_and_what_works(
    capsys: pytest.CaptureFixture[str], row: Row, name: str, command: str
) -> None:
    ended = carried_out(capsys, command, "--config", SAMPLE, environment={name: "1"})
    assert complaint(ended) == f"{name}: not available yet; what works instead: {row.becomes}"


@pytest.mark.parametrize(("row", "name", "command"), spellings(OPTIONS, Fate.WORKS))
def test_working_option_changes_what_is_understood(row: Row, name: str, command: str) -> None:
    changed = understood(*words(row, name, command)) != understood(*without(row, name, command))
    assert changed != (name in WHAT_RUNS_ANYWAY), row.becomes
    assert ("is what runs" in row.becomes) == (name in WHAT_RUNS_ANYWAY)


@pytest.mark.parametrize(("row", "name", "command"), spellings(VARIABLES, Fate.WORKS))
def test_working_variable_changes_what_is_understood_or_serves_files(row: Row, name: str, command: str) -> None:
    line = (command, *(("--config", SAMPLE) if command in CONFIGURED else ()))
    changed = understood(*line, **{name: VALUES.get(name, "7")}) != understood(*line)
    assert changed != (row.in_files or name in WHAT_RUNS_ANYWAY)


@pytest.mark.parametrize(("row", "name", "command"), spellings(OPTIONS, Fate.NO_EFFECT))
def test_option_without_effect_is_named_with_the_reason(row: Row, name: str, command: str) -> None:
    assert understood(*words(row, name, command)).without_effect == (f"{name} (option: {row.becomes})",)


@pytest.mark.parametrize(("row", "name", "command"), spellings(VARIABLES, Fate.NO_EFFECT))
def test_variable_without_effect_is_named_with_the_reason(row: Row, name: str, command: str) -> None:
    said = understood(command, "--config", SAMPLE, **{name: "1"})
    assert said.without_effect == (f"{name} (environment: {row.becomes})",)


def test_variable_of_another_projection_is_named() -> None:
    said = understood("memory", "--config", SAMPLE, PRIMUS_OPT_HBM_EFF="0.5")
    assert said.without_effect == ("PRIMUS_OPT_HBM_EFF (environment: concerns performance, both and schedule)",)


@pytest.mark.parametrize("row", [row for row in VARIABLES if row.behind], ids=lambda row: row.name)
def test_an_option_speaks_louder_than_its_variable(row: Row) -> None:
    for option in row.behind:
        owner = next(each for each in OPTIONS if each.name == option)
        line = words(owner, option, row.commands[0])
        assert understood(*line, **{row.name: "nonsense"}) == understood(*line)


@pytest.mark.parametrize("row", VARIABLES, ids=lambda row: row.name)
def test_an_empty_variable_counts_as_not_set(row: Row) -> None:
    assert understood("both", "--config", SAMPLE, **{row.name: ""}) == understood("both", "--config", SAMPLE)


def test_every_option_and_variable_of_primus_has_a_row() -> None:
    names = [name for row in TABLE for name in (row.name, *row.aliases)]
    primus = (Path(__file__).parent / "primus_names.txt").read_text(encoding="utf-8").split()
    assert len(names) == len(set(names))
    assert set(primus) <= set(names)


def test_our_own_options_and_variables_are_these() -> None:
    primus = (Path(__file__).parent / "primus_names.txt").read_text(encoding="utf-8").split()
    assert {row.name for row in TABLE} - set(primus) == {
        "--calibration",
        "--check",
        "--color",
        "--debug",
        "--expandable-segments",
        "--devices-per-node",
        "--format",
        "--gpu-file",
        "--gemm-plugins",
        "--host-factor",
        "--packed-length",
        "--output",
        "--primus-root",
        "--routing-imbalance",
        "--scaling",
        "--scaling-nodes",
        "--trace",
        "--width",
        "--with",
        "PRIMUS_ROOT",
    }


def test_only_working_rows_have_an_effect() -> None:
    for row in TABLE:
        assert (row.effect is not None) == (row.fate is Fate.WORKS and not row.in_files), row.name
        assert row.becomes, row.name
        assert set(row.commands) & set(PROJECTIONS), row.name


def test_reference_page_is_written_from_the_table() -> None:
    page = cli_reference.PAGE.read_text(encoding="utf-8")
    assert page == cli_reference.render(), "run python -m docs.cli_reference"
