"""What a script does not settle stays open by name, and what its ways agree about holds."""

from dataclasses import dataclass

import pytest

from projector.config.shell import Script, Word, read_script


def read(text: str, **variables: str) -> Script:
    return read_script(text, name="run.sh", variables=variables)


def shown(script: Script) -> tuple[Word, ...]:
    """The arguments of the last command, which is `show`."""
    command = script.commands[-1]
    assert command.words[0].text == "show"
    return command.words[1:]


@dataclass(frozen=True, kw_only=True)
class Case:
    script: str
    want: list[str]
    want_unresolved: list[str]


CASES = {
    "unset variable": Case(script="show $X --n ${Y}b", want=["$X", "--n", "${Y}b"], want_unresolved=["X", "Y"]),
    "in a text": Case(script='A="--n $X --m"; show $A', want=["--n", "$X", "--m"], want_unresolved=["X"]),
    "in arithmetic": Case(script="N=$(($X*8)); show $N", want=["$(($X*8))"], want_unresolved=["X"]),
    "bare in arithmetic": Case(script="show $((X*8))", want=["$((X*8))"], want_unresolved=["X"]),
    "substitution": Case(
        script='G=$(nvidia-smi -L | wc -l); show --g $G "$G"',
        want=["--g", "$(nvidia-smi -L | wc -l)", "$(nvidia-smi -L | wc -l)"],
        want_unresolved=["$(nvidia-smi -L | wc -l)"],
    ),
    "backquotes": Case(script="show `hostname`", want=["`hostname`"], want_unresolved=["`hostname`"]),
    "operator on an unset variable": Case(script="show ${X##*/}", want=["${X##*/}"], want_unresolved=["X"]),
    "required variable": Case(script="show ${X:?missing}", want=["${X:?missing}"], want_unresolved=["X"]),
    "arguments of the script": Case(script='show "$@" $1 $#', want=["$@", "$1", "$#"], want_unresolved=["@", "1", "#"]),
    "process state": Case(script="show $? $$ $0", want=["$?", "$$", "$0"], want_unresolved=["?", "$", "0"]),
    "set by every shell": Case(script="show ${HOME:-/x}", want=["${HOME:-/x}"], want_unresolved=["HOME"]),
    "assigned in one branch": Case(
        script="A=1; if [ -f x ]; then A=2; fi; show $A", want=["$A"], want_unresolved=["A"]
    ),
    "assigned alike in both": Case(
        script="if [ -f x ]; then A=2; else A=2; fi; show $A", want=["2"], want_unresolved=[]
    ),
    "branches that differ at the end": Case(
        script='A="--x 1"; if grep -q y z; then A="$A --y 48"; else A="$A --y 4"; fi; show $A --z',
        want=["--x", "1", "--y", "${A}", "--z"],
        want_unresolved=["A"],
    ),
    "array that may grow": Case(
        script='A=(--x 1); if [ -d x ]; then A+=(--load y); fi; A+=(--z); show "${A[@]}"',
        want=["--x", "1", "${A[@]}", "--z"],
        want_unresolved=["A"],
    ),
    "a branch that ends the script": Case(
        script="A=1; if [ ! -f x ]; then A=2; echo no; exit 1; fi; show $A", want=["1"], want_unresolved=[]
    ),
    "an alternative that ends the script": Case(
        script="A=1; [ -f x ] || { A=2; exit 1; }; show $A", want=["1"], want_unresolved=[]
    ),
    "case on something unknown": Case(
        script="case $X in a) A=1 B=1;; b) A=2 B=1;; *) exit 1;; esac; show $A $B",
        want=["$A", "1"],
        want_unresolved=["A"],
    ),
    "while": Case(
        script="i=0; A=1; while read line; do i=$((i+1)); A=2; done < f; show $i $A",
        want=["$i", "$A"],
        want_unresolved=["i", "A"],
    ),
    "a loop whose turns depend on each other": Case(
        script="A=1; B=1; while read x; do B=$A; A=5; done; show $B", want=["$B"], want_unresolved=["B"]
    ),
    "a loop that decides in a later turn": Case(
        script="i=1; A=1; for f in *.txt; do if [ $i -eq 2 ]; then A=4; fi; i=$((i+1)); done; show $A",
        want=["$A"],
        want_unresolved=["A"],
    ),
    "a loop that appends": Case(
        script='A=(--x); for f in *.txt; do A+=("$f"); done; show "${A[@]}"',
        want=["--x", "${A[@]}"],
        want_unresolved=["A"],
    ),
    "a loop that calls a function": Case(
        script="f() { A=2; }; A=1; for x in $(ls); do f; done; show $A", want=["$A"], want_unresolved=["A"]
    ),
    "a function that may return": Case(
        script="f() { A=1; if [ -f x ]; then return; fi; A=2; }; f; show $A", want=["$A"], want_unresolved=["A"]
    ),
    "a function that returns twice": Case(
        script="f() { A=1; [ -f x ] && return; A=2; [ -f y ] && return; A=1; }; f; show $A",
        want=["$A"],
        want_unresolved=["A"],
    ),
    "a loop that may break": Case(
        script="for i in 1 2 3; do A=$i; if [ -f x ]; then break; fi; done; show $A", want=["$A"], want_unresolved=["A"]
    ),
    "a function that calls itself": Case(
        script="f() { A=$1; if [ -f x ]; then f 2; fi; }; f 1; show $A", want=["$A"], want_unresolved=["A"]
    ),
    "a function of which there are two": Case(
        script="if [ -f x ]; then f() { A=1; }; else f() { A=1; }; fi; show $A", want=["$A"], want_unresolved=["A"]
    ),
    "read from a file": Case(script="read A < f; show $A", want=["$A"], want_unresolved=["A"]),
    "failing arithmetic assigns": Case(script="A=1; (( A = X )); show $A", want=["$A"], want_unresolved=["A"]),
    "failing arithmetic assigns an element": Case(
        script="A=(1 2); (( A[N[1]] = X )); show ${A[1]}", want=["${A[1]}"], want_unresolved=["A"]
    ),
    "division by zero": Case(script="A=0; show $((1/A))", want=["$((1/A))"], want_unresolved=["$((1/A))"]),
    "attributes that convert": Case(script="declare -i A=1+1; show $A", want=["$A"], want_unresolved=["A"]),
    "a reference to nobody knows what": Case(script="declare -n R=$X; show $R", want=["$R"], want_unresolved=["R"]),
    "a circle of references": Case(
        script="f() { local A; declare -gn B=A; }; B=1; declare -n A=B; f; show $A", want=["$A"], want_unresolved=["A"]
    ),
    "assigned by reference in one branch": Case(
        script="declare -n R=A; A=1; if [ -f x ]; then R=2; fi; show $A", want=["$A"], want_unresolved=["A"]
    ),
    "an extended glob": Case(script="A=ab; show ${A%@(b|c)}", want=["${A%@(b|c)}"], want_unresolved=["A"]),
    "a later assignment does not reach back": Case(
        script='CMD="show $X"; X=4; eval $CMD', want=["$X"], want_unresolved=["X"]
    ),
    "unresolved text is not parsed again": Case(
        script='CMD="show $(cat \'a b\') c"; eval "$CMD"', want=["$(cat 'a b')", "c"], want_unresolved=["$(cat 'a b')"]
    ),
    "not exported": Case(script="A=1; export B=2; bash -c 'show $A $B'", want=["$A", "2"], want_unresolved=["A"]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_is_open_stays_open_by_name(case: Case) -> None:
    words = shown(read(case.script))
    assert [word.text for word in words] == case.want
    assert list(dict.fromkeys(name for word in words for name in word.unresolved)) == case.want_unresolved


@pytest.mark.parametrize(
    ("script", "want"),
    [
        ("if [ -f x ]; then A=1; else A=2; fi", "line 1: [ -f x ]"),
        ("A=1\nB=1\n[[ $X == y* ]] && A=2", "line 3: [[ $X == y* ]]"),
        ("A=1\nwhile read l; do A=2; done", "line 2: how often the loop runs"),
        ("A=1\ncase $X in a) A=2;; esac", "line 2: case $X"),
    ],
)
def test_reason_names_the_condition(script: str, want: str) -> None:
    assert read(script).reasons["A"] == want


def test_commands_carry_the_conditions_above_them() -> None:
    script = read("if [ -f x ]; then\n  if [ $X = 1 ]; then one; fi\n  two\nelse\n  three\nfi\nfour")
    assert {command.words[0].text: command.undecided for command in script.commands} == {
        "one": ("line 1: [ -f x ]", "line 2: [ $X = 1 ]"),
        "two": ("line 1: [ -f x ]",),
        "three": ("line 1: [ -f x ]",),
        "four": (),
    }


def test_a_command_after_a_guard_is_certain() -> None:
    script = read("if [ ! -f x ]; then echo no; exit 1; else torchrun a; fi; torchrun b")
    certain = [command.words[1].text for command in script.commands if not command.undecided]
    assert certain == ["a", "b"]


@pytest.mark.parametrize(
    ("script", "want"),
    [
        ("A=${X:-8}", "8"),
        ("A=${X-8}", "8"),
        ('A=1; if [ -z "$X" ]; then A=8; fi', "8"),
        ('A=8; if [ -n "$X" ]; then A=1; fi', "8"),
        ('A=1; [ -z "${X}" ] && A=8', "8"),
        ("A=1; [ x$X = x ] && A=8", "8"),
        ("A=1; [[ -v X ]] || A=8", "8"),
        ('A=1; [[ "$X" == "" ]] && A=8', "8"),
        ("A=8; A=$A${X:+1}", "8"),
        ("A=${Y:-${X:-8}}", "8"),
        ('Y="$X"; A=${Y:-8}', "8"),
    ],
)
def test_what_nobody_gave_counts_as_unset_in_defaults_and_tests_of_emptiness(script: str, want: str) -> None:
    found = read(script)
    assert [word.text for word in found.assignments["A"]] == [want]
    assert found.assignments["A"][0].unresolved == ()
    assert "X" in found.taken_as_unset
    given = read(script, X="3")
    assert "X" not in given.taken_as_unset


@pytest.mark.parametrize(
    "guard",
    [
        'if [ -z "$DATA" ]; then echo needs DATA; exit 1; fi',
        '[ -n "$DATA" ] || exit 1',
        "[[ -z $DATA ]] && { echo usage; exit; }",
        "if [ $# -lt 1 ]; then echo usage; exit 1; fi",
        "if test -z $1; then exit 1; fi",
        "f() { if [ -z $DATA ]; then exit 1; fi; }; f",
    ],
)
def test_a_guard_for_what_nobody_gave_does_not_end_the_script(guard: str) -> None:
    script = read(f"{guard}\ntorchrun --data $DATA")
    assert [word.text for word in script.commands[-1].words] == ["torchrun", "--data", "$DATA"]
    assert script.commands[-1].undecided == ()
    assert script.ends_at is None
    assert script.taken_as_unset == ()


def test_loops_over_arguments_that_nobody_gave_do_not_run() -> None:
    script = read('A=1; for arg in "$@"; do A=2; done; while [ $# -gt 0 ]; do A=3; shift; done; show $A')
    assert [word.text for word in shown(script)] == ["1"]
    assert script.taken_as_unset == ("@", "#")


def test_arguments_may_be_given() -> None:
    script = read('show $2 ${1} $#; for a in "$@"; do show $a; done', **{"1": "dsw", "2": "A37B"})
    assert [[word.text for word in command.words[1:]] for command in script.commands] == [
        ["A37B", "dsw", "2"],
        ["dsw"],
        ["A37B"],
    ]
    assert script.commands[0].words[1].variables == ("2",)


def test_the_end_of_a_script_is_told() -> None:
    assert read("A=1\nif [ $A -ne 2 ]; then\n  echo bad\n  exit 1\nfi\ntorchrun x").ends_at == 4
    assert read("exec torchrun x\necho never").ends_at == 1


@pytest.mark.parametrize(
    ("script", "want"),
    [
        ("show $TP", [("TP",)]),
        ('A="--tp ${TP} --pp 4"; show $A', [(), ("TP",), (), ()]),
        ("W=$((TP * PP)); show $W", [("TP", "PP")]),
        ('CMD="show --tp $TP"; eval $CMD', [(), ("TP",)]),
        ("show ${TP:-1} ${Q:-1} ${TP%2}x", [("TP",), (), ()]),
        ("export TP; srun bash -c 'show $TP'", [("TP",)]),
    ],
)
def test_variables_from_outside_are_named_where_they_were_used(script: str, want: list[tuple[str, ...]]) -> None:
    assert [word.variables for word in shown(read(script, TP="2", PP="4"))] == want
