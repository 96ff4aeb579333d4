"""A script is read and never run, whatever it says, and reading it stays small."""

import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projector.config.shell import read_script
from projector.config.shell.limits import MAXIMUM_SCRIPT_CHARACTERS
from projector.errors import ConfigurationError, ConfigurationTooLarge, InputError

MAXIMUM_SECONDS = 1.0
MAXIMUM_BYTES = 200 * 10**6

_TOKENS = [
    *(
        "$(",
        "${",
        "`",
        '"',
        "'",
        ")",
        "}",
        "((",
        "))",
        "[[",
        "]]",
        "[",
        "]",
        "$[",
        "<(",
        "{",
        "(",
        "\\",
        "#",
        "##",
        "%%",
    ),
    *("if ", "then ", "else ", "fi\n", "for ", "in ", "do ", "done\n", "while ", "case ", "esac ", ";;", "f() {", "f "),
    *("<<E\n", "E\n", "<<< ", "&&", "||", "|", "&", ";", "\n", " ", "$A", "A=", "A+=(", '"${A[@]}"', "$((", "A[", "1"),
    *(
        "**",
        "*",
        "?",
        "/",
        "eval ",
        "bash -c ",
        "local ",
        "export ",
        "${A:-",
        "${A//",
        "$@",
        "shift ",
        "read A ",
        "set -- ",
    ),
    *(
        "return ",
        "break ",
        "exit ",
        "trap ",
        "\ufffc",
        "é",
        "\0",
        "test ",
        "! ",
        "=~ ",
        "-eq ",
        "-a ",
        "let A=",
        "unset A ",
    ),
]


def attempt(text: str, variables: Mapping[str, str] | None = None) -> None:
    """Read a text that may be anything."""
    with suppress(InputError):
        read_script(text, name="run.sh", variables=variables or {})


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    attempt(text)


@given(st.lists(st.sampled_from(_TOKENS), max_size=60).map("".join), st.text(max_size=20))
@settings(max_examples=400, deadline=None)
def test_any_sequence_of_shell_words_is_read_or_refused(text: str, value: str) -> None:
    attempt(text, {"A": value})


@given(st.lists(st.sampled_from(_TOKENS), min_size=1, max_size=3).map("".join), st.integers(1, 3000))
@settings(max_examples=100, deadline=None)
def test_any_repetition_is_read_or_refused_in_time(text: str, count: int) -> None:
    begin = time.process_time()
    attempt(text * count)
    assert time.process_time() - begin < MAXIMUM_SECONDS


LARGE = {
    "doubling": "A=xxxxxxxxxxxxxxxx\n" + "A=$A$A\n" * 60,
    "doubling array": "A=(x x)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 60,
    "doubling replacement": "A=aaaaaaaa\n" + "A=${A//a/aa}\n" * 60,
    "nested loops": "for a in 1 2 3 4 5 6 7 8 9; do\n" * 9 + "x\n" + "done\n" * 9,
    "functions that call twice": "".join(f"f{i}() {{ f{i + 1}; f{i + 1}; }}\n" for i in range(30)) + "f0",
    "patterns": "A=" + "a" * 20_000 + '\nshow "${A//*a*b/x}" "${A##*a*a*a*b}"\n',
    "many words": "show " + "a " * 100_000,
    "many commands": "a\n" * 100_000,
    "many undecided branches": "if a; then A=1; else A=2; fi\n" * 5_000,
    "many arrays of one": "A=()\n" + "A+=(x)\n" * 20_000,
    "evals in evals": "eval " * 40_000,
    "brackets": "A=" + "[" * 100_000 + "\nshow ${A#" + "[" * 50_000 + "}",
    "unclosed expressions": "$((" * 30_000,
    "open parentheses": "(" * 100_000,
    "open braces": "${A:-" * 30_000,
    "open quotes": '"$(' * 30_000,
    "here-documents": "cat <<A <<B <<C\n" * 10_000,
    "powers": "A=$((7**7**7**7))\n" + "A=$((A**A))\n" * 1000,
    "long numbers": "show $((" + "9" * 100_000 + "))",
    "names that hold names": "".join(f"A{i}=A{i + 1}+A{i + 1}\n" for i in range(200)) + "show $((A0))",
    "tests in tests": "[ " + "! " * 50_000 + "x ]",
    "conditions": "[[ " + "x && " * 30_000 + "x ]]",
    "else ifs": "if a; then b\n" + "elif a; then b\n" * 5_000 + "fi",
    "defaults of arrays": "A=("
    + "x " * 5_000
    + ")\n"
    + 'for i in 1 2 3 4 5 6 7 8 9; do show "${A[@]/x/yyyyyyyyyy}"; done\n' * 9,
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE.keys())
def test_work_stays_bounded(text: str) -> None:
    assert len(text) <= MAXIMUM_SCRIPT_CHARACTERS
    begin = time.process_time()
    attempt(text)
    # Other work on the machine may slow this down; what grows without bound is slower by far.
    assert time.process_time() - begin < 3 * MAXIMUM_SECONDS


