"""Generated scripts of assignments, arrays and expansions mean what bash, run on them, says that they mean."""

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.config.shell.real_bash import words_of_bash, words_of_ours

_names = st.sampled_from(["A", "B", "C", "N"])
_arrays = st.sampled_from(["L", "M"])
_plain = st.text("ab1. -=_/:,", max_size=6)
_patterns = st.text("ab1*?.", min_size=1, max_size=3)


def _quoted(text: str) -> st.SearchStrategy[str]:
    return st.sampled_from([f"'{text}'", f'"{text}"'])


_expansions = st.one_of(
    st.builds("${{{}}}".format, _names),
    st.builds("${{{}{}{}}}".format, _names, st.sampled_from([":-", "-", ":+", "+"]), st.text("ab1 ", max_size=4)),
    st.builds("${{{}:-{}${{{}}}}}".format, _names, st.text("a ", max_size=2), _names),
    st.builds("${{{}{}{}}}".format, _names, st.sampled_from(["#", "##", "%", "%%"]), _patterns),
    st.builds(
        "${{{}{}{}/{}}}".format, _names, st.sampled_from(["/", "//", "/#", "/%"]), _patterns, st.text("xy ", max_size=2)
    ),
    st.builds("${{#{}}}".format, _names),
    st.builds("${{{}:{}:{}}}".format, _names, st.integers(0, 4), st.integers(0, 4)),
    st.builds("${{{}[{}]}}".format, _arrays, st.sampled_from(["@", "*", "0", "1"])),
    st.builds("${{#{}[@]}}".format, _arrays),
    st.builds("$(({}{}{}))".format, st.integers(0, 20), st.sampled_from("+-*<&|^"), st.integers(0, 20)),
    st.builds("$(echo {})".format, st.text("ab ", min_size=1, max_size=4)),
)
_pieces = st.one_of(
    st.text("ab1.-=_/:,", min_size=1, max_size=4),
    _plain.flatmap(_quoted),
    _expansions,
    _expansions.map('"{}"'.format),
    _names.map('"${}"'.format),
    st.builds('"{}{}{}"'.format, _plain, _expansions, _plain),
    st.sampled_from(["\\ ", "\\$", "\\\\", "''"]),
)
_words = st.lists(_pieces, min_size=1, max_size=3).map("".join)
_word_lists = st.lists(_words, max_size=4).map(" ".join)
_statements = st.one_of(
    st.builds("{}={}".format, _names, _words),
    st.builds("{}+={}".format, _names, _words),
    st.builds("{}=({})".format, _arrays, _word_lists),
    st.builds("{}+=({})".format, _arrays, _word_lists),
    st.builds("show {}".format, _word_lists),
    st.builds(
        "if [ {} = {} ]; then {}=yes; else show {}; fi".format, _expansions.map('"{}"'.format), _words, _names, _words
    ),
    st.builds("[[ {} == {} ]] && {}=match".format, _expansions, _patterns, _names),
    st.builds("for N in {}; do show {}; done".format, _word_lists, _words),
    st.builds("case {} in {}) show case;; *) {}=none;; esac".format, _expansions, _patterns, _names),
    st.builds('f() {{ local A={}; show {} "$@"; }}; f {}'.format, _words, _words, _word_lists),
)


@given(statements=st.lists(_statements, min_size=1, max_size=8), last=_word_lists)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_generated_script_means_what_bash_says(statements: list[str], last: str, tmp_path: Path) -> None:
    # A word of `[` that expands to several, or to none, makes `[` complain; both then take the other branch.
    snippet = "\n".join(["L=(); M=()", *statements, f"show {last}", "show end"])
    assert words_of_ours(snippet) == words_of_bash(snippet, tmp_path)