def test_memory_stays_bounded() -> None:
    program = (
        "from tests.config.shell.test_safety import LARGE, attempt\n"
        "from tests.peak import STATUS, peak_bytes\n"
        "for text in LARGE.values(): attempt(text)\n"
        "print(peak_bytes(STATUS.open()))"
    )
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(child.stdout) < MAXIMUM_BYTES


def test_a_script_that_is_too_long_is_refused() -> None:
    with pytest.raises(ConfigurationTooLarge, match=r"run\.sh: a script of more than"):
        read_script("#" * (MAXIMUM_SCRIPT_CHARACTERS + 1), name="run.sh", variables={})


def test_a_short_text_cannot_make_a_variable_from_outside_large() -> None:
    with pytest.raises(ConfigurationTooLarge, match="expands to too much"):
        read_script("show " + "$A " * 1000, name="run.sh", variables={"A": "x" * 10_000})


BAD_SYNTAX = {
    "single quote": ("\nA='x\ny", "run.sh:2: a single quote is not closed"),
    "double quote": ('A=1\n\nB="x\n', "run.sh:3: a double quote is not closed"),
    "backquote": ("A=`x", "run.sh:1: a backquote is not closed"),
    "substitution": ("A=1\nshow $(x", "run.sh:2: a parenthesis is not closed; expected )"),
    "brace": ("show ${A/", "run.sh:1: a brace is not closed; expected }"),
    "array": ("A=(\n--x 1\n", "run.sh:1: an array is not closed; expected )"),
    "arithmetic": ("A=$((1", "run.sh:1: an arithmetic expression is not closed; expected ))"),
    "if": ("x\nif true; then\n y\n", "run.sh:2: an if is not closed; expected fi"),
    "loop": ("for a in b; do\n c", "run.sh:1: a loop is not closed; expected done"),
    "case": ("case a in\n b) c;;", "run.sh:1: a case is not closed; expected esac"),
    "group": ("f() {\n x\n", "run.sh:1: a group is not closed; expected }"),
    "condition": ("[[ a == b", "run.sh:1: a [[ is not closed; expected ]]"),
    "closing word": ("x\nfi\n", "run.sh:2: 'fi' is out of place"),
    "parenthesis": ("x )", "run.sh:1: ')' is out of place"),
    "operator": ("x\n&& y", "run.sh:2: '&&' is out of place"),
    "no command": ("x |", "run.sh:1: the script ends within a command"),
}


@pytest.mark.parametrize(("text", "want"), BAD_SYNTAX.values(), ids=BAD_SYNTAX.keys())
def test_what_is_no_script_is_refused_with_its_line(text: str, want: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read_script(text, name="run.sh", variables={})
    assert str(raised.value) == want


EXECUTING = {
    "substitution": "A=$(touch {file})",
    "backquotes": "A=`touch {file}`",
    "in quotes": 'A="$(touch {file})"; show "$A"',
    "in a default": "show ${{A:-$(touch {file})}}",
    "in arithmetic": "show $((1 + $(touch {file})))",
    "in a subscript": "B='x[$(touch {file})]'; show $((B)); [[ $B -eq 1 ]]; let B; A[$B]=1",
    "in a here-document": "cat <<EOF\n$(touch {file})\nEOF\nread -d '' A <<EOF\n$(touch {file})\nEOF",
    "eval": 'eval "touch {file}"',
    "nested shell": "bash -c 'touch {file}'; sh -c 'eval touch {file}'",
    "command": "touch {file}",
    "redirection": "echo x > {file}; : > {file}; exec 2> {file}",
    "process substitution": "cat <(touch {file}) > >(tee {file})",
    "function": "f() {{ touch {file}; }}; f; trap f EXIT",
    "test": "[ -f $(touch {file}) ] && [[ -n $(touch {file}) ]]",
    "pipe": "echo x | tee {file}",
}


@pytest.mark.parametrize("text", EXECUTING.values(), ids=EXECUTING.keys())
def test_nothing_is_run(text: str, tmp_path: Path) -> None:
    file = tmp_path / "made"
    read_script(text.format(file=file), name="run.sh", variables={})
    assert not file.exists()


def test_other_files_and_the_environment_are_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "settings.sh").write_text("A=secret")
    monkeypatch.setenv("A", "secret")
    monkeypatch.chdir(tmp_path)
    text = f"source settings.sh; . {tmp_path}/settings.sh; read A < settings.sh; show $A $(<settings.sh) $HOME *"
    script = read_script(text, name="run.sh", variables={})
    assert [[word.text for word in command.words] for command in script.commands] == [
        ["source", "settings.sh"],
        [".", f"{tmp_path}/settings.sh"],
        ["show", "$A", "$(<settings.sh)", "$HOME", "*"],
    ]
